"""XLNet's targets and permutations: zihangdai/xlnet, data_utils.py:_sample_mask and _local_perm.

A row has two parts, the first `reuse_len` tokens and the rest, with their own targets
and their own permutation: of P slots the second part has P // 2 and the first the others. A part is
walked from its first token, from its last one where its text runs backwards:

  draw n pieces of 1 to mask.max_words with P(n) ~ 1/n, at most as many as are still asked for, in a
  context of n * mask.context pieces, and how many of its pieces go before them; skip these, then on
  to the next start of a word; the n pieces from there are targets; skip the rest of the context.

What the end of the part leaves open is drawn piece by piece from all of it. The original means n
words, but looks at the first piece instead of the next one and counts pieces. CLS and SEP can be
drawn, and then have an empty slot.

The permutation is made of chunks of perm_size pieces: the same one in every chunk, and
chunks in order. Who sees whom follows from two orders: a query sees the keys below its own.

  ordinary token   key -1, query 0: seen by all of its part; sees ordinary tokens alone
  target           key and query are its place in the permutation: sees targets and specials
                   before it, and not itself
  CLS, SEP         key is the place, query one more: sees itself too

and in the second part reuse_len + 1 more, so that it sees all of the first part and none of it sees
the second. Memory has key -2. The content stream sees its own position besides.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.errors import UserError
from bertjax.examples import targets
from bertjax.examples.layout import Rows, in_turn, place, ragged, starts
from bertjax.examples.noise.albert_ngrams import pmf
from bertjax.field_types import Count, Natural

_GRAM, _LEFT, _FILL, _ORDER = range(targets.FREE, targets.FREE + 4)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    reuse_len: tokens of the first part; as the plan's.
    perm_size: tokens of a chunk that is permuted.
    context: one in so many tokens is predicted; README's mask_alpha / mask_beta.
    max_words: of a span; data_utils.py:_sample_mask's max_gram.
    static: the same permutations in every epoch; the original draws once for each TFRecord.
    max_targets: slots per row; 0: what the context asks for.
  """

  reuse_len: Count
  perm_size: Count
  context: Count = 6
  max_words: Count = 5
  static: bool = False
  max_targets: Natural = 0


class _Parts(NamedTuple):
  """The parts p of the rows, in the order in which they are walked."""

  at_n: np.ndarray  # token of each place; places of a part lie side by side
  # start_p, end_p: places
  start_p: np.ndarray
  end_p: np.ndarray
  goal_p: np.ndarray  # number of targets that each asks for
  key_p: np.ndarray  # of its draws


def _check(options: Options, store, length: int) -> None:
  targets.check_length(options, store, length)
  reuse = options.reuse_len
  sizes = (reuse, length - reuse)
  if reuse >= length:
    raise UserError(
      f'config.data.mask.reuse_len must leave room for A and B: expected 1 .. {length - 1} of '
      f'config.length={length}, got {reuse}'
    )
  if any(goal > size for goal, size in zip(goals(options, length), sizes, strict=True)):
    raise UserError(
      f'config.data.mask.max_targets={options.max_targets} with context={options.context} asks for '
      f'{goals(options, length)} targets of the {reuse} and {length - reuse} tokens of a row: '
      'lower it'
    )
  size = options.perm_size
  if reuse % size or (length - reuse) % size:
    raise UserError(
      f'config.data.mask.perm_size={size} must divide both parts of a row, {reuse} and '
      f'{length - reuse} tokens: a permutation is one of whole chunks. Set it to a divisor'
    )


def slots(options: Options, length: int) -> int:
  """Returns P: max_targets, or one in context tokens; 85 of 512."""
  return options.max_targets or length // options.context


def goals(options: Options, length: int) -> tuple[int, int]:
  """Returns how many targets the two parts ask for; (43, 42) of 512."""
  total = slots(options, length)
  return total - total // 2, total // 2


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Draws targets and permutations of rows of one example; the tokens stay as they are. masked_BP
  is 1 at all targets, since none is visible where it is predicted; besides there are order_q_BT and
  order_k_BT, int32: query t sees key s iff order_q[t] > order_k[s]."""
  limit, reuse = slots(options, rows.shape[1]), options.reuse_len
  token_n, special_n = rows.token_n, targets.is_special(rows.token_n, store)
  chosen_n = _choose(rows, options, store)
  target_n = chosen_n & ~special_n
  index_n = np.flatnonzero(target_n)
  key_n = np.where(chosen_n | special_n, _permute(rows, options), -1)
  query_n = np.where(target_n, key_n, key_n + 1)
  later_n = (rows.position_n >= reuse) * (reuse + 1)
  shown = token_n[index_n], np.ones(len(index_n), bool)
  batch = targets.emit(rows, limit, store, index_n, shown, np.zeros(len(rows.row_E), np.int64))
  return batch | dict(
    order_q_BT=place(rows, query_n + later_n), order_k_BT=place(rows, key_n + later_n)
  )


def _parts(rows, options) -> _Parts:
  length_E = rows.length_E
  first_E = np.minimum(options.reuse_len, length_E)
  size_p = in_turn(first_E, length_E - first_E)
  start_p = starts(size_p)
  part_n, offset_n = ragged(size_p)
  backward_p = np.repeat(rows.ranges.row['direction'] < 0, 2)
  back_n = start_p[part_n] + size_p[part_n] - 1 - offset_n
  at_n = np.where(backward_p[part_n], back_n, np.arange(len(part_n)))
  goal_p = np.minimum(np.tile(goals(options, rows.shape[1]), len(length_E)), size_p)
  # Both parts of a row: keys 0 and 1 of its own.
  key_p = counter_rng.fold(np.repeat(rows.key_E, 2), np.tile([0, 1], len(length_E)))
  return _Parts(at_n, start_p, start_p + size_p, goal_p, key_p)


def _choose(rows, options, store):
  """Returns bool [n]: the tokens drawn, as many as the goals say."""
  parts = _parts(rows, options)
  word_n = store.word_starts[rows.token_n[parts.at_n]]
  begin_m, size_m, taken_p = _walk(word_n, parts, options)
  chosen_n = np.zeros(len(word_n), bool)
  owner_n, offset_n = ragged(size_m)
  chosen_n[begin_m[owner_n] + offset_n] = True
  _fill(chosen_n, parts, taken_p)
  out_n = np.empty_like(chosen_n)
  out_n[parts.at_n] = chosen_n
  return out_n


def _walk(word_n, parts, options):
  """Returns the spans, as places and sizes, and how many tokens each part has in them."""
  until, total = np.cumsum(pmf(options.max_words))[:-1], len(word_n)
  start_w = np.append(np.flatnonzero(word_n), total)  # of words; the last one is none
  word_of_n = np.append(np.cumsum(word_n) - word_n, len(start_w) - 1)  # the next to start
  gram_p, left_p = counter_rng.fold(parts.key_p, _GRAM), counter_rng.fold(parts.key_p, _LEFT)
  cursor_p, taken_p = parts.start_p.copy(), np.zeros_like(parts.goal_p)
  open_p, spans, turn = np.flatnonzero(parts.goal_p > 0), [], 0
  while open_p.size:
    room, end = (parts.goal_p - taken_p)[open_p], parts.end_p[open_p]
    count = 1 + np.searchsorted(
      until, counter_rng.uniform(counter_rng.fold(gram_p[open_p], turn)), 'right'
    )
    count = np.minimum(count, room)
    context = count * options.context
    left = counter_rng.below(counter_rng.fold(left_p[open_p], turn), context)
    begin = start_w[word_of_n[np.minimum(cursor_p[open_p] + left, total)]]
    stop = begin + count
    inside = stop < end
    spans.append(np.stack([begin, stop - begin])[:, inside])
    open_p, stop, after = open_p[inside], stop[inside], (context - left)[inside]
    taken_p[open_p] += stop - begin[inside]
    cursor_p[open_p] = stop + after
    more = (taken_p < parts.goal_p)[open_p] & (cursor_p < parts.end_p)[open_p]
    open_p, turn = open_p[more], turn + 1
  begin_m, size_m = np.concatenate(spans, 1) if spans else np.zeros((2, 0), np.int64)
  return begin_m, size_m, taken_p


def _fill(chosen_n, parts, taken_p):
  """Draws single places of each part until its goal is reached; changes both arguments."""
  fill_p, turn = counter_rng.fold(parts.key_p, _FILL), 0
  open_p = np.flatnonzero(taken_p < parts.goal_p)
  while open_p.size:
    start, end = parts.start_p[open_p], parts.end_p[open_p]
    at = start + counter_rng.below(counter_rng.fold(fill_p[open_p], turn), end - start)
    taken_p[open_p] += ~chosen_n[at]
    chosen_n[at] = True
    open_p, turn = open_p[taken_p[open_p] < parts.goal_p[open_p]], turn + 1


def _permute(rows, options):
  """Returns the place of each token in the permutation of its part, int64 [n]."""
  size = options.perm_size
  key_E2 = counter_rng.fold(counter_rng.fold(rows.key_E, _ORDER)[:, None], np.arange(2)[None])
  order_E2s = np.argsort(counter_rng.fold(key_E2[..., None], np.arange(size)[None, None]), -1)
  later_n = rows.position_n >= options.reuse_len
  offset_n = rows.position_n - options.reuse_len * later_n
  place_n = offset_n % size
  return offset_n - place_n + order_E2s[rows.example_n, later_n.astype(np.int64), place_n]


MASKING = Masking(
  Options, ('pad', 'cls', 'sep'), _check, corrupt, row=('direction',), targets=('permuted',)
)
