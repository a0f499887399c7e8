"""ERNIE 1.0's dialogues: [CLS] turn [SEP] turn [SEP] .., with who speaks in place of the segment.

Sun et al. 2019 (arXiv 1904.09223), section 3.3: sequences of several turns of queries and replies,
whose roles are embedded; some get a random reply, and the model also says whether a sequence is
real. The authors released no code, so what the paper leaves open is ours:

  A document of the store is a dialogue, a sentence a turn, and the column `role` says who speaks.
  A dialogue is cut into `config.data.turns` turns (the paper's QRQ, QRR, QQR have 3); what is left
  over counts if it is two turns or more. With probability fake_prob one turn, not the first, is
  replaced by a turn of another dialogue with the same role: label fake, 1. Of a sequence that is
  too long every turn loses what it has beyond an equal share of the length, at its end.
"""

from collections.abc import Iterator

import numpy as np

from bertjax.data import counter_rng, layout
from bertjax.errors import UserError

SPECIAL = ('cls', 'sep')
OPTIONS = ('turns', 'fake_prob')
WINDOW = 1 << 19  # turns whose offsets are held at once, unless a dialogue has more
DRAWS = 50  # of a turn of another dialogue with the same role; none found: the sequence stays real
_COIN, _WHICH, _TURN = range(3)


def build(store, recipe, length: int, seed: int, window: int = WINDOW) -> Iterator[tuple]:
  """Makes the plan in pieces of whole dialogues.

  Args:
    store: the token store; its offsets and the column `role` are read.
    recipe: `config.data`, with turns and fake_prob.
    length: tokens per example, special tokens included.
    seed: of all draws.
    window: turns per piece; changes the pieces, not the plan.

  Returns:
    An iterator of (columns, counts): columns turn int64 (the first one), turns int8, start_K int64
    and size_K int32 of turn K (0 where there is none), fake int8, length int32; counts of fakes,
    truncated_tokens and lone_turns.

  Raises:
    UserError: a store without roles or with one dialogue, fewer than two turns, a probability
      outside [0, 1], or a length that leaves a turn no token.
  """
  store.column('role')
  turns = recipe.turns
  if turns < 2 or not 0 <= recipe.fake_prob <= 1:
    raise UserError(
      'expected config.data.turns >= 2 and fake_prob from 0 to 1, got '
      f'{turns} and {recipe.fake_prob}'
    )
  if length < 1 + 2 * turns:
    raise UserError(f'{turns} turns need length >= {1 + 2 * turns}, got {length}')
  if len(store.documents) < 3 and recipe.fake_prob:
    raise UserError(
      f'random replies need another dialogue: expected at least 2 documents in {store.path}, got '
      f'{len(store.documents) - 1}'
    )
  return _pieces(store, recipe, length, seed, window)


def assemble(store, column: dict[str, np.ndarray]) -> layout.Text:
  """Makes the given examples (columns as `build` yields them); role_BT is that of each turn."""
  turns_E, length_E = column['turns'].astype(np.int64), column['length'].astype(np.int64)
  slots = sum(name.startswith('start_') for name in column)
  stacked = lambda name: np.stack([column[f'{name}_{k}'] for k in range(slots)], 1).astype(np.int64)
  used_EK = np.arange(slots) < turns_E[:, None]
  start_n, size_n = stacked('start')[used_EK], stacked('size')[used_EK]
  role_n = store.column('role')[(column['turn'][:, None] + np.arange(slots))[used_EK]]
  # [CLS] goes with the first turn, each [SEP] with its own.
  first_n = np.zeros(len(size_n), np.int64)
  first_n[layout.starts(turns_E)] = 1
  whole_n = first_n + size_n + 1
  sep_n = np.cumsum(whole_n) - 1
  special_n = np.concatenate([layout.starts(length_E), sep_n])
  ids = np.repeat([store.special['cls'], store.special['sep']], [len(length_E), len(sep_n)])
  total = int(length_E.sum())
  return layout.Text(
    token_n=layout.fill(total, special_n, ids, store.gather(start_n, size_n)),
    type_n=np.zeros(total, np.int32),
    length_E=length_E,
    label=dict(fake=column['fake'].astype(np.int32)),
    extra=dict(role=np.repeat(role_n, whole_n).astype(np.int32)),
    source=layout.Source(start_n, size_n, special_n),
  )


def _pieces(store, recipe, length, seed, window):
  documents, low = store.documents, 0
  while low < len(documents) - 1:
    full = np.searchsorted(documents, documents[low] + window, 'right') - 1
    high = max(int(full), low + 1)
    yield _window(store, recipe, length, seed, (low, high))
    low = high


def _window(store, recipe, length, seed, between):
  slots = recipe.turns
  bound = np.asarray(store.documents[between[0] : between[1] + 1])
  size_D = np.diff(bound)
  document_n, number_n = layout.ragged(-(-size_D // slots))
  first_n = bound[:-1][document_n] + number_n * slots
  turns_n = np.minimum(slots, bound[1:][document_n] - first_n)
  several_n = turns_n > 1
  document_n, first_n, turns_n = (v[several_n] for v in (document_n, first_n, turns_n))
  turn_nK = np.minimum(first_n[:, None] + np.arange(slots), bound[-1] - 1)
  fake_n = _replace(store, recipe, seed, (first_n, turns_n, document_n + between[0]), turn_nK)
  size_nK = store.sentences[turn_nK + 1] - store.sentences[turn_nK]
  size_nK[np.arange(slots) >= turns_n[:, None]] = 0
  room_n = length - 1 - turns_n
  long_n = size_nK.sum(1) > room_n
  cut_nK = np.where(long_n[:, None], np.minimum(size_nK, (room_n // turns_n)[:, None]), size_nK)
  column = dict(turn=first_n, turns=turns_n.astype(np.int8), fake=fake_n.astype(np.int8))
  for k in range(slots):
    column[f'start_{k}'] = store.sentences[turn_nK[:, k]]
    column[f'size_{k}'] = cut_nK[:, k].astype(np.int32)
  column['length'] = (cut_nK.sum(1) + 1 + turns_n).astype(np.int32)
  return column, dict(
    fakes=int(fake_n.sum()),
    truncated_tokens=int(size_nK.sum() - cut_nK.sum()),
    lone_turns=int((~several_n).sum()),
  )


def _replace(store, recipe, seed, examples, turn_nK):
  """Puts turns of other dialogues into some examples, in place; returns which, bool."""
  first_n, turns_n, document_n = examples
  key_n = counter_rng.fold(counter_rng.root(seed, 'dialogues'), first_n)
  at_n = 1 + counter_rng.below(counter_rng.fold(key_n, _WHICH), turns_n - 1)
  role_S = store.column('role')
  low_n, high_n = store.documents[document_n], store.documents[document_n + 1]
  open_n = np.flatnonzero(counter_rng.uniform(counter_rng.fold(key_n, _COIN)) < recipe.fake_prob)
  fake_n, site_n = np.zeros(len(first_n), bool), counter_rng.fold(key_n, _TURN)
  for attempt in range(DRAWS):
    other_n = counter_rng.below(counter_rng.fold(site_n[open_n], attempt), len(store.sentences) - 1)
    same_role_n = role_S[other_n] == role_S[first_n[open_n] + at_n[open_n]]
    good_n = same_role_n & ((other_n < low_n[open_n]) | (other_n >= high_n[open_n]))
    found_n = open_n[good_n]
    turn_nK[found_n, at_n[found_n]] = other_n[good_n]
    fake_n[found_n] = True
    open_n = open_n[~good_n]
    if not open_n.size:
      break
  return fake_n
