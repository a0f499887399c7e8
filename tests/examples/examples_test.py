"""Plans on disk, names, epochs and shuffles."""

import dataclasses

import every_plan
import numpy as np
import pytest
from masking import unchanged
from mutation import mutation
from toy_store import on_disk, random_store, recipe

from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes
from bertjax.machine.mirror import Workdir
from bertjax.metrics.progress import Progress
from bertjax.train import opening
from configs import bert


@mutation('for file in own if file]', 'for file in ()]')
def test_what_a_plan_follows_from_makes_another_one(tmp_path, monkeypatch):
  store = on_disk(tmp_path / 'store')
  expected = examples_lib.examples_in_memory(store, recipe(), 64, 0).stats
  for _ in range(2):  # built, then opened
    assert examples_lib.make_examples(store, recipe(), 64, 0).stats == expected
  examples_lib.make_examples(store, recipe(mask__rate=0.3), 64, 0)  # masks are not part of the plan
  count = lambda: len(list((tmp_path / 'store' / 'plans').iterdir()))
  assert count() == 1
  examples_lib.make_examples(store, recipe(plan__dupe_factor=1), 64, 0)
  examples_lib.make_examples(store, recipe(), 32, 0)
  examples_lib.make_examples(store, recipe(), 64, 1)
  assert count() == 4
  other = dataclasses.replace(store, meta=dict(store.meta, name='other'))
  examples_lib.make_examples(other, recipe(), 64, 0)
  assert count() == 5
  folder = tmp_path / 'theirs'
  folder.mkdir()
  monkeypatch.syspath_prepend(tmp_path)
  for number, line in enumerate(('', '# changed under its name\n'), 6):
    (folder / 'plan.py').write_text(f'{line}from bertjax.examples.plans.pairs import PLAN\n')
    for _ in range(2):
      examples_lib.make_examples(store, recipe(plan__name='theirs.plan'), 64, 0)
    assert count() == number


@mutation('  if data.vocab:\n', '  if False:\n')
@mutation('      readers.of(phase.config.data).check(phase.config)\n', '      pass\n')
def test_a_vocabulary_that_will_not_do_costs_no_work(tmp_path):
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n')
  (tmp_path / 'a.txt').write_text('a a a\n')
  c = bert.get_config('test')
  c.data.input, c.data.vocab = f'{tmp_path}/a.txt', f'{tmp_path}/vocab.txt'
  place = Workdir(str(tmp_path / 'run'))
  with pytest.raises(ValueError, match="in phase 'phase1': .*vocab.txt has no mask: expected one"):
    opening.open_run(c, place, Progress(1))
  assert not (tmp_path / 'run' / 'store').exists()


@pytest.mark.parametrize('config', [recipe(), recipe(pack=8)])
def test_every_epoch_holds_every_row_once_in_another_order(config):
  examples = examples_lib.examples_in_memory(random_store(), unchanged(config), 64, 0)
  rows = examples.rows
  in_order = examples.batch(np.arange(rows), shuffle=False)['token_BT']
  epochs = [
    examples.batch(np.arange(rows) + rows * epoch, shuffle=True)['token_BT'] for epoch in (0, 1, 5)
  ]
  as_set = lambda token_BT: sorted(row.tobytes() for row in token_BT)
  assert all(as_set(epoch) == as_set(in_order) for epoch in epochs)
  assert (epochs[0] != epochs[1]).any() and (epochs[1] != epochs[2]).any()
  across = examples.batch(np.arange(rows - 3, rows + 3), shuffle=True)['token_BT']
  np.testing.assert_array_equal(across, np.concatenate([epochs[0][-3:], epochs[1][:3]]))


@pytest.mark.parametrize('static', [True, False])
@mutation('if static else epoch_n[row_E]', 'if True else epoch_n[row_E]')
def test_masks_repeat_each_epoch_only_where_static(static):
  examples = examples_lib.examples_in_memory(random_store(), recipe(mask__static=static), 64, 0)
  row_n = np.arange(60)
  one, again, other = (examples.batch(row_n + k * examples.rows, shuffle=False) for k in (0, 0, 1))
  assert all((one[k] == again[k]).all() for k in one)
  same = (one['target_pos_BP'] == other['target_pos_BP']).all(1)
  assert same.all() if static else same.mean() < 0.1
  np.testing.assert_array_equal(one['example_BT'], other['example_BT'])


def with_tables(store, plan, tables, pack=1):
  """A batch of a plan that shows columns of the store."""
  config = recipe(every_plan.MORE_PLANS[plan], recipes.CAUSAL_MASK, pack=pack)
  return examples_lib.make_examples(
    store, config, every_plan.LENGTH, 0, rows=every_plan.ROWS, tables=tables
  ).batch(np.arange(2 * every_plan.ROWS), shuffle=True)


@pytest.mark.parametrize('plan', every_plan.MORE_PLANS)
@mutation('for name in self.tables if name not in rows.ranges.table', 'for name in ()')
@mutation('for name in self.tables if name not in rows.ranges.table', 'for name in self.tables')
@mutation('- 1, np.repeat(before_E, length_E)', '- plain_n, np.repeat(before_E, length_E)')
@mutation('np.repeat(sentence_n, size_n)', 'np.repeat(first_r, length_r)')
def test_a_table_reads_the_column_of_the_store_where_the_plan_gives_none(any_text, plan):
  for pack in (1, 3) if not plan.startswith('columns') and plan[-8:] != '_columns' else (1,):
    plain = with_tables(any_text, plan, (), pack)
    batch = with_tables(any_text, plan, ('language', 'role'), pack)
    own = {'language_BT', 'role_BT'} & set(plain)
    assert set(batch) - set(plain) == {'language_BT', 'role_BT'} - own
    for name, value in plain.items():
      np.testing.assert_array_equal(batch[name], value, err_msg=name)
    text_BT, real_BT = batch['token_BT'] >= 5, batch['example_BT'] > 0  # ids of text count from 5
    sentence_n = np.searchsorted(any_text.sentences, batch['token_BT'][text_BT] - 5, 'right') - 1
    for name in ('language', 'role'):
      value_BT = batch[f'{name}_BT']
      assert value_BT.dtype == np.int32 and not value_BT[~real_BT].any()
      np.testing.assert_array_equal(value_BT[text_BT], any_text.column(name)[sentence_n])
    # A special token is read with the one before it in its example, the first with the next one.
    later_BT = ~text_BT[:, 1:] & (batch['position_BT'][:, 1:] > 0) & real_BT[:, 1:]
    same_BT = batch['role_BT'][:, 1:] == batch['role_BT'][:, :-1]
    assert same_BT[later_BT & (np.diff(batch['example_BT'], axis=1) == 0)].all()
    begins_BT = np.diff(batch['example_BT'], axis=1, prepend=0)[:, :-1] > 0
    assert same_BT[begins_BT & ~text_BT[:, :-1]].all()


def test_a_table_that_the_store_lacks_is_refused(tmp_path):
  store = every_plan.without_columns(tmp_path / 'store')
  config = recipe(recipes.ROBERTA_PLAN)
  for name in ('language', 'role'):
    with pytest.raises(ValueError, match=f"no column '{name}', only none"):
      examples_lib.make_examples(store, config, 64, 0, tables=(name,))
  assert not (tmp_path / 'store' / 'plans').exists()
