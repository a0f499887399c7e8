"""The page on what to mask: arms that differ in their masks alone, its table, its errors."""

import json

import jax
import numpy as np
import pytest
from mutation import mutation

from bertjax.data.store.writer import write_store
from bertjax.evals.held_out import rows
from bertjax.studies import compare_masks
from bertjax.train import setup
from configs import bert, spanbert

mutation(
  'masks: arms are judged on their own masks',
  'bertjax/studies/compare_masks.py',
  'config.evals.held_out.data = dict(mask=asked)',
  'config.evals.held_out.data = dict()',
)
mutation(
  'masks: the gap is between seeds',
  'bertjax/studies/compare_masks.py',
  'zip(values, last[first], strict=True)',
  'zip(values, sorted(last[first]), strict=True)',
)

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCABULARY = dict(type='wordpiece', size=50, sha256='0' * 64, special=SPECIAL)


def given():
  c = spanbert.get_config('test')
  c.batch_size, c.length, c.total_steps, c.eval_steps, c.evals.held_out.batch_size = 8, 32, 2, 1, 8
  c.evals.pseudo_perplexity.rows = 0
  return c.lock()


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  path = tmp_path_factory.mktemp('masks') / 'store'
  for part, documents in ((path, 40), (path / 'heldout', 10)):
    text = [[rng.integers(5, 50, 9).tolist() for _ in range(6)] for _ in range(documents)]
    units = [[rng.integers(0, 3, 9).tolist() for _ in range(6)] for _ in range(documents)]
    write_store(part, text, VOCABULARY, units=units)
  return path


def test_arms_share_text_and_judgement(store):
  first = None
  for name in compare_masks.ARMS:
    config = compare_masks.arm_config(given(), compare_masks.ARMS[name], seed=3)
    phase = setup.make_run(config, store, jax.devices()[:1]).phases[0]
    batch = phase.examples.batch(np.arange(8), shuffle=True)
    text = np.array(batch['token_BT'])
    np.put_along_axis(text, batch['target_pos_BP'], batch['target_BP'], 1)
    text[:, 0] = SPECIAL['cls']  # unused slots point there
    options = rows.options_of(phase.subject, 'held_out', 'set')
    judged = rows.hold_out(phase.subject, options).rows.batch(np.arange(8), shuffle=False)
    first = first or (text, judged)
    np.testing.assert_array_equal(text, first[0])
    jax.tree.map(np.testing.assert_array_equal, judged, first[1])
    assert (judged['masked_BP'] == judged['weight_BP']).all() and judged['pair_weight_BP'].any()


@pytest.mark.full
def test_the_boundary_head_changes_no_other_initial_weight(store):
  def weights(name):
    config = compare_masks.arm_config(given(), compare_masks.ARMS[name], seed=3)
    phase = setup.make_run(config, store, jax.devices()[:1]).phases[0]
    return jax.jit(lambda: phase.initial_variables(3)['params'])()

  both = weights('boundary')
  del both['boundary']
  jax.tree.map(np.testing.assert_array_equal, both, weights('spans'))


def fake_run(workdir, name, values):
  (workdir / name).mkdir(parents=True)
  rows = [
    {'step': step, compare_masks.METRIC: value, compare_masks.UNIGRAM: 7.25}
    for step, value in values.items()
  ]
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  (workdir / name / 'metrics.jsonl').write_text(text)


def test_the_table_has_means_ranges_and_gaps_within_a_seed(tmp_path):
  for name, shift in (('tokens', 0.0), ('spans', -0.5)):
    fake_run(tmp_path, f'{name}-0', {1: 6.0, 2: 5.0 + shift})
    fake_run(tmp_path, f'{name}-1', {1: 6.0, 2: 3.0 + 1.5 * shift})
  found = compare_masks.losses(tmp_path, ['tokens', 'spans'], 2)
  lines = compare_masks.table(found)
  assert lines[2] == '| random tokens | 4.0000 | 3.0000 | 5.0000 |  |  |  | 83.8 |'
  gap = '| -0.6250 | -0.7500 | -0.5000 |'
  assert lines[3] == f'| random spans | 3.3750 | 2.2500 | 4.5000 {gap} 85.4 |'
  compare_masks.plot(found, 7.25, tmp_path / 'masking.png')
  assert (tmp_path / 'masking.png').stat().st_size > 10_000
  page = compare_masks.page(given(), found, compare_masks.unigram(tmp_path, 'tokens'), 'x.png')
  assert '7.2500' in page and '2 seeds' in page and lines[3] in page


@pytest.mark.parametrize(
  'config,arms,message',
  [
    (given(), ['span'], "did you mean 'spans'"),
    (bert.get_config('test'), ['spans'], 'must be of configs/spanbert.py'),
  ],
)
def test_mistakes_are_refused(config, arms, message, tmp_path):
  with pytest.raises(ValueError, match=message):
    compare_masks.train_arms(config, tmp_path / 'runs', arms, 1)
  assert not (tmp_path / 'runs').exists()


def test_entities_need_a_store_with_units(tmp_path):
  write_store(tmp_path / 'store', [[[5, 6, 7]]], VOCABULARY)
  config = given().copy_and_resolve_references()
  config.data.store = str(tmp_path / 'store')
  with pytest.raises(ValueError, match='has no units'):
    compare_masks.train_arms(config, tmp_path / 'runs', ['tokens', 'entities'], 1)
  assert not list((tmp_path / 'runs').iterdir())


@pytest.mark.full
def test_arms_are_trained_once(store, tmp_path):
  config = given().copy_and_resolve_references()
  config.data.store = str(store)
  compare_masks.train_arms(config, tmp_path, ['tokens', 'boundary'], 1)
  stamp = [f.stat().st_mtime_ns for f in sorted(tmp_path.glob('*/metrics.jsonl'))]
  compare_masks.train_arms(config, tmp_path, ['tokens', 'boundary'], 1)
  assert stamp == [f.stat().st_mtime_ns for f in sorted(tmp_path.glob('*/metrics.jsonl'))]
  assert len(compare_masks.losses(tmp_path, ['tokens', 'boundary'], 1)['tokens'][0]) == 2
