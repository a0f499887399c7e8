"""Noise that makes two texts of an example, of other lengths than its own, from store to batch."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
from mutation import mutation
from slow_imports import windows
from toy_store import SPECIAL, VOCABULARY, WHOLE_DOCUMENTS, on_disk, recipe

from bertjax.data_contracts import Labelled
from bertjax.evals.held_out import rows as held_out_rows
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader, recipes
from bertjax.examples.labelled.common.rows import Rows
from bertjax.examples.noise import bart_infilling, t5_spans
from bertjax.sharding import make_mesh, put_batch
from bertjax.train import phase, step
from bertjax.types import sizes

LENGTH = 64
SENTINELS = dict(name='t5_spans', rate=0.15, mean_span=3.0, numbered=True, static=False)
INFILLING = dict(
  name='bart_infilling', rate=0.3, mean_span=3.0, permuted=0.0, random_share=0.0,
  whole_words=False, static=False,
)  # fmt: skip
RECIPES = {
  'sentinels': recipe(WHOLE_DOCUMENTS, SENTINELS),
  'sentinels, packed': recipe(WHOLE_DOCUMENTS, SENTINELS, pack=4),
  'sentinels of labelled pairs': recipe(recipes.BERT_PLAN, SENTINELS, pack=4),
  'infilling': recipe(WHOLE_DOCUMENTS, INFILLING),
  'infilling, packed': recipe(WHOLE_DOCUMENTS, INFILLING, pack=4),
  'sentinels of columns': recipe(
    dict(name='lm_columns', ends='', shuffle_documents=True), SENTINELS
  ),
}
ROWS = 8


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return with_sentinels(
    on_disk(tmp_path_factory.mktemp('second') / 'store', documents=80, sentences=4)
  )


def with_sentinels(store):
  """The same store, whose last ids are sentinels alone."""
  marks = [*range(VOCABULARY - 1, VOCABULARY - 51, -1)]
  parts = tuple(np.minimum(x, VOCABULARY - 51) for x in store.parts)
  meta = dict(store.meta, vocabulary=dict(store.meta['vocabulary'], sentinels=marks))
  return dataclasses.replace(store, parts=parts, meta=meta)


def opened(store, config, seed=1):
  return examples_lib.make_examples(store, config, LENGTH, seed, rows=ROWS)


def rebuilt(token, target):
  """The text that inputs and targets were made of."""
  spans = {int(x): [] for x in target[target >= VOCABULARY - 50]}
  last = None
  for x in target[:-1].tolist():
    last = x if x in spans else last
    spans[last] += [] if x in spans else [x]
  return list(itertools.chain.from_iterable(spans.get(x, [x]) for x in token[:-1].tolist()))


@pytest.mark.parametrize('name', RECIPES)
@mutation('cell_m, shape=(rows.shape[0], columns)', 'cell_m, shape=rows.shape', case='sentinels')
@mutation('    length_E = np.max([length_E, *share], 0)', '    del share', case='sentinels, packed')
def test_two_texts_of_every_example_have_its_number(store, name):
  examples = opened(store, RECIPES[name])
  before = examples_lib.make_examples(
    store, recipe(RECIPES[name].plan, recipes.CAUSAL_MASK), examples.length, 1, rows=ROWS
  )
  noise = bart_infilling.MASKING if 'infilling' in name else t5_spans.MASKING
  options = examples.recipe.mask_options
  wanted = noise.sizes(options, noise.raw(options, LENGTH)) | dict(T=LENGTH)
  row_n = np.arange(min(examples.rows, 40)) // ROWS * ROWS + np.arange(40) % ROWS
  batch = examples.batch(row_n, shuffle=False)
  text = before.batch(np.arange(before.rows), shuffle=False)
  assert wanted.items() <= sizes(batch).items()
  assert (text['example_BT'] > 0).sum(1).max() > 0.8 * examples.length > 0.8 * LENGTH / 1.4
  assert batch['out_token_BU'].dtype == np.int32 and batch['weight_BU'].dtype == np.float32
  several = 0
  for row in range(len(row_n)):
    one, two = batch['example_BT'][row], batch['out_example_BU'][row]
    assert set(one) - {0} == set(two) - {0}  # so that packed rows attend across
    several += one.max() > 1
    for number in range(1, one.max() + 1):
      at, out = one == number, two == number
      example = row_n[row]
      if examples.row_example is not None:
        example = examples.row_example[examples.row_start[row_n[row]] + number - 1]
      original = text['token_BT'][example][text['example_BT'][example] > 0].tolist()
      target = batch['target_BU'][row][out]
      read = batch['out_token_BU'][row][out]
      assert batch['position_BT'][row][at].tolist() == list(range(at.sum()))
      assert batch['out_position_BU'][row][out].tolist() == list(range(out.sum()))
      assert read[1:].tolist() == target[:-1].tolist() and batch['weight_BU'][row][out].all()
      if noise is t5_spans.MASKING:
        assert read[0] == 0 and rebuilt(batch['token_BT'][row][at], target) == original
      else:
        framed = [SPECIAL['cls'], *original, SPECIAL['sep']]
        assert read[0] == SPECIAL['sep'] and target.tolist() == framed
        kept = [x for x in batch['token_BT'][row][at].tolist() if x != SPECIAL['mask']][1:-1]
        rest = iter(original)
        assert all(x in rest for x in kept)  # in this order
      if 'next_BG' in batch:
        assert batch['next_BG'][row, number - 1] == text['next_BG'][example, 0]
  assert not batch['weight_BU'][batch['out_example_BU'] == 0].any()
  assert (several > 20) == ('packed' in name)
  if 'packed' in name:
    filled = (batch['example_BT'] > 0).mean(), (batch['out_example_BU'] > 0).mean()
    assert max(filled) > 0.7


def equal(one, two):
  return set(one) == set(two) and all((one[k] == two[k]).all() for k in one)


@pytest.mark.parametrize('name', ['sentinels', 'infilling, packed', 'sentinels of columns'])
def test_rows_follow_from_their_numbers(store, name):
  """On any host, from any start, held out or not."""
  examples = opened(store, RECIPES[name])
  take = lambda *args, **kwargs: list(
    itertools.islice(loader.stream(loader.Batches(examples, ROWS), *args, **kwargs), 3)
  )
  whole = take(5)
  shares = [take(5, hosts=(host, 2)) for host in range(2)]
  for index, batch, counts in whole:
    parts = [share[index - 5][1] for share in shares]
    assert equal(batch, {k: np.concatenate([part[k] for part in parts]) for k in batch})
    assert equal(batch, loader.Batches(examples, ROWS).at(index)[0])
    real = (batch['example_BT'] > 0).sum(), (batch['out_example_BU'] > 0).sum()
    assert counts['real'] == sum(real) and counts['predicted'] == real[1]
    cells = batch['example_BT'].size + batch['out_example_BU'].size
    assert counts['padding'] == cells - sum(real) and counts['dropped'] == 0
  template = examples.template()
  assert {k: v.shape[1:] for k, v in template.items()} == {
    k: v.shape[1:] for k, v in whole[0][1].items()
  }
  if examples.ordered:
    return
  first, again, later = (
    examples.batch(np.arange(ROWS) + epoch * examples.rows, shuffle=False) for epoch in (0, 0, 1)
  )
  assert equal(first, again) and not equal(first, later)
  held_out = opened(store, held_out_rows.held_out_data(RECIPES[name]), 7)
  first, later = (
    held_out.batch(np.arange(ROWS) + epoch * held_out.rows, shuffle=False) for epoch in (0, 1)
  )
  assert equal(first, later)


def test_what_the_noise_makes_is_part_of_a_packed_plan(tmp_path):
  store = with_sentinels(on_disk(tmp_path / 'store'))
  plans = lambda: len(list((tmp_path / 'store' / 'plans').iterdir()))
  for rate, count in ((0.15, 1), (0.15, 1), (0.3, 2)):
    opened(store, recipe(WHOLE_DOCUMENTS, SENTINELS | dict(rate=rate), pack=4))
    assert plans() == count


@mutation('  if most > columns or not length_E.all():', '  if not length_E.all():')
def test_sizes_that_are_wrong_are_refused(store, monkeypatch):
  sizes = lambda options, tokens: t5_spans.sizes(options, tokens) | dict(U=10)
  monkeypatch.setattr(t5_spans, 'MASKING', t5_spans.MASKING._replace(sizes=sizes))
  examples = opened(store, recipe(WHOLE_DOCUMENTS, SENTINELS))
  with pytest.raises(ValueError, match='columns U of the examples of a row.*expected at most'):
    examples.batch(np.arange(40), shuffle=False)


def test_streamed_examples_have_them_too():
  """As features of a seqio Task, which are named without their B."""
  config = recipe(WHOLE_DOCUMENTS, SENTINELS)
  row = windows.probe(config, LENGTH)
  assert row['out_token_BU'].shape == (1, sizes(row)['U'])
  for key, value in row.items():
    assert windows.batch_name(windows.feature_name(key), value.ndim - 1) == key


def labelled(rows=13):
  """Texts to be answered by texts."""
  draw = np.random.default_rng(0)
  id_n, out_n = ([np.arange(5, 5 + n) for n in draw.integers(2, most, rows)] for most in (40, 21))
  second = dict(
    out_token=[np.append(0, x[:-1]) for x in out_n],
    target=out_n,
    weight=[np.ones(len(x), np.float32) for x in out_n],
  )
  examples = Labelled(id_n, [np.zeros(len(x), np.int32) for x in id_n], {}, 0, second=second)
  return Rows(types.SimpleNamespace(special=SPECIAL), examples, LENGTH, 0, 4), out_n


@mutation('self._second(number_n)', 'self._second(np.sort(number_n))')
def test_labelled_rows_have_second_texts():
  rows, out_n = labelled()
  template = sizes(rows.template())
  assert template['T'] == LENGTH and template['U'] == 24 > max(map(len, out_n)) > 16
  for number_n in (np.arange(13), rows.by_length()):
    batches = list(loader.eval_batches(rows, 4, chosen_n=number_n))
    assert {sizes(batch)['U'] for batch in batches} == {24}
    assert len({sizes(batch)['T'] for batch in batches}) > 1
    joined = {
      k: np.concatenate([batch[k] for batch in batches]) for k in ('target_BU', 'out_example_BU')
    }
    for row, number in enumerate(number_n):
      size = len(out_n[number])
      assert joined['target_BU'][row].tolist() == [*out_n[number], *[0] * (24 - size)]
      assert joined['out_example_BU'][row].tolist() == [1] * size + [0] * (24 - size)
    assert not joined['out_example_BU'][13:].any()


def test_microbatches_and_devices_divide_both_texts(store):
  batch = opened(store, RECIPES['sentinels, packed']).template()
  batch = {k: np.repeat(v, 8, 0) for k, v in batch.items()}
  parts = step.split_rows(batch, 2)
  assert {k: v.shape for k, v in parts.items()} == {
    k: (2, 4, *v.shape[1:]) for k, v in batch.items()
  }
  assert equal(step.join_rows(parts), batch)
  placed = put_batch(batch, make_mesh(dict(data=-1)))
  assert equal({k: np.asarray(v) for k, v in placed.items()}, batch)
  assert {'token_BT', 'out_token_BU', 'target_BU'} <= set(phase.columns(batch))
