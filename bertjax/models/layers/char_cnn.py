"""Words from their characters (Kim et al. 2016; ELMo: allenai/bilm-tf, bilm/training.py).

Filters of several widths run over the characters of a word, the maximum of each over all places
passes a ReLU, highway layers (Srivastava et al. 2015) mix them and a dense layer gives the word's
vector. A word is its UTF-8 bytes, whatever language it is of.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bertjax.models.layers.basic import Dense, param

Array = jax.Array

# Ids beside the 256 bytes (bilm/data.py:UnicodeCharsVocabulary).
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
CHARACTERS = 261
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class CharCNN(nn.Module):
  """A vector of each word."""

  width: int  # of the vectors
  embedding: int = 16  # of a character
  filters: Sequence[tuple[int, int]] = FILTERS  # (characters, how many) of each width
  highways: int = 2  # layers
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, character_BTC: Array) -> Array:
    """Returns x_BTD of ids of CHARACTERS, as `characters` gives them."""
    flat = lambda bound: (
      lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -bound, bound)
    )
    shape = (CHARACTERS, self.embedding)
    table = param(self, 'characters', ('position', 'embed'), shape, flat(1.0))
    x_BTCE = table[character_BTC].astype(self.dtype)
    found = []
    for number, (length, count) in enumerate(self.filters):
      shape = (length, self.embedding, count)
      kernel = param(self, f'filter_{number}', (None, None, 'ffn'), shape, flat(0.05))
      bias = param(self, f'filter_{number}_bias', ('ffn',), (count,), jax.nn.initializers.zeros)
      places = x_BTCE.shape[2] - length + 1
      windows = jnp.stack([x_BTCE[:, :, i : i + places] for i in range(length)], 3)
      y = jnp.einsum('BTPLE,LEF->BTPF', windows, kernel.astype(self.dtype))
      # The bias is the same in all places, so the maximum may be taken before it.
      found.append(jax.nn.relu(jnp.max(y, 2) + bias.astype(self.dtype)[None, None]))
    x_BTF = jnp.concatenate(found, -1)
    size = x_BTF.shape[-1]
    normal = jax.nn.initializers.normal
    dense = lambda name, width, init: Dense(
      (width,), ('ffn', 'embed_out'), init, dtype=self.dtype, name=name
    )
    for number in range(self.highways):
      carry = jax.nn.sigmoid(Carry(size, self.dtype, name=f'carry_{number}')(x_BTF))
      changed = jax.nn.relu(dense(f'transform_{number}', size, normal(size**-0.5))(x_BTF))
      x_BTF = carry * changed + (1 - carry) * x_BTF
    return dense('projection', self.width, normal(size**-0.5))(x_BTF)


class Carry(nn.Module):
  """The gate of a highway layer, whose bias begins at -2: at first what enters goes on."""

  width: int
  dtype: Any

  @nn.compact
  def __call__(self, x_BTF: Array) -> Array:
    axes, shape = ('ffn', 'embed_out'), (self.width, self.width)
    kernel = param(self, 'kernel', axes, shape, jax.nn.initializers.normal(self.width**-0.5))
    bias = param(self, 'bias', axes[1:], shape[1:], jax.nn.initializers.constant(-2.0))
    return x_BTF @ kernel.astype(self.dtype) + bias.astype(self.dtype)[None, None]


def characters(words: Sequence[str], most: int = 50) -> tuple[np.ndarray, int]:
  """Returns the characters of words, begin, the bytes of the word, end, padding, int32 [n, C=most],
  and the number of words that were cut: of longer ones the first C - 2 bytes are read. '<S>' and
  '</S>' are the marks of a text's ends."""
  found, cut = np.full((len(words), most), PADDING, np.int32), 0
  marks = {'<S>': [BEGIN_TEXT], '</S>': [END_TEXT]}
  for row, word in zip(found, words, strict=True):
    ids = marks.get(word) or list(word.encode('utf-8', 'ignore'))
    cut += len(ids) > most - 2
    ids = [BEGIN_WORD, *ids[: most - 2], END_WORD]
    row[: len(ids)] = ids
  return found, cut
