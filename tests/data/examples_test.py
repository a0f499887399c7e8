"""Plans on disk, names, epochs and shuffles."""

import dataclasses
import json
import os
import pathlib
import tempfile

import numpy as np
import pytest
from mutation import mutation
from toy_store import SPECIAL, VOCABULARY, random_store, recipe, roberta

from bertjax.data import examples as examples_lib
from bertjax.data.store import npy_files
from bertjax.data.store.reader import open_store
from bertjax.data.store.writer import write_store

mutation(
  'masking: dynamic masks are static',
  'bertjax/data/examples.py',
  'if self.recipe.mask.static else epoch_n[row_E]',
  'if True else epoch_n[row_E]',
)


def on_disk(path, special=None, **kwargs):
  """A random store, written and opened."""
  memory = random_store(**kwargs)
  bounds, s = memory.documents, memory.sentences
  documents = [
    [memory.tokens[s[i] : s[i + 1]] for i in range(bounds[d], bounds[d + 1])]
    for d in range(len(bounds) - 1)
  ]
  vocabulary = dict(type='test', size=VOCABULARY, sha256='', special=special or SPECIAL)
  write_store(path, documents, vocabulary, memory.word_starts)
  return open_store(path)


@pytest.mark.parametrize('config', [recipe(), recipe(pack=True), roberta()])
def test_a_cached_plan_equals_the_one_in_memory(tmp_path, config):
  store = on_disk(tmp_path / 'store')
  expected = examples_lib.examples_in_memory(store, config, 64, 3)
  for _ in range(2):  # built, then opened
    examples = examples_lib.make_examples(store, config, 64, 3)
    assert examples.stats == expected.stats
    one, two = (e.batch(np.arange(50), shuffle=True) for e in (examples, expected))
    assert set(one) == set(two) and all((one[k] == two[k]).all() for k in one)
  assert len(list((tmp_path / 'store' / 'plans').iterdir())) == 1
  for name in ('row_start', 'row_example') if config.pack else ():
    np.testing.assert_array_equal(getattr(examples, name), getattr(expected, name))


def test_the_offsets_alone_make_a_plan(tmp_path):
  store = on_disk(tmp_path / 'store')
  for part in tmp_path.glob('store/tokens-*.npy'):
    part.unlink()
  assert examples_lib.make_examples(store, recipe(), 64, 0).rows > 0


def test_what_a_plan_follows_from_makes_another_one(tmp_path):
  store = on_disk(tmp_path / 'store')
  examples_lib.make_examples(store, recipe(), 64, 0)
  examples_lib.make_examples(store, recipe(mask__rate=0.3), 64, 0)  # masks are not part of the plan
  count = lambda: len(list((tmp_path / 'store' / 'plans').iterdir()))
  assert count() == 1
  examples_lib.make_examples(store, recipe(dupe_factor=1), 64, 0)
  examples_lib.make_examples(store, recipe(), 32, 0)
  examples_lib.make_examples(store, recipe(), 64, 1)
  assert count() == 4
  other = dataclasses.replace(store, meta=dict(store.meta, name='other'))
  examples_lib.make_examples(other, recipe(), 64, 0)
  assert count() == 5


def test_a_damaged_plan_is_built_again(tmp_path, caplog):
  store = on_disk(tmp_path / 'store')
  before = np.array(examples_lib.make_examples(store, recipe(), 64, 0).column['length'])
  [directory] = (tmp_path / 'store' / 'plans').iterdir()
  with open(directory / 'length.npy', 'r+b') as file:
    file.truncate(200)
  after = examples_lib.make_examples(store, recipe(), 64, 0)
  np.testing.assert_array_equal(before, after.column['length'])
  assert 'damaged' in caplog.text
  (directory / 'a_start.npy').unlink()
  examples_lib.make_examples(store, recipe(), 64, 0)
  (directory / 'record.json').write_text('')
  np.testing.assert_array_equal(
    before, examples_lib.make_examples(store, recipe(), 64, 0).column['length']
  )


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
  store = on_disk(tmp_path / 'store')

  def full(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(npy_files, 'write_columns', full)
  with pytest.raises(OSError, match='No space left'):
    examples_lib.make_examples(store, recipe(), 64, 0)
  assert list((tmp_path / 'store' / 'plans').iterdir()) == []


def test_two_processes_may_build_the_same_plan(tmp_path, monkeypatch):
  store, rename = on_disk(tmp_path / 'store'), os.rename

  def beaten(source, target):
    if not pathlib.Path(target).exists():
      monkeypatch.setattr(os, 'rename', rename)
      examples_lib.make_examples(store, recipe(), 64, 0)
    rename(source, target)

  monkeypatch.setattr(os, 'rename', beaten)
  assert examples_lib.make_examples(store, recipe(), 64, 0).rows > 0
  assert len(list((tmp_path / 'store' / 'plans').iterdir())) == 1


def test_a_read_only_store_takes_the_cache_directory(tmp_path, monkeypatch):
  store, make = on_disk(tmp_path / 'store'), tempfile.mkdtemp

  def refuse(prefix, dir):
    if str(dir).startswith(str(tmp_path / 'store')):
      raise PermissionError(13, 'Permission denied')
    return make(prefix=prefix, dir=dir)

  monkeypatch.setattr(tempfile, 'mkdtemp', refuse)
  with pytest.raises(ValueError, match='cannot be written: make the store writable'):
    examples_lib.make_examples(store, recipe(), 64, 0)
  cache = tmp_path / 'cache'
  assert examples_lib.make_examples(store, recipe(), 64, 0, fallback=str(cache)).rows > 0
  record = json.loads(next(cache.glob('*/record.json')).read_text())
  assert record['identity']['length'] == 64


def test_a_missing_special_token_is_named(tmp_path):
  store = on_disk(tmp_path / 'store', special=SPECIAL | dict(mask=None, sep=None))
  with pytest.raises(ValueError, match='has no sep, mask. Prepare the store with'):
    examples_lib.make_examples(store, recipe(), 64, 0)
  assert not (tmp_path / 'store' / 'plans').exists()


@pytest.mark.parametrize(
  'change,message',
  [
    (dict(dupe_factor=0), 'dupe_factor >= 1'),
    (dict(short_prob=1.5), 'short_prob from 0 to 1, got 2 and 1.5'),
    (dict(pack=True, max_examples=0), 'at least 1, got 0'),
    (dict(mask__rate=2.0), 'rate must be'),
  ],
)
def test_a_wrong_recipe_is_refused_before_anything_is_written(tmp_path, change, message):
  store = on_disk(tmp_path / 'store')
  with pytest.raises(ValueError, match=message):
    examples_lib.make_examples(store, recipe(**change), 64, 0)
  assert not (tmp_path / 'store' / 'plans').exists()


def test_an_unknown_name_meets_the_nearest():
  with pytest.raises(ValueError, match="data.plan: .*did you mean 'full_sentences'"):
    examples_lib.examples_in_memory(random_store(), recipe(plan='full_sentence'), 64, 0)
  with pytest.raises(ValueError, match='data.corrupt: expected one of .*mlm'):
    examples_lib.examples_in_memory(random_store(), recipe(corrupt='store'), 64, 0)


@pytest.mark.parametrize('config', [recipe(), roberta(), recipe(pack=True)])
def test_every_epoch_holds_every_row_once_in_another_order(config):
  config = config.copy_and_resolve_references()
  config.mask.mask_share = config.mask.random_share = 0.0
  examples = examples_lib.examples_in_memory(random_store(), config, 64, 0)
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
def test_masks_repeat_each_epoch_only_where_static(static):
  examples = examples_lib.examples_in_memory(random_store(), recipe(mask__static=static), 64, 0)
  row_n = np.arange(60)
  one, again, other = (examples.batch(row_n + k * examples.rows, shuffle=False) for k in (0, 0, 1))
  assert all((one[k] == again[k]).all() for k in one)
  same = (one['target_pos_BP'] == other['target_pos_BP']).all(1)
  assert same.all() if static else same.mean() < 0.1
  np.testing.assert_array_equal(one['example_BT'], other['example_BT'])


def test_seeds_give_other_masks_and_orders():
  one, two = (
    examples_lib.examples_in_memory(random_store(), roberta(), 64, seed) for seed in (0, 1)
  )
  order = lambda e: e.batch(np.arange(20), shuffle=True)['token_BT']
  masks = lambda e: e.batch(np.arange(20), shuffle=False)['target_pos_BP']
  assert (order(one) != order(two)).any() and (masks(one) != masks(two)).any()


def test_columns_grow_in_place(tmp_path):
  pieces = [(dict(x=np.arange(n, dtype=np.int32)), dict(n=n)) for n in (3, 0, 70000, 1)]
  assert npy_files.write_columns(tmp_path, pieces) == dict(n=70004)
  joined, _ = npy_files.join_columns(pieces)
  np.testing.assert_array_equal(np.load(tmp_path / 'x.npy', mmap_mode='r'), joined['x'])
  wrong = [(dict(x=np.arange(3)), {}), (dict(x=np.arange(3.0)), {})]
  with pytest.raises(ValueError, match='expected dtype int64, got float64'):
    npy_files.write_columns(tmp_path, wrong)
