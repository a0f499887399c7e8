"""Multi-head attention: the projections around the attention operation, and rotary positions."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.kernels import decode
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Dropout, Mask, Relative, relative_attention
from bertjax.models.layers.basic import Dense, FanIn, Init
from bertjax.models.layers.cache import Cache, Reading, heads_first, put
from bertjax.types import Array


class Rotary(NamedTuple):
  """float32 cosines and sines of the angles by which queries and keys turn (Su et al. 2021); H is
  half the head size."""

  cos_BTH: Array
  sin_BTH: Array


def rotary(position_BT: Array, head_size: int, theta: float) -> Rotary:
  """Returns the turns of positions: pair i of a head by position / theta^(2i / H)."""
  slow_H = theta ** (-np.arange(0, head_size, 2, dtype=np.float32) / head_size)
  angle_BTH = position_BT[:, :, None].astype(jnp.float32) * slow_H.astype(np.float32)[None, None]
  return Rotary(jnp.cos(angle_BTH), jnp.sin(angle_BTH))


def rotate(x_BTNH: Array, turns: Rotary) -> Array:
  """Turns each pair (i, i + H/2) of every head; computed in float32."""
  first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, -1)
  cos, sin = turns.cos_BTH[:, :, None], turns.sin_BTH[:, :, None]
  both = [first * cos - second * sin, second * cos + first * sin]
  return jnp.concatenate(both, -1).astype(x_BTNH.dtype)


def projections(params: Any, x_LBTD: Array, dtype: Any) -> dict[str, Array]:
  """Returns query, key and value, [L, B, T, N, H] each, from the stacked parameters of the
  `Attention` of some layers and what these read. They are made again outside of the layers:
  attention may run in a kernel that keeps none of them, and a step that reads none keeps none."""

  def project(name: str) -> Array:
    kernel_LDNH, bias_LNH = (params[name][leaf].astype(dtype) for leaf in ('kernel', 'bias'))
    product_LBTNH = jnp.einsum('LBTD,LDNH->LBTNH', x_LBTD.astype(dtype), kernel_LDNH)
    return product_LBTNH + bias_LNH[:, None, None]

  return {name: project(name) for name in ('query', 'key', 'value')}


def whole_columns(x_BTNH: Array) -> Array:
  """Gives each device all columns of some heads where a mesh divides columns: an all-to-all before
  attention, and its inverse after it (Jacobs et al. 2023, DeepSpeed-Ulysses). Raises UserError
  where the devices do not divide the heads."""
  mesh = jax.sharding.get_abstract_mesh()
  if mesh.empty or mesh.shape.get('sequence', 1) == 1:
    return x_BTNH
  ways = mesh.shape['sequence'] * mesh.shape['tensor']
  if x_BTNH.shape[2] % ways:
    raise UserError(
      f'config.mesh: tensor x sequence = {ways} must divide the heads in attention, got '
      f'{x_BTNH.shape[2]} heads'
    )
  return nn.with_logical_constraint(x_BTNH, ('batch', None, 'heads_act', 'head'))


class Attention(nn.Module):
  """The projections around the attention operation; residual, norm and dropout are the block's.

  `__call__` is the whole of it. A stream of its own takes it in parts: `query` of its slots,
  `attend` with the keys and values of another stream, `out`.
  """

  # heads, head_size, width: N, H and D; N * H need not be D
  heads: int
  head_size: int
  width: int
  # initializer, out_initializer: of the projections; of the last one, or None
  initializer: Init
  dropout: float  # of the probabilities
  bias: bool = True  # whether the projections have one
  positions: bool = False  # whether there is `position`, which makes `Relative.r_RNH` of distances
  out_initializer: Init | None = None
  dtype: Any = jnp.float32
  scale: float | None = None  # of the scores, T5's is 1; None: 1 / sqrt(H)

  def setup(self):
    shape, axes = (self.heads, self.head_size), ('embed', 'heads', 'head')
    dense = lambda bias, init: Dense(shape, axes, init, bias=bias, dtype=self.dtype)
    query = self.initializer
    # The kernel has the factor that the scores are not given.
    if self.scale is not None and isinstance(query, FanIn):
      query = FanIn(query.gain * self.head_size**-0.5 / self.scale)
    self.query = dense(self.bias, query)
    self.key, self.value = (dense(self.bias, self.initializer) for _ in range(2))
    if self.positions:
      self.position = dense(False, self.initializer)
    self.out = Dense(
      (self.width,), ('heads', 'head', 'embed'), self.out_initializer or self.initializer,
      inputs=2, bias=self.bias, dtype=self.dtype,
    )  # fmt: skip

  def __call__(
    self,
    x_BTD: Array,
    seen_BSD: Array,
    mask: Mask,
    relative: Relative | None,
    turns: Rotary | None,
    noise: Noise | None,
    layer: Array,
  ) -> Array:
    """Attends from x_BTD to seen_BSD, memory and input in this order, or another text where the
    mask has no distances, and projects: [B, T, D]. `turns` are of queries and keys alike, which are
    then the same columns; mask, relative and noise are as of the operation."""
    q_BTNH, k_BSNH, v_BSNH = self.query(x_BTD), self.key(seen_BSD), self.value(seen_BSD)
    if turns is not None:
      q_BTNH, k_BSNH = rotate(q_BTNH, turns), rotate(k_BSNH, turns)
    return self.out(self.attend(q_BTNH, k_BSNH, v_BSNH, mask, relative, noise, layer))

  def attend(
    self,
    q_BTNH: Array,
    k_BSNH: Array,
    v_BSNH: Array,
    mask: Mask,
    relative: Relative | None,
    noise: Noise | None,
    layer: Array,
  ) -> Array:
    """Returns the operation, [B, T, N, H]; a second call in a step needs other noise
    (`dropout.fork`)."""
    q_BTNH, k_BSNH, v_BSNH = map(whole_columns, (q_BTNH, k_BSNH, v_BSNH))
    dropout = None
    if self.scale is not None:
      relative = dataclasses.replace(relative or Relative(), scale=self.scale)
    if noise is not None and self.dropout:
      dropout = Dropout(self.dropout, noise, dropout_lib.site(self.path, layer))
    return relative_attention(q_BTNH, k_BSNH, v_BSNH, mask, relative, dropout)

  def continued(
    self, x_BTD: Array, new_BTD: Array, cache: Cache, reading: Reading
  ) -> tuple[Array, Cache]:
    """Attends from new columns, all or those of x, to all of them and those before; returns
    [B, T, D], and the cache with the new ones."""
    q_BTNH, k_BTNH, v_BTNH = self.query(x_BTD), self.key(new_BTD), self.value(new_BTD)
    key = put(cache.key_BNSH, k_BTNH, reading.place)
    value = put(cache.value_BNSH, v_BTNH, reading.place)
    y_BTNH = decode.attend(q_BTNH, key, value, reading.seen_BTS, reading.bias_NTS, self.scale)
    return self.out(y_BTNH), cache._replace(key_BNSH=key, value_BNSH=value)

  def crossed(self, x_BTD: Array, cache: Cache, reading: Reading) -> tuple[Array, Cache]:
    """Attends from new columns to another text, whose keys are made where it is given."""
    if reading.other_BSD is not None:
      key, value = (heads_first(made(reading.other_BSD)) for made in (self.key, self.value))
      cache = cache._replace(other_key_BNSH=key, other_value_BNSH=value)
    key, value, seen_BTS = cache.other_key_BNSH, cache.other_value_BNSH, reading.other_seen_BTS
    assert key is not None and value is not None and seen_BTS is not None
    return self.out(decode.attend(self.query(x_BTD), key, value, seen_BTS, None, self.scale)), cache
