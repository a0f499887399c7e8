"""The memory of a recurrent transformer between batches: the inputs of each layer and their ids.

A memory holds as many places as the model's mem_len, the newest last, and its ids tell which
of them are filled. The originals begin in two ways, `Start`:

  empty   nothing is remembered and none of it seen, and so again where a text begins anew, with
          every epoch (Transformer-XL's PyTorch program)
  zeros   all places are filled with zeros, which are attended to, and nothing is ever forgotten: an
          epoch begins with the memory of the one before (XLNet and Transformer-XL's TensorFlow
          program: train.py, cache_fn, and a data set that repeats)
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention import Mask
from bertjax.types import Array

Start = Literal['empty', 'zeros']


class Memory(NamedTuple):
  """One memory of every layer, a model's `carry`: the layers' inputs in compute dtype, and the
  int32 example ids of these places, 0 where nothing is remembered."""

  hidden_BLMD: Array
  example_BM: Array


def remembered(
  memory: Memory | tuple[()], hidden_BLMD: Array, example_BT: Array, keep: int | None = None
) -> Memory | tuple[()]:
  """Returns the memory for the next batch, from the layers' new ones; `keep` as in `push`."""
  return Memory(hidden_BLMD, push(memory.example_BM, example_BT, keep)) if memory else ()


def push(memory_BM: Array, new_BT: Array, keep: int | None = None) -> Array:
  """Returns the last M places of the memory [B, M, ...] followed by the first `keep` new ones [B,
  T, ...]; no gradient. XLNet keeps reuse_len places of its input, for the next batch begins behind
  them; None: all, as Transformer-XL."""
  length = memory_BM.shape[1]
  both = jnp.concatenate([memory_BM, new_BT[:, :keep].astype(memory_BM.dtype)], 1)
  return jax.lax.stop_gradient(both[:, both.shape[1] - length :])


def join(memory_BMD: Array | None, x_BTD: Array) -> Array:
  """[memory ; x] along the columns, [B, S, D]; no gradient reaches the memory."""
  if memory_BMD is None:
    return x_BTD
  return jnp.concatenate([jax.lax.stop_gradient(memory_BMD).astype(x_BTD.dtype), x_BTD], 1)


def keys(memory: Memory | tuple[()], example_BT: Array) -> Array:
  """Returns the example ids of the keys, [B, S]."""
  if not memory:
    return example_BT
  return jnp.concatenate([memory.example_BM, example_BT], 1)


def causal(memory: Memory | tuple[()], example_BT: Array, window: int | None) -> Mask:
  """Every position sees itself and what came before, in the memory too, of its own example."""
  example_BS = keys(memory, example_BT)
  return Mask(example_BT, example_BS, window=window, causal=True)
