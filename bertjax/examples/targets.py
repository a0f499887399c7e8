"""Shared steps of every masking, so that a rule is a short file.

A rule says which tokens are predicted and what the input shows there. In order:

  candidates_n   the tokens that may be chosen (`not_special`)
  units          groups chosen or left as a whole: tokens (`single`) or words (`words`)
  order_n        the units in random order within their example (`shuffle`)
  asked_E        targets that each example asks for; `share` cuts it to the row's slots
  index_n        the tokens chosen, ascending: `fit` and `tokens_of`; or any other way
  shown_n        the ids that the input shows there (`show`)
  batch          `emit`

Every draw is a function of the example's key, a site and a position within the example, so it does
not depend on the batch around the example.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.errors import UserError
from bertjax.examples.layout import Rows, number_within, place, ragged, ranks, starts
from bertjax.field_types import Natural, PositiveShare, Share

Special = Literal['pad', 'unk', 'cls', 'sep', 'mask']

# Sites of an example's key. COUNT is RoBERTa's, SHOW of what a token shows, ID of any random id; a
# rule's own begin at FREE.
COUNT, _SELECT, SHOW, ID, FREE = range(5)
# A sort key holds example, draw and position in 20, 28 and 16 bits, the same for every batch size.
MAX_EXAMPLES, MAX_LENGTH = 1 << 20, 1 << 16


@dataclasses.dataclass(frozen=True)
class MaskOptions:
  """Fields of `config.data.mask` of every masking that shows random ids.

  Attributes:
    rate: share of the tokens that are predicted.
    mask_share: of these, the share that shows [MASK].
    random_share: of these, the share that shows a random id.
    static: the same masks in every epoch.
    max_targets: slots per row; 0: what the rate asks for.
    never_drawn: special tokens of the vocabulary that are never drawn as random ids.
  """

  rate: PositiveShare
  mask_share: Share
  random_share: Share = 0.1
  static: bool = False
  max_targets: Natural = 0
  never_drawn: tuple[Special, ...] = ()


class Units(NamedTuple):
  """Groups of candidates that are chosen or left as a whole: single tokens, or words."""

  example_n: np.ndarray  # int64, ascending
  first_n: np.ndarray  # int64, index of the unit's first token among the candidates
  size_n: np.ndarray  # int64, candidates in it; they lie side by side


def check(options, store, length: int) -> None:
  """Refuses shares that exceed 1 together, no id to draw, or rows that are too long."""
  check_length(options, store, length)
  if options.mask_share + options.random_share > 1:
    raise UserError(
      'config.data.mask.mask_share and random_share must be at most 1 together, got '
      f'{options.mask_share} and {options.random_share}'
    )
  if len(ids_of(options.never_drawn, store)) >= store.vocabulary_size:
    raise UserError(
      f'config.data.mask.never_drawn={options.never_drawn} leaves none of the '
      f'{store.vocabulary_size} ids of the vocabulary to draw: name fewer'
    )


def check_length(options, store, length: int) -> None:
  """Refuses rows that are too long to be sorted: `Masking.check`."""
  if length > MAX_LENGTH:
    raise UserError(f'masking handles rows of at most {MAX_LENGTH} tokens, got length {length}')


def slots(options, length: int) -> int:
  """Returns P, the predicted slots per row: max_targets, or ceil(rate * length) where it is 0. At
  rate 0.15 that is 20 for 128 and 77 for 512, the flags of google-research/bert."""
  return options.max_targets or math.ceil(options.rate * length)


def bert_count(rows: Rows, rate: float) -> np.ndarray:
  """Returns max(1, round(rate * length)) of each example, int64 [E]; half rounds to even."""
  return np.maximum(np.rint(rate * rows.length_E).astype(np.int64), 1)


def bits(rows: Rows, site: int, example_n: np.ndarray, counter_n: np.ndarray | int):
  """Draws uint64 [n] at one site of the keys of these examples."""
  return counter_rng.fold(counter_rng.fold(rows.key_E, site)[example_n], counter_n)


def at_tokens(rows: Rows, site: int, index_n: np.ndarray) -> np.ndarray:
  """Draws uint64 [n], one per token, by its example and its position there."""
  return bits(rows, site, rows.example_n[index_n], rows.position_n[index_n])


def not_special(rows: Rows, store) -> np.ndarray:
  """Returns the indices of the tokens other than [CLS] and [SEP], int64, ascending."""
  return np.flatnonzero(~is_special(rows.token_n, store))


def is_special(token_n: np.ndarray, store) -> np.ndarray:
  """Returns bool [tokens], whether each is [CLS] or [SEP]."""
  return (token_n == store.special['cls']) | (token_n == store.special['sep'])


def single(rows: Rows, candidate_n: np.ndarray) -> Units:
  """Each candidate as a unit."""
  ones_n = np.ones(len(candidate_n), np.int64)
  return Units(rows.example_n[candidate_n], np.arange(len(candidate_n)), ones_n)


def words(rows: Rows, candidate_n: np.ndarray, starts_n: np.ndarray) -> Units:
  """Groups candidates, ascending, into words. starts_n says whether a candidate begins one: else it
  joins the candidate before it, even across a [SEP], as in create_pretraining_data.py; the first of
  an example always begins one."""
  example_n = rows.example_n[candidate_n]
  first_n = np.flatnonzero(starts_n | (np.diff(example_n, prepend=-1) != 0))
  return Units(example_n[first_n], first_n, np.diff(np.append(first_n, len(candidate_n))))


def tokens_or_words(rows: Rows, whole_word: bool, store, candidate_n: np.ndarray) -> Units:
  """Candidates as words with `whole_word`, which begin where the vocabulary says; else alone."""
  if not whole_word:
    return single(rows, candidate_n)
  return words(rows, candidate_n, store.word_starts[rows.token_n[candidate_n]])


def shuffle(rows: Rows, units: Units, candidate_n: np.ndarray) -> np.ndarray:
  """Returns the units in random order within each example, examples in order; refuses a batch of
  more than 2**20 examples."""
  if len(rows.row_E) > MAX_EXAMPLES:
    raise UserError(f'expected at most {MAX_EXAMPLES} examples per batch, got {len(rows.row_E)}')
  lead_n = candidate_n[units.first_n]
  position_n = rows.position_n[lead_n].astype(np.uint64)
  bits_n = bits(rows, _SELECT, units.example_n, position_n) >> np.uint64(36) << np.uint64(16)
  key_n = units.example_n.astype(np.uint64) << np.uint64(44) | bits_n | position_n
  # Sorting the keys themselves is faster than argsort; the position leads back to the unit.
  sorted_n = np.sort(key_n)
  example_n = (sorted_n >> np.uint64(44)).astype(np.int64)
  at_n = (sorted_n & np.uint64(MAX_LENGTH - 1)).astype(np.int64)
  unit_of_n = np.empty(len(rows.token_n), np.int64)
  unit_of_n[lead_n] = np.arange(len(lead_n))
  return unit_of_n[starts(rows.length_E)[example_n] + at_n]


def share(asked_E: np.ndarray, row_E: np.ndarray, limit: int) -> np.ndarray:
  """Cuts what the examples of a row ask for down to the row's limit, in proportion. Limit 77 and
  eight examples that ask for 10 each give 9 10 9 10 10 9 10 10. Rows that keep the limit get what
  they ask for; row_E ascends."""
  rows = int(row_E[-1]) + 1 if len(row_E) else 0
  total_E = count(row_E, asked_E, rows)[row_E]
  until_E = running(asked_E, row_E, rows)
  scale_E = np.maximum(total_E, 1)
  cut_E = until_E * limit // scale_E - (until_E - asked_E) * limit // scale_E
  return np.where(total_E > limit, cut_E, asked_E)


def fit(example_n: np.ndarray, size_n: np.ndarray, room_E: np.ndarray) -> np.ndarray:
  """Returns the indices of the units taken: in order, skipping what exceeds its example's room;
  example_n ascends."""
  room_E, open_n, chosen = room_E.copy(), np.arange(len(example_n)), []
  while open_n.size:
    open_example_n, open_size_n = example_n[open_n], size_n[open_n]
    until_n = running(open_size_n, open_example_n, len(room_E))
    fits_n = until_n <= room_E[open_example_n]
    chosen.append(open_n[fits_n])
    room_E -= count(open_example_n[fits_n], open_size_n[fits_n], len(room_E))
    # Units that are too big now stay too big: the room only shrinks.
    open_n = open_n[~fits_n & (open_size_n <= room_E[open_example_n])]
  return np.concatenate(chosen) if chosen else open_n


def tokens_of(
  units: Units, taken_n: np.ndarray, candidate_n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the tokens of some units, ascending, and the first token of the unit of each."""
  owner_n, offset_n = ragged(units.size_n[taken_n])
  first_n = units.first_n[taken_n][owner_n]
  index_n = candidate_n[first_n + offset_n]
  by_place = np.argsort(index_n)
  return index_n[by_place], candidate_n[first_n][by_place]


def count(group_n: np.ndarray, value_n: np.ndarray | int, groups: int) -> np.ndarray:
  """Returns the sum of the values in each group, int64 [groups]."""
  weight_n = np.broadcast_to(value_n, group_n.shape)
  return np.bincount(group_n, weight_n, groups).astype(np.int64)


def running(value_n: np.ndarray, group_n: np.ndarray, groups: int) -> np.ndarray:
  """Returns the running sum of the values within each group (ascending), own value included."""
  total_g = count(group_n, value_n, groups)
  return np.cumsum(value_n) - (np.cumsum(total_g) - total_g)[group_n]


def ids_of(names: tuple[str, ...], store) -> list[int]:
  """Ids of the special tokens that the vocabulary has of these, ascending, each once."""
  return sorted({store.special[name] for name in names if store.special.get(name) is not None})


def uniform_ids(rows: Rows, never_drawn: tuple[str, ...], store, index_n: np.ndarray) -> np.ndarray:
  """Draws an id per token, uniform over all but these special ones; maybe the original one."""
  left_out = ids_of(never_drawn, store)
  id_n = counter_rng.below(at_tokens(rows, ID, index_n), store.vocabulary_size - len(left_out))
  for special_id in left_out:  # ascending: each shifts the ids from its own on
    id_n = id_n + (id_n >= special_id)
  return id_n


def lowest(value_n: np.ndarray, group_n: np.ndarray, room_g: np.ndarray) -> np.ndarray:
  """Returns the indices, ascending, of the room_g lowest values of each group (ascending)."""
  size_g = np.bincount(group_n, minlength=len(room_g))
  if (size_g <= room_g).all():
    return np.arange(len(value_n))
  return np.flatnonzero(ranks(value_n, group_n) < room_g[group_n])


def within(
  rows: Rows, limit: int, index_n: np.ndarray, turn_n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns which of the chosen tokens have a slot, by the lowest turns of each row, and how many
  of each example have none, int64 [E]."""
  example_n = rows.example_n[index_n]
  kept_n = lowest(turn_n, rows.row_E[example_n], np.full(rows.shape[0], limit))
  examples = len(rows.row_E)
  return kept_n, count(example_n, 1, examples) - count(example_n[kept_n], 1, examples)


def show(
  rows: Rows, mask, store, index_n: np.ndarray, decide_n: np.ndarray, random_id_n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Decides what the input shows: mask_share [MASK], random_share a random id, else the original.
  Each of the tokens index_n draws at the position of its decide_n: itself, or the first token of
  its group. Returns the ids shown, and bool, where they are [MASK] by decision."""
  u_n = counter_rng.uniform(at_tokens(rows, SHOW, decide_n))
  masked_n = u_n < mask.mask_share
  random_n = ~masked_n & (u_n < mask.mask_share + mask.random_share)
  kept_n = np.where(random_n, random_id_n, rows.token_n[index_n])
  return np.where(masked_n, store.special['mask'], kept_n), masked_n


def decided(
  rows: Rows, options, limit: int, store, index_n, dropped_E, decide_n=None
) -> dict[str, np.ndarray]:
  """Makes the batch of the chosen tokens with uniform random ids and one decision per token, or per
  token of `decide_n`: `uniform_ids`, `show` and `emit`, whose arguments these are."""
  id_n = uniform_ids(rows, options.never_drawn, store, index_n)
  shown = show(rows, options, store, index_n, index_n if decide_n is None else decide_n, id_n)
  return emit(rows, limit, store, index_n, shown, dropped_E)


def emit(
  rows: Rows,
  limit: int,
  store,
  index_n: np.ndarray,
  shown: tuple[np.ndarray, np.ndarray],
  dropped_E: np.ndarray,
  **extra: np.ndarray,
) -> dict[str, np.ndarray]:
  """Makes the batch of the chosen tokens, ascending and at most P=limit in a row; one that comes
  twice takes two slots, and must show one id. `shown` is as `show` returns it. Returns token_BT,
  target_pos_BP, target_BP, weight_BP, masked_BP as `bertjax.types` has them; of each extra, a value
  per chosen token, <name>_BP; and dropped_B, the targets without a slot of each row."""
  shown_n, masked_n = shown
  token_n, target_n = rows.token_n.copy(), rows.token_n[index_n]
  token_n[index_n] = shown_n
  # The layout fixes [CLS] and [SEP], and unigram counts lack them: neither is scored.
  masked_n = masked_n & ~is_special(target_n, store)
  row_n, column_n = np.divmod(rows.cell_n[index_n], rows.shape[1])
  slot_n = number_within(row_n)

  def spread(value_n, dtype):
    out_BP = np.zeros((rows.shape[0], limit), dtype)
    out_BP[row_n, slot_n] = value_n
    return out_BP

  return dict(
    token_BT=place(rows, token_n, store.special['pad']),
    target_pos_BP=spread(column_n, np.int32),
    target_BP=spread(target_n, np.int32),
    weight_BP=spread(1.0, np.float32),
    masked_BP=spread(masked_n, np.float32),
    dropped_B=np.bincount(rows.row_E, dropped_E, rows.shape[0]).astype(np.int32),
    **{f'{name}_BP': spread(value_n, value_n.dtype) for name, value_n in extra.items()},
  )
