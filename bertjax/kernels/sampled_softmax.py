"""The softmax over some words in place of all: Jean et al. 2015; tf.nn.sampled_softmax_loss.

The candidates of a step are drawn once for all rows, from a distribution over ids that falls as
their logarithm does, so ids must be sorted by frequency. They are different from each other:
drawing goes on until there are enough, and the expected count of an id is that of so many tries,
1 - (1 - p)^tries, or p * tries where no draw came twice (TensorFlow's range sampler). Its logarithm
is taken off the logits; a candidate that is a row's own target is left out for that row.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.kernels.look_up import look_up
from bertjax.types import Array

FAR = -1e37  # of a candidate that is the target


class Candidates(NamedTuple):
  """The words that a step's targets are told apart from."""

  id_K: Array  # int32, different from each other
  tries: Array  # how many draws it took to get them


def draw(key: Array, count: int, words: int) -> Candidates:
  """Draws ids by the log-uniform distribution until `count` of them are different.

  Args:
    key: of the step, the same on all devices.
    count: K, at most `words`.
    words: V.
  """
  many = max(4 * count, 64)

  def more(state):
    key, id_K, found, tries = state
    key, own = jax.random.split(key)
    share_n = jax.random.uniform(own, (many,))
    drawn_n = jnp.exp(share_n * jnp.log(words + 1.0)).astype(jnp.int32) - 1
    return key, *_take(jnp.clip(drawn_n, 0, words - 1), id_K, found, tries)

  start = (key, jnp.full(count, -1, jnp.int32), jnp.int32(0), jnp.int32(0))
  _, id_K, _, tries = jax.lax.while_loop(lambda state: state[2] < count, more, start)
  return Candidates(id_K, tries)


def _take(drawn_n: Array, id_K: Array, found: Array, tries: Array) -> tuple[Array, Array, Array]:
  """Adds the drawn ids that are new, in their order, until there are enough; -1 is a free place.
  All at once, by sorting: one after the other is a loop of 32,768 turns for 8,192 candidates."""
  count = len(id_K)
  every_m = jnp.concatenate([id_K, drawn_n])
  order_m = jnp.argsort(every_m, stable=True)
  sorted_m = every_m[order_m]
  first_m = jnp.append(True, sorted_m[1:] != sorted_m[:-1])
  new_n = jnp.zeros_like(first_m).at[order_m].set(first_m)[count:]
  until_n = found + jnp.cumsum(new_n)
  place_n = jnp.where(new_n, until_n - 1, count)
  id_K = id_K.at[place_n].set(drawn_n, mode='drop')
  tries = tries + jnp.sum(until_n - new_n < count)
  return id_K, jnp.minimum(until_n[-1], count), tries


def expected(id_n: Array, drawn: Candidates, words: int) -> Array:
  """Returns the expected counts of ids among the candidates, float32."""
  id_n, tries = id_n.astype(jnp.float32), drawn.tries.astype(jnp.float32)
  share_n = (jnp.log(id_n + 2) - jnp.log(id_n + 1)) / jnp.log(words + 1.0)
  once = drawn.tries == len(drawn.id_K)
  return jnp.where(once, share_n * tries, -jnp.expm1(tries * jnp.log1p(-share_n)))


def cross_entropy(
  hidden_WBPD: Array,
  table_VD: Array,
  bias_V: Array,
  target_WBP: Array,
  drawn: Candidates,
  words: int,
  row_n: Array | None = None,
) -> Array:
  """-log p of the targets of some texts W among themselves and the text's candidates, float32
  [W, B, P].

  All texts share one look-up, since the gradient of each is as large as the table.

  Args:
    hidden_WBPD: what the words are scored by.
    table_VD, bias_V: of the words.
    target_WBP: int32.
    drawn: of each text, [W, K] and [W]; see `draw`.
    words: V, without rows that pad the table.
    row_n: the ids of the table's rows, sorted, where it has some rows alone; None: it has all. The
      loss is NaN where one lacks.
  """
  target_Wm = target_WBP.reshape(len(target_WBP), -1)
  id_Wn = jnp.concatenate([target_Wm, drawn.id_K], 1)
  at_Wn, lacks = id_Wn, False
  if row_n is not None:
    at_Wn = jnp.searchsorted(row_n, id_Wn).astype(jnp.int32)
    lacks = jnp.any(row_n[jnp.minimum(at_Wn, len(row_n) - 1)] != id_Wn)
  row_WnD = look_up(table_VD, at_Wn.reshape(1, -1)).reshape(*id_Wn.shape, -1)
  row_WnD = row_WnD.astype(hidden_WBPD.dtype)
  of_text = functools.partial(_of_text, words=words)
  found = jax.vmap(of_text)(hidden_WBPD, target_WBP, drawn, id_Wn, row_WnD, bias_V[at_Wn])
  return jnp.where(lacks, jnp.nan, found)


def _of_text(hidden_BPD, target_BP, drawn: Candidates, id_n, row_nD, bias_n, words: int) -> Array:
  """`cross_entropy` of one text; the first of its n rows are those of its targets."""
  count, lift_n = target_BP.size, bias_n - jnp.log(expected(id_n, drawn, words))
  true_BP = jnp.sum(hidden_BPD * row_nD[:count].reshape(hidden_BPD.shape), -1)
  true_BP = true_BP.astype(jnp.float32) + lift_n[:count].reshape(true_BP.shape)
  other_BPK = jnp.einsum('BPD,KD->BPK', hidden_BPD, row_nD[count:]).astype(jnp.float32)
  other_BPK = other_BPK + lift_n[None, None, count:]
  same_BPK = target_BP[..., None] == drawn.id_K[None, None]
  other_BPK = jnp.where(same_BPK, FAR, other_BPK)
  every = jnp.concatenate([true_BP[..., None], other_BPK], -1)
  return jax.nn.logsumexp(every, -1) - true_BP
