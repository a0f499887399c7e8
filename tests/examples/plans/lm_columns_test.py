"""Rows of a language model: each goes on where it stopped, and predicts across the border."""

import numpy as np
import original_goldens as goldens
import pytest
from mutation import mutation
from toy_store import continued, random_store, store_of

from bertjax.data_contracts import Spec
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader
from bertjax.examples.plans import lm_columns

LENGTH, LANES = 7, 3


def examples(store, seed: int = 5, rows: int = LANES, **plan):
  chosen = continued(**{f'plan__{name}': value for name, value in plan.items()})
  return examples_lib.examples_in_memory(store, chosen, LENGTH, seed, rows=rows)


def read(found, steps: int, first: int = 0, shuffle: bool = True):
  """Batches, each a dict, and their tokens and targets side by side, [lanes, steps * length]."""
  batches = [
    found.batch(np.arange(step * LANES, (step + 1) * LANES), shuffle)
    for step in range(first, first + steps)
  ]
  side = lambda name: np.concatenate([b[name] for b in batches], 1)
  return batches, side('token_BT'), side('target_BP')


@pytest.mark.parametrize('ends', ['', 'sep'])
@mutation('-(-predicted // spec.length) + 1', 'predicted // spec.length + 1')
@mutation('    followed_n[:] = True\n', '')
@mutation('start=step_E == 0', 'start=step_E >= 0', file='bertjax/examples/plans/lm_columns.py')
def test_the_rows_of_an_epoch_are_the_stream_cut_into_columns(ends):
  store = random_store(19, distinct=True)
  found = examples(store, ends=ends, shuffle_documents=True)
  steps = found.rows // LANES
  batches, token_BT, target_BP = read(found, steps, shuffle=False)
  text = []
  for first, last in zip(store.documents, store.documents[1:], strict=False):
    text += store.tokens[store.sentences[first] : store.sentences[last]].tolist()
    text += [store.special['sep']] * bool(ends)
  size = len(text) // LANES
  assert steps == (size - 1) // LENGTH + 1 > 3 and (size - 1) % LENGTH  # the last row is shorter
  column_BT = np.array(text)[: size * LANES].reshape(LANES, size)
  np.testing.assert_array_equal(token_BT[:, : size - 1], column_BT[:, :-1])
  np.testing.assert_array_equal(target_BP[:, : size - 1], column_BT[:, 1:])
  weight_BP = np.concatenate([b['weight_BP'] for b in batches], 1)
  assert weight_BP[:, : size - 1].all() and not weight_BP[:, size - 1 :].any()
  example_BT = np.concatenate([b['example_BT'] for b in batches], 1)
  assert example_BT[:, : size - 1].all() and not example_BT[:, size - 1 :].any()
  assert batches[0]['start_B'].all() and not any(b['start_B'].any() for b in batches[1:])


@mutation('chosen.shuffle and spec.options.shuffle_documents', 'chosen.shuffle')
def test_an_epoch_has_the_order_of_the_corpus_or_shuffled_one_of_its_own():
  store = random_store(20, distinct=True)
  plain, found = examples(store), examples(store, shuffle_documents=True)
  steps = found.rows // LANES
  _, corpus, _ = read(plain, steps, shuffle=False)
  for epoch in range(2):
    batches, token_BT, _ = read(plain, steps, first=epoch * steps)
    np.testing.assert_array_equal(token_BT, corpus)
    assert [bool(b['start_B'].all()) for b in batches] == [True] + [False] * (steps - 1)
  _, one, _ = read(found, steps)
  batches, two, _ = read(found, steps, first=steps)
  assert batches[0]['start_B'].all() and not np.array_equal(one, two)
  starts = {int(store.tokens[store.sentences[d]]) for d in store.documents[:-1]}
  column = one.ravel()
  jumps = set(column[1:][np.diff(column) != 1].tolist())  # where a document or column begins
  borders = {int(x) for x in one[:, 0]}
  assert len(jumps & starts) > 10 and jumps <= starts | borders
  again = loader.Batches(found, LANES).at(steps)[0]
  np.testing.assert_array_equal(again['token_BT'], batches[0]['token_BT'])


@pytest.mark.parametrize('number', [0, 1])
@mutation(') // self.columns', ' + self.columns - 1) // self.columns')
def test_the_batches_of_the_original(number, shared):
  """Every batch of data_utils.py:LMOrderedIterator that the file holds, the last ones too."""
  file = goldens.load(shared, 'lm_iterator')
  setting, get = file.given['settings'][number], lambda n: file.found[f'setting_{number + 1}/{n}']
  lanes, length = setting['bsz'], setting['bptt']
  stream = file.found['stream']
  store = store_of([np.split(stream, range(7, len(stream), 31))], vocabulary=int(stream.max()) + 1)
  found = examples_lib.examples_in_memory(store, continued(), length, 0, rows=lanes)
  assert found.rows == setting['steps'] * lanes
  for index, step in enumerate(get('step')):
    batch = found.batch(np.arange(step * lanes, (step + 1) * lanes), False)
    used = int(get('seq_len_S')[index])
    assert batch['weight_BP'].sum() == used * lanes and batch['weight_BP'][:, :used].all()
    for ours, theirs in (('token_BT', 'data_STB'), ('target_BP', 'target_STB')):
      np.testing.assert_array_equal(batch[ours][:, :used], get(theirs)[index, :used].T)


@mutation("root(spec.seed, 'lengths'), epoch)", "root(0, 'lengths'), epoch)")
@mutation("root(spec.seed, 'lengths'), epoch)", "root(spec.seed, 'lengths'), 0)")
@mutation('followed_n[:] = True', 'followed_n[:] = False')
@mutation('-(-longest // unit) * unit', 'len(batch)')
def test_steps_of_drawn_lengths_follow_each_other_and_are_padded_to_few():
  store = random_store(60, distinct=True)
  drawn = dict(plan__drawn=20)
  make = lambda seed: examples_lib.examples_in_memory(
    store, continued(**drawn), 48, seed, rows=LANES
  )
  found, other = make(5), make(6)
  steps, size = found.rows // LANES, len(store.tokens) // LANES
  assert steps == size // 20 - 1 > 10
  column_BT = store.tokens[: size * LANES].reshape(LANES, size)
  epochs = []
  for epoch in range(2):
    batches = read(found, steps, first=epoch * steps)[0]
    length_T = [int(batch['weight_BP'][0].sum()) for batch in batches]
    end_T = np.cumsum(length_T)
    for batch, length, end in zip(batches, length_T, end_T, strict=True):
      assert batch['token_BT'].shape == batch['weight_BP'].shape == (LANES, -(-length // 16) * 16)
      np.testing.assert_array_equal(batch['token_BT'][:, :length], column_BT[:, end - length : end])
      target_BP = column_BT[:, end - length + 1 : end + 1]
      np.testing.assert_array_equal(batch['target_BP'][:, :length], target_BP)
      assert not batch['example_BT'][:, length:].any()
    assert length_T[0] == 45 and len(set(length_T)) > 3 and end_T[-1] < size
    epochs.append(length_T)
  again = make(5).batch(np.arange(steps * LANES, (steps + 1) * LANES), True)
  np.testing.assert_array_equal(again['token_BT'], read(found, 1, first=steps)[0][0]['token_BT'])
  others = [int(b['weight_BP'][0].sum()) for b in read(other, steps)[0]]
  assert epochs[0] != epochs[1] and epochs[0] != others


def test_lengths_are_drawn_as_those_of_fastai(shared):
  golden = np.load(shared / 'golden' / 'family' / 'ulmfit_fastai.npz')['bptt/old_histogram']
  spec = Spec(lm_columns.Options(drawn=70), 200, 3, rows=1)
  length_T = np.diff(lm_columns._begins(70 * 100_001, spec, 0))
  assert length_T[0] == 95
  found = np.bincount(length_T[1:], minlength=len(golden))
  mine, theirs = found / found.sum(), golden / golden.sum()
  assert np.abs(mine - theirs).sum() < 0.02
