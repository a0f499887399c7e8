"""Masked language modelling: which tokens are predicted, and what the input shows there.

Two rules (`recipe.mask.rule`), here at rate 0.15:

  bert     round(.15 * length), at least 1, of the tokens other than [CLS] and [SEP]
           (google-research/bert, create_pretraining_data.py). With whole_word the words are
           shuffled and taken one by one; one that would exceed the count is skipped.
  roberta  floor(.15 * length + u), u uniform in [0, 1), of all tokens, <s> and </s> included
           (fairseq, mask_tokens_dataset.py). With whole_word the same count of words, and one
           decision per word.

length includes the special tokens. Of the chosen tokens mask_share show [MASK], random_share a
random id (uniform over the ids from special_ids up, which may be the original one), and the others
stay. A row has P slots; where its examples ask for more, each gets its share and what is dropped is
counted.
"""

import math
from typing import NamedTuple

import numpy as np

from bertjax.data import draws
from bertjax.data.rows import Rows, place, ragged, starts
from bertjax.names import choose

SPECIAL = ('cls', 'sep', 'mask')
RULES = ('bert', 'roberta')

# Sites of an example's key.
_COUNT, _SELECT, _SHOW, _ID = range(4)
# A sort key holds example, draw and position in 20, 28 and 16 bits, the same for every batch size.
MAX_EXAMPLES, MAX_LENGTH = 1 << 20, 1 << 16


class _Units(NamedTuple):
  """What is chosen or not as a whole: tokens, or words."""

  example_n: np.ndarray  # int64, ascending
  first_n: np.ndarray  # int64, index of the unit's first candidate
  size_n: np.ndarray  # int64, candidates in it


def slots(recipe, length: int) -> int:
  """Returns P, the predicted slots per row: mask.max_targets, or ceil(rate * length) where it is 0.

  At rate 0.15 that is 20 for 128 and 77 for 512, the flags of google-research/bert.
  """
  return recipe.mask.max_targets or math.ceil(recipe.mask.rate * length)


def check(recipe, store, length: int) -> None:
  """Checks `recipe.mask`.

  Raises:
    ValueError: an unknown rule, a rate outside (0, 1], shares that are negative or exceed 1
      together, a negative number of slots, no id to draw, or rows that are too long.
  """
  mask = recipe.mask
  choose(mask.rule, RULES, 'config.data.mask.rule')
  if not 0 < mask.rate <= 1:
    raise ValueError(f'config.data.mask.rate must be in (0, 1], got {mask.rate}')
  if min(mask.mask_share, mask.random_share) < 0 or mask.mask_share + mask.random_share > 1:
    raise ValueError(
      'config.data.mask.mask_share and random_share must be >= 0 and at most 1 together, got '
      f'{mask.mask_share} and {mask.random_share}'
    )
  if mask.max_targets < 0:
    raise ValueError(f'config.data.mask.max_targets must be >= 0, got {mask.max_targets}')
  if not 0 <= mask.special_ids < store.vocabulary_size:
    raise ValueError(
      f'config.data.mask.special_ids must be below the {store.vocabulary_size} ids of the '
      f'vocabulary, got {mask.special_ids}'
    )
  if length > MAX_LENGTH:
    raise ValueError(f'masking handles rows of at most {MAX_LENGTH} tokens, got length {length}')


def corrupt(rows: Rows, recipe, store) -> dict[str, np.ndarray]:
  """Masks a batch.

  Args:
    rows: the batch; equal keys and tokens give equal masks, whatever else is in the batch.
    recipe: `config.data`.
    store: for the special ids, the vocabulary size and the word starts.

  Returns:
    token_BT, target_pos_BP, target_BP, weight_BP, masked_BP as `bertjax.types` has them, and
    dropped_B int32, the targets that the rule asked for and the row had no slot for.

  Raises:
    ValueError: more than 2**20 examples in one batch.
  """
  if len(rows.row_E) > MAX_EXAMPLES:
    raise ValueError(f'expected at most {MAX_EXAMPLES} examples per batch, got {len(rows.row_E)}')
  mask, limit = recipe.mask, slots(recipe, rows.shape[1])
  candidate_n = _candidates(rows, mask, store)
  units = _units(rows, mask, store, candidate_n)
  taken_n, dropped_E = _take(rows, recipe, units, _shuffle(rows, units, candidate_n))
  owner_n, offset_n = ragged(units.size_n[taken_n])
  first_n = units.first_n[taken_n][owner_n]
  index_n = candidate_n[first_n + offset_n]
  by_place = np.argsort(index_n)
  index_n, lead_n = index_n[by_place], candidate_n[first_n][by_place]

  token_n = rows.text.token_n.copy()
  # fairseq decides once per word, BERT once per token.
  token_n[index_n], masked_n = _show(
    rows, mask, store, index_n, lead_n if mask.rule == 'roberta' else index_n
  )
  row_n, column_n = np.divmod(rows.cell_n[index_n], rows.shape[1])
  slot_n = np.arange(len(row_n)) - np.searchsorted(row_n, row_n)

  def spread(value_n, dtype):
    out_BP = np.zeros((rows.shape[0], limit), dtype)
    out_BP[row_n, slot_n] = value_n
    return out_BP

  return dict(
    token_BT=place(rows, token_n, store.special['pad']),
    target_pos_BP=spread(column_n, np.int32),
    target_BP=spread(rows.text.token_n[index_n], np.int32),
    weight_BP=spread(1.0, np.float32),
    masked_BP=spread(masked_n, np.float32),
    dropped_B=np.bincount(rows.row_E, dropped_E, rows.shape[0]).astype(np.int32),
  )


def share(asked_E: np.ndarray, row_E: np.ndarray, limit: int) -> np.ndarray:
  """Cuts what the examples of a row ask for down to the row's limit, in proportion.

  Example: limit 77 and eight examples that ask for 10 each give 9 10 9 10 10 9 10 10.

  Args:
    asked_E: int64 >= 0.
    row_E: int64, ascending.
    limit: of the sum over a row.

  Returns:
    int64 [E], at most asked_E; equal to it in rows that keep the limit.
  """
  rows = int(row_E[-1]) + 1 if len(row_E) else 0
  total_E = _count(row_E, asked_E, rows)[row_E]
  until_E = _running(asked_E, row_E, rows)
  scale_E = np.maximum(total_E, 1)
  cut_E = until_E * limit // scale_E - (until_E - asked_E) * limit // scale_E
  return np.where(total_E > limit, cut_E, asked_E)


def _running(value_n, group_n, groups):
  """Returns the running sum of the values within each group (ascending), own value included."""
  total_g = _count(group_n, value_n, groups)
  return np.cumsum(value_n) - (np.cumsum(total_g) - total_g)[group_n]


def _candidates(rows, mask, store):
  if mask.rule == 'roberta':
    return np.arange(len(rows.text.token_n))
  token_n = rows.text.token_n
  special_n = (token_n == store.special['cls']) | (token_n == store.special['sep'])
  return np.flatnonzero(~special_n)


def _units(rows, mask, store, candidate_n) -> _Units:
  example_n = rows.example_n[candidate_n]
  if not mask.whole_word:
    return _Units(example_n, np.arange(len(candidate_n)), np.ones(len(candidate_n), np.int64))
  # A continuation joins the candidate before it, even across a [SEP], as in
  # create_pretraining_data.py.
  starts_n = store.word_starts[rows.text.token_n[candidate_n]]
  starts_n[:1] = True
  starts_n[1:] |= example_n[1:] != example_n[:-1]
  first_n = np.flatnonzero(starts_n)
  return _Units(example_n[first_n], first_n, np.diff(np.append(first_n, len(candidate_n))))


def _shuffle(rows, units, candidate_n):
  """Returns the units in random order within each example, examples in order."""
  lead_n = candidate_n[units.first_n]
  position_n = rows.position_n[lead_n].astype(np.uint64)
  site_E = draws.fold(rows.key_E, _SELECT)
  bits_n = draws.fold(site_E[units.example_n], position_n) >> np.uint64(36) << np.uint64(16)
  key_n = units.example_n.astype(np.uint64) << np.uint64(44) | bits_n | position_n
  # Sorting the keys themselves is faster than argsort; the position leads back to the unit.
  sorted_n = np.sort(key_n)
  example_n = (sorted_n >> np.uint64(44)).astype(np.int64)
  token_n = starts(rows.text.length_E)[example_n] + (sorted_n & np.uint64(MAX_LENGTH - 1)).astype(
    np.int64
  )
  unit_of_n = np.empty(len(rows.text.token_n), np.int64)
  unit_of_n[lead_n] = np.arange(len(lead_n))
  return unit_of_n[token_n]


def _take(rows, recipe, units, order_n):
  """Returns the chosen units, and how many targets of each example the row had no slot for."""
  mask, examples = recipe.mask, len(rows.row_E)
  if mask.rule == 'bert':
    asked_E = np.maximum(np.rint(mask.rate * rows.text.length_E).astype(np.int64), 1)
    asked_E = np.minimum(asked_E, _count(units.example_n, units.size_n, examples))
  else:
    units_E = _count(units.example_n, 1, examples)
    u_E = draws.uniform(draws.fold(draws.fold(rows.key_E, _COUNT), 0))
    number_E = np.floor(mask.rate * units_E + u_E)
    rank_n = _running(np.ones_like(order_n), units.example_n, examples)
    order_n = order_n[rank_n <= number_E[units.example_n]]
    asked_E = _count(units.example_n[order_n], units.size_n[order_n], examples)
  room_E = share(asked_E, rows.row_E, slots(recipe, rows.shape[1]))
  chosen_n = _fit(units.example_n[order_n], units.size_n[order_n], room_E)
  return order_n[chosen_n], asked_E - room_E


def _fit(example_n, size_n, room_E):
  """Returns the indices of the units taken: in order, skipping what exceeds its example's room."""
  room_E, open_n, chosen = room_E.copy(), np.arange(len(example_n)), []
  while open_n.size:
    open_example_n, open_size_n = example_n[open_n], size_n[open_n]
    until_n = _running(open_size_n, open_example_n, len(room_E))
    fits_n = until_n <= room_E[open_example_n]
    chosen.append(open_n[fits_n])
    room_E -= _count(open_example_n[fits_n], open_size_n[fits_n], len(room_E))
    # What is too big now stays too big: the room only shrinks.
    open_n = open_n[~fits_n & (open_size_n <= room_E[open_example_n])]
  return np.concatenate(chosen) if chosen else open_n


def _count(group_n, value_n, groups):
  """Returns the sum of the values in each group, int64."""
  weight_n = np.broadcast_to(value_n, group_n.shape)
  return np.bincount(group_n, weight_n, groups).astype(np.int64)


def _show(rows, mask, store, index_n, decide_n):
  """Returns the ids that the input shows at the chosen tokens, and where they are [MASK]."""

  def bits(site, at_n):
    site_E = draws.fold(rows.key_E, site)
    return draws.fold(site_E[rows.example_n[at_n]], rows.position_n[at_n])

  u_n = draws.uniform(bits(_SHOW, decide_n))
  masked_n = u_n < mask.mask_share
  random_n = ~masked_n & (u_n < mask.mask_share + mask.random_share)
  choices = store.vocabulary_size - mask.special_ids
  random_id_n = mask.special_ids + draws.below(bits(_ID, index_n), choices)
  kept_n = np.where(random_n, random_id_n, rows.text.token_n[index_n])
  return np.where(masked_n, store.special['mask'], kept_n), masked_n
