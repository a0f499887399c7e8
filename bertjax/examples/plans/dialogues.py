"""ERNIE 1.0's dialogues: [CLS] turn [SEP] turn [SEP] .., with who speaks in place of the segment.

Sun et al. 2019 (arXiv 1904.09223), section 3.3: sequences of several turns of queries and replies,
whose roles are embedded; some get a random reply, and the model also says whether a sequence is
real. The authors released no code, so what the paper leaves open is ours:

  A document of the store is a dialogue, a sentence a turn, and the column `role` says who speaks.
  A dialogue is cut into `turns` turns (the paper's QRQ, QRR, QQR have 3); what is left
  over counts if it is two turns or more. With probability fake_prob one turn, not the first, is
  replaced by a turn of another dialogue with the same role: label fake, 1. Of a sequence that is
  too long every turn loses what it has beyond an equal share of the length, at its end.
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import layout
from bertjax.field_types import Bounds, Share

WINDOW = 1 << 19  # turns whose offsets are held at once, unless a dialogue has more
DRAWS = 50  # of a turn of another dialogue with the same role; none found: the sequence stays real
_COIN, _WHICH, _TURN = range(3)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    turns: of a sequence (ERNIE paper, section 3.3: QRQ, QRR, QQR).
    fake_prob: chance of a sequence to get a turn of another dialogue; the default is ours.
  """

  turns: Annotated[int, Bounds(2)] = 3
  fake_prob: Share = 0.5


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan of whole dialogues; see `Plan.build`.

  Columns: turn int64 (the first one), turns int8, start_K int64 and size_K int32 of turn K (0 where
  there is none), fake int8, length. Counts fakes, truncated_tokens and lone_turns. Raises
  UserError: a store without roles or with one dialogue.
  """
  if len(store.documents) < 3 and spec.options.fake_prob:
    raise UserError(
      f'random replies need another dialogue: expected at least 2 documents in {store.path}, got '
      f'{len(store.documents) - 1}'
    )
  return (_window(store, spec, part) for part in layout.windows(store.documents, window))


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some examples' turns; role_BT is the role of each turn."""
  column = chosen.column
  turns_E = column['turns'].astype(np.int64)
  slots = sum(name.startswith('start_') for name in column)
  stacked = lambda name: np.stack([column[f'{name}_{k}'] for k in range(slots)], 1).astype(np.int64)
  used_EK = np.arange(slots) < turns_E[:, None]
  start_n, size_n = stacked('start')[used_EK], stacked('size')[used_EK]
  role_n = store.column('role')[(column['turn'][:, None] + np.arange(slots))[used_EK]]
  # [CLS] goes with the first turn, each [SEP] with its own.
  first_n = np.zeros(len(size_n), np.int64)
  first_n[layout.starts(turns_E)] = 1
  cls, sep = store.special['cls'], store.special['sep']
  turns = layout.joined((cls, first_n), (layout.TEXT, size_n), (sep, 1))
  found = Ranges(
    start_r=start_n,
    length_r=size_n,
    label=dict(fake=column['fake'].astype(np.int32)),
    table=dict(role=np.repeat(role_n, turns['length_E']).astype(np.int32)),
    **turns,
  )
  return found._replace(length_E=column['length'].astype(np.int64))  # of turns together


def _window(store, spec, between):
  slots = spec.options.turns
  bound = np.asarray(store.documents[between[0] : between[1] + 1])
  size_D = np.diff(bound)
  document_n, number_n = layout.ragged(-(-size_D // slots))
  first_n = bound[:-1][document_n] + number_n * slots
  turns_n = np.minimum(slots, bound[1:][document_n] - first_n)
  several_n = turns_n > 1
  document_n, first_n, turns_n = (v[several_n] for v in (document_n, first_n, turns_n))
  turn_nK = np.minimum(first_n[:, None] + np.arange(slots), bound[-1] - 1)
  fake_n = _replace(store, spec, (first_n, turns_n, document_n + between[0]), turn_nK)
  size_nK = store.sentences[turn_nK + 1] - store.sentences[turn_nK]
  size_nK[np.arange(slots) >= turns_n[:, None]] = 0
  room_n = spec.length - 1 - turns_n
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


def _replace(store, spec, examples, turn_nK):
  """Puts turns of other dialogues into some examples, in place; returns which, bool."""
  first_n, turns_n, document_n = examples
  key_n = counter_rng.fold(counter_rng.root(spec.seed, 'dialogues'), first_n)
  at_n = 1 + counter_rng.below(counter_rng.fold(key_n, _WHICH), turns_n - 1)
  role_S = store.column('role')
  low_n, high_n = store.documents[document_n], store.documents[document_n + 1]
  open_n = np.flatnonzero(
    counter_rng.uniform(counter_rng.fold(key_n, _COIN)) < spec.options.fake_prob
  )
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


PLAN = Plan(
  Options,
  ('cls', 'sep'),
  build,
  ranges,
  least=lambda options: 1 + 2 * options.turns,
  columns=('role',),
)
