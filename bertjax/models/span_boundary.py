"""SpanBERT's model: BERT with a second head that reads a span off the tokens around it.

Joshi et al. 2019, section 3.2; facebookresearch/SpanBERT, pair_bert.py.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
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

POSITIONS, POSITION_WIDTH = 15, 200  # of the table of places in a span (pair_bert.py)


class BoundaryHead(nn.Module):
  """concat(left, right, place in the span) -> twice dense, activation, norm -> word table, bias."""

  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, left_BPD: Array, right_BPD: Array, offset_BP: Array, word: Scores) -> Scores:
    """Returns the scores of the targets; `word` lends its table."""
    rows, width = word.table_VE.shape
    shape = (POSITIONS, POSITION_WIDTH)
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


class SpanBert(bert.Bert):
  """The model of `objectives/span_boundary.py`; see `bert.Base`."""

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs `Bert` and adds `boundary`, each target's scores from the tokens around its span."""
    out = super().__call__(batch, noise, hidden)
    head = BoundaryHead(
      self.activation, self.norm_eps, INITS[self.initializer](self.init_std),
      jnp.dtype(self.dtype), name='boundary',
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
    into = (2 * self.width + POSITION_WIDTH) * self.table_width
    again, words = self.table_width**2, self.table_width * self.vocab_size
    targets = float(np.sum(batch['pair_weight_BP']))
    return super().flops(batch) + flops_lib.head_flops(targets, into, again, words)


def make(config) -> SpanBert:
  """Builds the model from `config.model`. Raises UserError: as `bert.fields`; no words to score."""
  fields = bert.fields(SpanBert, config)
  if not fields['words']:
    raise UserError('the boundary head scores words: expected config.model.words=True, got False')
  return SpanBert(**fields)


# Rows of other plans have no spans for the boundary head.
MODEL = Factory(
  options_of(SpanBert), make, encoder=Part(lambda model: dict(model, name='bert', family='bert'))
)
