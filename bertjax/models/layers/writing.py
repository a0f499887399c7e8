"""Goes on with the one text of a GPT or a causal BERT from a cache."""

import flax.linen as nn
import jax.numpy as jnp

from bertjax.models.layers.cache import Caches, Reading, Writing, before, begun, empty
from bertjax.models.layers.contracts import WritingModel
from bertjax.types import Array, Batch


class OneText(WritingModel):
  """Writes behind a prompt; has the fields layers, heads, width, dtype."""

  @nn.compact
  def start(self, batch: Batch, room: int) -> tuple[Array, Writing]:
    """Reads prompts; see `WritingModel`. Ids of further tables, `<name>_BT`, stay those of the last
    column."""
    real_BS, position_BT = begun(batch['example_BT'], room)
    rows, columns = position_BT.shape
    size, dtype = self.width // self.heads, jnp.dtype(self.dtype)
    caches = empty(rows, self.layers, columns + room, self.heads, size, dtype)
    tables = {f'{name}_BT': batch[f'{name}_BT'] for name in self.tables}
    later = {key: x_BT[:, -1:] for key, x_BT in tables.items()}
    text = Writing(caches, real_BS, jnp.zeros(rows, jnp.int32), position_BT[:, 0], tables=later)
    return self._written(tables | dict(token_BT=batch['token_BT'], position_BT=position_BT), text)

  @nn.compact
  def step(self, token_B: Array, text: Writing) -> tuple[Array, Writing]:
    """Reads a token more of each row; see `WritingModel`."""
    text = text._replace(real_BS=text.real_BS.at[:, text.place_B[0]].set(True))
    own = dict(token_BT=token_B[:, None], position_BT=text.position_B[:, None])
    return self._written({**text.tables, **own}, text)

  def _written(self, batch: Batch, text: Writing) -> tuple[Array, Writing]:
    """Returns the logits behind the last of these columns, which go on with the text."""
    columns, place = batch['token_BT'].shape[1], text.place_B[0]
    reading = Reading(place, before(text.real_BS, place, columns))
    logits_BV, caches = self.continued(batch, reading, text.layers)
    place_B, position_B = text.place_B + columns, batch['position_BT'][:, -1] + 1
    return logits_BV, text._replace(layers=caches, place_B=place_B, position_B=position_B)

  def continued(self, batch: Batch, reading: Reading, caches: Caches) -> tuple[Array, Caches]:
    """Reads new columns behind those of the layers' caches. Returns the logits behind the last,
    float32 [B, V], -inf where there is no word, and the caches with them."""
    raise NotImplementedError
