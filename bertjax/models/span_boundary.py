"""SpanBERT's model: BERT with a second head that reads a span off the tokens around it.

Joshi et al. 2019, section 3.2; facebookresearch/SpanBERT, pair_bert.py.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import Count
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import Noise
from bertjax.models import bert
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import (
  ACTIVATIONS,
  INITS,
  Dense,
  Init,
  Norm,
  options_of,
  param,
  small_table,
)
from bertjax.models.layers.heads import Head, gather_positions
from bertjax.types import Array, Batch, Factory, Part


class BoundaryHead(nn.Module):
  """concat(left, right, place in the span) -> twice dense, activation, norm -> word table, bias."""

  positions: int  # rows of the table of places in a span
  position_width: int  # its width
  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, left_BPD: Array, right_BPD: Array, offset_BP: Array, word: Scores) -> Scores:
    """Returns the scores of the targets; `word` lends its table."""
    rows, width = word.table_VE.shape
    shape = (self.positions, self.position_width)
    position = small_table(self, 'position', 'position', shape, self.initializer)
    place_BPD = position[offset_BP].astype(self.dtype)
    h_BPD = jnp.concatenate([left_BPD, right_BPD, place_BPD], -1)
    for turn in (1, 2):
      dense = Dense(
        (width,), ('embed', 'embed_out'), self.initializer, dtype=self.dtype, name=f'dense{turn}'
      )
      h_BPD = ACTIVATIONS[self.activation](dense(h_BPD))
      h_BPD = Norm(self.norm_eps, self.dtype, name=f'norm{turn}')(h_BPD)
    bias_V = param(self, 'bias', ('vocab',), (rows,), jax.nn.initializers.zeros)
    return Scores(h_BPD, word.table_VE, bias_V, word.vocab_size)


class SpanBert(bert.Bert, kw_only=True):
  """The model of `objectives/span_boundary.py`; see `bert.Base`.

  Attributes:
    boundary_positions: targets of a span that the boundary head predicts, at most.
    boundary_width: of the embedding of a target's place in its span.
  """

  boundary_positions: Count = 15
  boundary_width: Count = 200

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs `Bert` and adds `boundary`, each target's scores from the tokens around its span."""
    out = super().__call__(batch, noise, hidden)
    head = BoundaryHead(
      self.boundary_positions, self.boundary_width, self.activation, self.norm_eps,
      INITS[self.initializer](self.init_std), jnp.dtype(self.dtype), name='boundary',
    )  # fmt: skip
    left_BPD = gather_positions(out['last_BTD'], batch['left_BP'])
    right_BPD = gather_positions(out['last_BTD'], batch['right_BP'])
    return dict(out, boundary=head(left_BPD, right_BPD, batch['offset_BP'], out['word']))

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """Those of `Bert`, and the boundary head."""
    return (*super().output_heads, Head('boundary', 'boundary', self.vocab_size, 'boundary'))

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs `Bert` without dropout; the boundary head, which needs targets, stays out."""
    return super().__call__(batch, None, hidden)

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Counts the FLOPs of `Bert`, and of the boundary head at the targets it is trained on."""
    into = (2 * self.width + self.boundary_width) * self.table_width
    again, words = self.table_width**2, self.table_width * self.vocab_size
    targets = float(np.sum(batch['pair_weight_BP']))
    return super().flops(batch) + flops_lib.head_flops(targets, into, again, words)


def make(config) -> SpanBert:
  """Builds the model from `config.model`. Raises UserError: as `bert.fields`; no words to score."""
  fields = bert.fields(SpanBert, config)
  if not fields['words']:
    raise UserError('the boundary head scores words: expected config.model.words=True, got False')
  return SpanBert(**fields)


def _as_bert(model: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the `config.model` without the boundary head."""
  own = ('boundary_positions', 'boundary_width')
  fields = {key: value for key, value in model.items() if key not in own}
  return fields | dict(name='bert', family='bert')


# Rows of other plans have no spans for the boundary head.
MODEL = Factory(options_of(SpanBert), make, Part(_as_bert))
