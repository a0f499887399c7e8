"""Tables of positions: sinusoids of positions or distances, and biases by distance."""

from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import distance_tables
from bertjax.models.layers.basic import Dropout, Init, param
from bertjax.types import Array

Bias = Literal['alibi', 'buckets']

BUCKETS, FURTHEST = 32, 128  # of T5


def sinusoids(place_R: np.ndarray, width: int, clamp: int = 0, in_turn: bool = False) -> np.ndarray:
  """Returns sin and cos of place / 10000^(2k / width), float32 [R, width], of integers of either
  sign, clamped to a distance, 0: none. in_turn has sin and cos of each frequency in turn, as
  Vaswani et al. 2017 write them; else all sines come first, as in Transformer-XL and XLNet."""
  if clamp:
    place_R = np.clip(place_R, -clamp, clamp)
  angle = place_R[:, None] / 10000 ** (np.arange(0, width, 2) / width)
  both = [np.sin(angle), np.cos(angle)]
  table = np.stack(both, -1).reshape(len(angle), -1) if in_turn else np.concatenate(both, -1)
  return table[:, :width].astype(np.float32)


class DistanceTable(nn.Module):
  """Sinusoids of distances as an input of every layer, with one dropout for all layers and rows."""

  dropout: float
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, distance_R: np.ndarray, width: int, clamp: int, noise: Noise | None) -> Array:
    table_RD = jnp.asarray(sinusoids(distance_R, width, clamp), self.dtype)
    return Dropout(self.dropout, shared=True, name='dropout')(table_RD, noise)


def query_biases(
  module: nn.Module, names: str, shape: tuple[int, int], init: Init
) -> tuple[Array, ...]:
  """Returns the biases of a query, [N, H] each, parameters of the module: u for content, w for
  position, z for segment (r_w_bias, r_r_bias, r_s_bias of the originals), a letter of `names`
  each."""
  return tuple(param(module, name, ('heads', 'head'), shape, init) for name in names)


def bias_table(
  module: nn.Module, kind: Bias, heads: int, length: int, init: Init, causal: bool = False,
  name: str = 'buckets',
) -> Array:  # fmt: skip
  """Returns biases by distance that all layers share, float32 [N, R], the furthest distance first.
  T5's table of buckets and heads (Raffel et al. 2020) is the module's parameter `name`; ALiBi has
  no parameters (Press et al. 2022). Causal, it ends at distance 0, and T5's buckets are all of the
  past."""
  distance_R = distance_tables.distances(1 if causal else length, length)
  if kind == 'alibi':
    return jnp.asarray(distance_tables.alibi(heads, distance_R))
  bucket_R = distance_tables.t5_buckets(distance_R, BUCKETS, FURTHEST, not causal)
  return param(module, name, ('position', 'heads'), (BUCKETS, heads), init)[bucket_R].T
