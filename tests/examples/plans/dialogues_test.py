"""ERNIE 1.0's dialogues: turns, roles, replies of other dialogues."""

import numpy as np
from mutation import mutation
from toy_store import DIALOGUES, ernie

from bertjax.examples import examples as examples_lib


def dialogue_batch(store, length=96, **changes):
  config = ernie(DIALOGUES, mask__mask_share=0.0, mask__random_share=0.0, **changes)
  examples = examples_lib.examples_in_memory(store, config, length, 3)
  return examples, examples.batch(np.arange(examples.rows), shuffle=False)


def test_dialogues_are_turns_with_roles(ernie_store):
  examples, batch = dialogue_batch(ernie_store, length=400, plan__fake_prob=0.0)
  assert not batch['fake_BG'].any() and not batch['type_BT'].any()
  sentences = np.split(ernie_store.parts[0], ernie_store.sentences[1:-1])
  expected = []
  for a, b in zip(ernie_store.documents[:-1], ernie_store.documents[1:], strict=True):
    for first in range(a, b, 3):
      if min(first + 3, b) - first > 1:
        turns = range(first, min(first + 3, b))
        tokens, roles = [2], [ernie_store.column('role')[first]]
        for t in turns:
          tokens += [*sentences[t], 3]
          roles += [ernie_store.column('role')[t]] * (len(sentences[t]) + 1)
        expected.append((tokens, roles))
  assert examples.rows == len(expected)
  for row, (tokens, roles) in enumerate(expected):
    n = len(tokens)
    assert batch['token_BT'][row, :n].tolist() == tokens
    assert batch['role_BT'][row, :n].tolist() == roles
    assert not batch['example_BT'][row, n:].any() and batch['example_BT'][row, :n].all()


@mutation('good_n = same_role_n & (', 'good_n = (same_role_n | True) & (')
@mutation('| (other_n >= high_n[open_n])', '| (other_n >= low_n[open_n])')
def test_replies_of_other_dialogues_keep_the_role(ernie_store):
  real_ones, whole = dialogue_batch(ernie_store, length=400, plan__fake_prob=0.0)
  examples, batch = dialogue_batch(ernie_store, length=400)
  fake = batch['fake_BG'][:, 0] == 1
  assert abs(fake.mean() - 0.5) < 4 * np.sqrt(0.25 / len(fake))
  np.testing.assert_array_equal(batch['token_BT'][~fake], whole['token_BT'][~fake])
  document = lambda turn_start: np.searchsorted(
    ernie_store.sentences[ernie_store.documents], turn_start, 'right'
  )
  column, original = examples.column, real_ones.column
  changed = np.stack([column[f'start_{k}'] != original[f'start_{k}'] for k in range(3)], 1)
  changed &= np.arange(3) < column['turns'][:, None]
  np.testing.assert_array_equal(changed.sum(1), fake)
  assert not changed[:, 0].any() and changed[:, 1].any() and changed[:, 2].any()
  row, k = np.nonzero(changed)
  start = np.stack([column[f'start_{k}'] for k in range(3)], 1)[row, k]
  assert (document(start) != document(column['start_0'][row])).all()
  role_of = lambda s: ernie_store.column('role')[
    np.searchsorted(ernie_store.sentences, s, 'right') - 1
  ]
  np.testing.assert_array_equal(role_of(start), ernie_store.column('role')[column['turn'][row] + k])
