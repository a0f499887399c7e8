"""The embeddings of the BERT family: words, positions, segments and whatever else a token has."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.kernels.dropout import Noise
from bertjax.kernels.look_up import look_up
from bertjax.models.layers.basic import Dense, Dropout, Norm, small_table, word_table, zeroed
from bertjax.models.layers.positions import sinusoids
from bertjax.types import Array, Batch


class Embeddings(nn.Module):
  """word + position + type + extra -> norm -> dropout, then a projection where widths differ."""

  vocab_size: int
  positions: int  # rows of the position table; 0: there is none
  sinusoid: bool  # see `bert.Base`
  types: int
  width: int  # of the tables, E
  out_width: int  # of the encoder, D
  # (name, rows) of further tables, looked up with `<name>_BT` of the batch
  extra: tuple[tuple[str, int], ...]
  position_offset: int
  zero_row: int | None
  norm_eps: float
  dropout: float
  initializer: Any
  dtype: Any

  @nn.compact
  def __call__(
    self, batch: Batch, noise: Noise | None, word_VE: Array | None = None
  ) -> tuple[Array, Array]:
    """Returns x_BTD and the word table, which is its own parameter unless one is given."""

    def table(name: str, rows: int, axis: str) -> Array:
      return small_table(self, name, axis, (rows, self.width), self.initializer)

    if word_VE is None:
      init = zeroed(self.initializer, self.zero_row)
      word_VE = word_table(self, 'word', self.vocab_size, self.width, init)
    x_BTE = look_up(word_VE, batch['token_BT'])
    if self.positions:
      if self.sinusoid:
        position = jnp.asarray(sinusoids(np.arange(self.positions), self.width, in_turn=True))
      else:
        position = table('position', self.positions, 'position')
      x_BTE = x_BTE + position[batch['position_BT'] + self.position_offset]
    if self.types:
      kind = table('type', self.types, 'type')
      x_BTE = x_BTE + kind[jnp.minimum(batch['type_BT'], self.types - 1)]
    for name, rows in self.extra:
      if f'{name}_BT' not in batch:
        raise UserError(
          f'config.model.extra has a table of {name!r}, but config.data.plan gives no {name} ids: '
          'leave the table out, or take a plan and a store that know them'
        )
      x_BTE = x_BTE + table(name, rows, 'type')[batch[f'{name}_BT']]
    x_BTE = Norm(self.norm_eps, self.dtype, name='norm')(x_BTE)
    x_BTD = Dropout(self.dropout, name='dropout')(x_BTE, noise)
    if self.width != self.out_width:
      dense = Dense(
        (self.out_width,), ('embed_out', 'embed'), self.initializer, dtype=self.dtype,
        name='projection',
      )  # fmt: skip
      x_BTD = dense(x_BTD)
    return nn.with_logical_constraint(x_BTD, ('batch', 'length', 'embed_act')), word_VE
