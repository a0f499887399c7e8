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

from bertjax.models.layers.basic import Dense, param, small_table, uniform
from bertjax.types import Array

CHARACTERS = 261  # ids: 256 bytes, and the marks of examples/spelling.py
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class CharCNN(nn.Module):
  """A vector of each word."""

  width: int  # of the vectors
  embedding: int = 16  # of a character
  filters: Sequence[tuple[int, int]] = FILTERS  # (characters, how many) of each width
  highways: int = 2  # layers
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(self, character_BTW: Array) -> Array:
    """Returns x_BTD of ids of CHARACTERS, as `examples/spelling.py` gives them."""
    shape = (CHARACTERS, self.embedding)
    table = small_table(self, 'characters', 'position', shape, uniform(1.0))
    x_BTWE = table[character_BTW].astype(self.dtype)
    found = []
    for number, (length, count) in enumerate(self.filters):
      shape = (length, self.embedding, count)
      kernel = param(self, f'filter_{number}', (None, None, 'ffn'), shape, uniform(0.05))
      bias = param(self, f'filter_{number}_bias', ('ffn',), (count,), jax.nn.initializers.zeros)
      places = x_BTWE.shape[2] - length + 1
      windows = jnp.stack([x_BTWE[:, :, i : i + places] for i in range(length)], 3)
      most_BTF = _highest(windows, kernel.astype(self.dtype))
      # The bias is the same in all places, so the maximum may be taken before it.
      found.append(jax.nn.relu(most_BTF + bias.astype(self.dtype)[None, None]))
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


@jax.custom_vjp
def _highest(windows: Array, kernel: Array) -> Array:
  """Returns the most that a filter finds in any place of a word, [B, T, F], of windows [B, T, P, L,
  E] and kernel [L, E, F]. Its gradient is divided evenly among places that find as much.

  As jax derives it, the gradient of the kernel turns that of all places on its side first, which
  takes longer than the product on CPUs."""
  return _found(windows, kernel)[0]


def _found(windows: Array, kernel: Array) -> tuple[Array, Any]:
  y_BTPF = jnp.einsum('BTPLE,LEF->BTPF', windows, kernel)
  most_BTF = jnp.max(y_BTPF, 2)
  return most_BTF, (windows, kernel, y_BTPF, most_BTF)


def _back(kept: Any, grad_BTF: Array) -> tuple[Array, Array]:
  windows, kernel, y_BTPF, most_BTF = kept
  here_BTPF = y_BTPF == most_BTF[:, :, None]
  each_BTF = grad_BTF / jnp.sum(here_BTPF, 2).astype(grad_BTF.dtype)
  grad_BTPF = jnp.where(here_BTPF, each_BTF[:, :, None], 0)
  of_windows = jnp.einsum('BTPF,LEF->BTPLE', grad_BTPF, kernel)
  return of_windows, jnp.einsum('BTPLE,BTPF->LEF', windows, grad_BTPF)


_highest.defvjp(_found, _back)


def entries(
  characters: int, embedding: int, filters: Sequence[tuple[int, int]], highways: int, width: int
) -> int:
  """Returns the number of entries of the matrices that a word of so many characters meets, filters
  at all their places; other arguments are the fields of `CharCNN`."""
  size = sum(count for _, count in filters)
  places = sum((characters - length + 1) * length * count for length, count in filters)
  return places * embedding + size * (2 * highways * size + width)


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
