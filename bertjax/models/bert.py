"""BERT and RoBERTa: the encoder, its embeddings and its pretraining heads.

Devlin et al. 2019 (google-research/bert), Liu et al. 2019 (fairseq). Sizes with the parameter
counts that transformers reports are in SIZES and asserted in the tests.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels.dropout import Noise
from bertjax.models.heads import MaskedHead, gather_positions
from bertjax.models.layers import INITS, Dense, Dropout, Norm, padded_rows, param
from bertjax.models.transformer import Encoder
from bertjax.types import Batch

Array = jax.Array

# tiny..medium: Turc et al. 2019 (arXiv 1908.08962); base, large: Devlin et al. 2019. `test` is
# ours: two layers of 8 heads, so that every test mesh divides it.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256),
  'tiny': dict(layers=2, width=128, heads=2, ffn=512),
  'mini': dict(layers=4, width=256, heads=4, ffn=1024),
  'small': dict(layers=4, width=512, heads=8, ffn=2048),
  'medium': dict(layers=8, width=512, heads=8, ffn=2048),
  'base': dict(layers=12, width=768, heads=12, ffn=3072),
  'large': dict(layers=24, width=1024, heads=16, ffn=4096),
}


class Embeddings(nn.Module):
  """word + position + type -> norm -> dropout."""

  vocab_size: int
  positions: int
  types: int
  width: int
  position_offset: int
  zero_row: int | None
  norm_eps: float
  dropout: float
  initializer: Any
  dtype: Any

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None) -> tuple[Array, Array]:
    def word_init(key, shape, dtype):
      table_VD = self.initializer(key, shape, dtype)
      return table_VD if self.zero_row is None else table_VD.at[self.zero_row].set(0)

    rows = (padded_rows(self.vocab_size), self.width)
    word_VD = param(self, 'word', ('vocab', 'embed'), rows, word_init)
    position = param(
      self, 'position', ('position', 'embed'), (self.positions, self.width), self.initializer
    )
    kind = param(self, 'type', ('type', 'embed'), (self.types, self.width), self.initializer)
    x_BTD = word_VD[batch['token_BT']] + position[batch['position_BT'] + self.position_offset]
    x_BTD = x_BTD + kind[jnp.minimum(batch['type_BT'], self.types - 1)]
    x_BTD = Norm(self.norm_eps, self.dtype, name='norm')(x_BTD)
    x_BTD = Dropout(self.dropout, name='dropout')(x_BTD, noise)
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act')), word_VD


class Bert(nn.Module):
  """The model of `objectives/mlm.py`; fields are `config.model`.

  Attributes:
    vocab_size: ids 0..vocab_size-1; the table itself is padded to a multiple of 128 rows.
    layers, width, heads, ffn: L, D, N, F.
    positions: rows of the position table; RoBERTa has 514 for 512 positions.
    types: rows of the segment table. RoBERTa uses 1 (a constant row, as transformers keeps one).
    position_offset: 2 for RoBERTa (fairseq starts at pad id + 1).
    zero_row: id whose word vector starts at zero (RoBERTa's pad), or None.
    attend: 'example', or 'self': each token sees itself only, the ablation without attention.
    pooler: dense + tanh on the first token of each packed example, and the next-sentence head.
  """

  vocab_size: int
  layers: int
  width: int
  heads: int
  ffn: int
  positions: int
  types: int
  position_offset: int
  zero_row: int | None
  norm_eps: float
  activation: str
  dropout: float
  attention_dropout: float
  initializer: str
  init_std: float
  attend: str
  pooler: bool
  remat: bool
  dtype: str

  @nn.compact
  def __call__(self, batch: Batch, noise: Noise | None = None, hidden: bool = False):
    """Runs the encoder and the heads.

    Args:
      batch: see types.py; reads token, position, type, example, target_pos and, with a pooler,
        first.
      noise: keys of the dropout; None in evaluation.
      hidden: static; also return every layer's output.

    Returns:
      dict with logits_BPV (float32, -inf beyond the vocabulary), last_BTD and, with a pooler,
      next_BG2; hidden_LBTD if asked.
    """
    dtype, init = jnp.dtype(self.dtype), INITS[self.initializer](self.init_std)
    embeddings = Embeddings(
      self.vocab_size, self.positions, self.types, self.width, self.position_offset, self.zero_row,
      self.norm_eps, self.dropout, init, dtype, name='embeddings',
    )  # fmt: skip
    x_BTD, word_VD = embeddings(batch, noise)
    layer = dict(
      heads=self.heads, ffn=self.ffn, activation=self.activation, norm_eps=self.norm_eps,
      dropout=self.dropout, attention_dropout=self.attention_dropout, initializer=init,
      hidden=hidden, dtype=dtype,
    )  # fmt: skip
    example_BT = batch['example_BT']
    if self.attend == 'self':
      column_1T = jnp.arange(1, example_BT.shape[1] + 1)[None]
      example_BT = jnp.where(example_BT > 0, column_1T, 0)
    x_BTD, hidden_LBTD = Encoder(self.layers, self.remat, layer, name='encoder')(
      x_BTD, example_BT, noise
    )
    out: dict[str, Any] = dict(last_BTD=x_BTD)
    if hidden:
      out['hidden_LBTD'] = hidden_LBTD
    head = MaskedHead(self.vocab_size, self.activation, self.norm_eps, init, dtype, name='mlm')
    out['logits_BPV'] = head(gather_positions(x_BTD, batch['target_pos_BP']), word_VD)
    if self.pooler:
      first_BGD = gather_positions(x_BTD, batch['first_BG'])
      dense = Dense((self.width,), ('embed', 'embed_out'), init, dtype=dtype, name='pooler')
      label = Dense((2,), ('embed', 'label'), init, dtype=dtype, name='next')
      out['next_BG2'] = label(jnp.tanh(dense(first_BGD))).astype(jnp.float32)
    return out


def make(config) -> Bert:
  """Builds the model from `config.model` (a mapping with exactly the fields of Bert, plus `name`).

  Raises:
    ValueError: heads that do not divide the width, or an unknown choice.
  """
  fields = {k: v for k, v in dict(config).items() if k not in ('name', 'size')}
  if fields['attend'] not in ('example', 'self'):
    raise ValueError(f"model.attend is 'example' or 'self', got {fields['attend']!r}")
  if fields['width'] % fields['heads']:
    raise ValueError(
      f'model.width must be a multiple of model.heads, got {fields["width"]} and {fields["heads"]}'
    )
  return Bert(**fields)
