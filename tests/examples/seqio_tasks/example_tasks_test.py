"""Example Tasks and streams against the store of the same text."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from prepare_runs import run
from slow_imports import corpora, example_tasks, registered, row_stream, seqio, tf, windows
from small_stores import write_store

from bertjax.config import sections
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader, recipes  # fmt: skip
from bertjax.examples.readers import seqio as seqio_reader
from bertjax.store.reader import open_store
from bertjax.vocab.train import train_wordpiece
from bertjax.vocab.vocabulary import load_vocabulary
from configs import bert

LENGTH = 32


def read_documents():
  """60 documents of a few lines each; one is empty."""
  draw = np.random.default_rng(0)
  for number in range(60):
    lines = [' '.join(draw.choice(WORDS, draw.integers(3, 12))) for _ in range(draw.integers(2, 9))]
    yield '\n'.join(lines).encode() if number != 7 else b'\n'


WORDS = [a + b for a, b in itertools.product(('ka', 'lo', 'mi', 'nu'), ('ra', 'se', 'ti', 'vo'))]


def recipe_of(base, **changes):
  return ConfigDict(base | dict(split='lines') | changes)


@pytest.fixture(scope='module')
def vocab(tmp_path_factory):
  """Where a vocabulary of the text lies."""
  path = tmp_path_factory.mktemp('vocab')
  train_wordpiece([d.decode() for d in read_documents()], 64, True, path)
  return str(path)


@pytest.fixture(scope='module', autouse=True)
def text():
  """Registers the text for the tests of this file; its name."""
  add = seqio.TaskRegistry.add_provider
  add('few_words', corpora.stream_task('few_words', read_documents))
  yield 'few_words'
  seqio.TaskRegistry.remove('few_words')


@pytest.fixture(scope='module')
def store(vocab, tmp_path_factory):
  """The documents as a store, written by other means than those under test."""
  vocabulary = load_vocabulary(vocab)
  split = [d.decode().splitlines() for d in read_documents() if d.strip()]
  ids = [[ids.tolist() for ids in vocabulary.encode_batch(lines)] for lines in split]
  path = tmp_path_factory.mktemp('store') / 'store'
  write_store(path, ids, vocabulary.meta, vocabulary.word_starts)
  return open_store(path)


def rows_of(dataset, count=None):
  """The examples of a dataset as one batch in the schema's names."""
  examples = list(itertools.islice(dataset.as_numpy_iterator(), count))
  first = {windows.batch_name(k, np.ndim(v)): k for k, v in examples[0].items()}
  return {key: np.stack([example[k] for example in examples]) for key, k in first.items()}


def assert_equal(got, expected):
  assert loader.batch_sha256(got) == loader.batch_sha256(expected)


@pytest.mark.parametrize(
  'base, shuffle',
  [
    (recipes.BERT_PAIRS, False),
    pytest.param(recipes.ROBERTA_SENTENCES, True, marks=pytest.mark.full),
    pytest.param(recipes.ALBERT_PAIRS, True, marks=pytest.mark.full),
  ],
  ids=['bert', 'roberta', 'albert'],
)
@mutation("window['window'] <= before", "window['window'] < before")
def test_rows_are_those_of_the_store_epoch_by_epoch(vocab, store, base, shuffle):
  recipe = recipe_of(base, mask=base['mask'] | dict(static=False))
  examples = examples_lib.make_examples(store, recipe, LENGTH, 3)
  task = example_tasks.example_task('t', 'few_words', vocab, recipe, LENGTH, seed=3)
  dataset = task.get_dataset(None, split='train', shuffle=shuffle, num_epochs=2)
  row_n = np.arange(2 * examples.rows)
  assert_equal(rows_of(dataset), examples.batch(row_n, shuffle))
  again = task.get_dataset(None, split='train', shuffle=shuffle, num_epochs=None, seed=3)
  assert_equal(rows_of(again.skip(5), 40), examples.batch(np.arange(5, 45), shuffle))


def test_ernie_rows_have_the_units_of_prepared_text(vocab, tmp_path):
  words = [WORDS[:4], [w.title() for w in WORDS[:6]], WORDS[3:9]]
  lines = [' '.join(draw) for draw in words] * 3
  seqio.TaskRegistry.add_provider('names', corpora.stream_task('names', lambda: iter(
    ['\n'.join(lines).encode()] * 12)))  # fmt: skip
  recipe = recipe_of(recipes.ERNIE_PAIRS, mask=recipes.ERNIE_PAIRS['mask'] | dict(word_prob=1.0))
  (tmp_path / 'text.txt').write_text('\n\n'.join(['\n'.join(lines)] * 12))
  prepared = run(
    input=tmp_path / 'text.txt', vocab=vocab, output=tmp_path / 'store', split='lines',
    segmenter='capitals', holdout=0.0,
  )  # fmt: skip
  examples = examples_lib.make_examples(prepared, recipe, LENGTH, 3)
  task = example_tasks.example_task('t', 'names', vocab, recipe, LENGTH, seed=3)
  dataset = task.get_dataset(None, split='train', shuffle=False, num_epochs=1)
  assert_equal(rows_of(dataset), examples.batch(np.arange(examples.rows), False))
  seqio.TaskRegistry.remove('names')


def test_documents_are_grouped_and_the_rest_goes_to_the_last():
  sizes = lambda count: [len(w) for w in windows.windows([b''] * count, 4)]
  assert [sizes(n) for n in (0, 3, 7, 8, 9, 15)] == [[], [3], [7], [4, 4], [4, 5], [4, 4, 7]]


def test_windows_differ_in_their_draws_and_stay_in_order(vocab, store):
  recipe = recipe_of(recipes.ROBERTA_SENTENCES)
  small = example_tasks.example_task('t', 'few_words', vocab, recipe, LENGTH, window=10)
  got = rows_of(small.get_dataset(None, split='train', shuffle=False, num_epochs=2))
  again = rows_of(small.get_dataset(None, split='train', shuffle=False, num_epochs=2))
  assert_equal(got, again)
  used_BP = got['weight_BP'] > 0
  row_n, _ = np.nonzero(used_BP)
  got['token_BT'][row_n, got['target_pos_BP'][used_BP]] = got['target_BP'][used_BP]  # unmasked
  text = got['token_BT'][got['example_BT'] > 0]
  special = [store.special['cls'], store.special['sep'], store.special['pad']]
  epoch = store.gather(np.zeros(1, np.int64), store.sentences[-1:])
  np.testing.assert_array_equal(text[~np.isin(text, special)], np.tile(epoch, 2))
  assert windows.window_seed(5, 0) == 5
  assert len({windows.window_seed(seed, w) for seed in (0, 1) for w in range(50)}) == 100


def test_mixtures_of_example_tasks(vocab):
  recipe = recipe_of(recipes.BERT_PAIRS)
  for seed, name in enumerate(('mixed_a', 'mixed_b')):
    example_tasks.add_examples(name, 'few_words', vocab, recipe, LENGTH, seed=seed)
  seqio.MixtureRegistry.add('mixed', [('mixed_a', 3), ('mixed_b', 1)])
  get = seqio.get_mixture_or_task('mixed').get_dataset
  first, second = (rows_of(get(None, split='train', shuffle=True, seed=4), 20) for _ in range(2))
  assert_equal(first, second)
  data = ConfigDict(dict(mixture='mixed', input='', module=''))
  assert example_tasks.vocabulary_path(data) == vocab


NAMES = (
  'bert_pairs roberta_sentences albert_pairs spanbert_blocks electra_segments ernie_pairs '
  'distilbert_sequences'
)


@pytest.mark.parametrize('name', NAMES.split())
def test_names_that_come_with_bertjax(name):
  assert registered.SMOOTHING  # imported for what it registers
  mixture = seqio.get_mixture_or_task(name)
  assert {task.name for task in mixture.tasks} == {f'wikipedia_{name}', f'books_{name}'}
  small = seqio.get_mixture_or_task(f'python_docs_{name}')
  assert small.output_features.keys() == mixture.output_features.keys()
  assert ('next_G' in small.output_features) == (name in ('bert_pairs', 'ernie_pairs'))


@mutation("if 'language' in self._corpus.columns and not self._recipe.languages:", 'if False:')
def test_languages_that_nobody_has_numbered_are_refused(vocab, tmp_path):
  """A window that begins with fr would call it 0, and another one en."""
  for name in ('en', 'fr'):
    (tmp_path / f'{name}.txt').write_text('\n\n'.join(['kara lose.\nmiti nuvo.'] * 9))
  text = ','.join(f'{name}={tmp_path}/{name}.txt' for name in ('en', 'fr'))
  recipe = recipe_of(recipes.ROBERTA_SENTENCES)
  with pytest.raises(ValueError, match='several languages.* expected the names of all'):
    example_tasks.add_examples('unnumbered', text, vocab, recipe, LENGTH)
    next(iter(seqio.get_mixture_or_task('unnumbered').get_dataset(None, split='train')))
  numbered = recipe_of(recipes.ROBERTA_SENTENCES, languages=('fr', 'en'))
  example_tasks.add_examples('numbered', text, vocab, numbered, LENGTH)
  assert next(iter(seqio.get_mixture_or_task('numbered').get_dataset(None, split='train')))


class Counting:
  """Batches of 5 numbered rows, and how often they were opened."""

  def __init__(self, end=10_000):
    self.opened, self.end = [], end

  def __call__(self, skip):
    self.opened.append(skip)
    for first in range(skip, self.end, 5):
      yield dict(example_BT=np.arange(first, first + 5)[:, None].repeat(2, 1))


@mutation('min(first, self._end - self._keep)', 'first')
def test_a_stream_gives_any_rows_and_reopens_only_for_old_ones(caplog):
  source = Counting()
  rows = row_stream.StreamedRows('s', source, keep=8)
  ask = lambda first, stop: rows.batch(np.arange(first, stop), True)['example_BT'][:, 0].tolist()
  for first, stop in ((0, 1), (0, 8), (8, 16), (8, 16), (16, 20), (20, 24), (16, 24), (28, 36)):
    assert ask(first, stop) == list(range(first, stop))
  assert source.opened == [0]
  assert ask(3, 11) == list(range(3, 11)) and source.opened == [0, 3]
  assert not caplog.messages
  assert ask(100, 108) == list(range(100, 108)) and source.opened == [0, 3]
  (said,) = caplog.messages
  assert said.startswith('s: the run goes on behind 87 rows') and 'reader=store' in said


def stream_config(vocab, **data):
  c = bert.get_config('test')
  c.batch_size, c.length = 8, LENGTH
  sections.complete(c)
  c.data.update(dict(split='lines', plan=dict(dupe_factor=2), vocab=vocab, reader='seqio') | data)
  return c


def test_a_text_task_streams_the_batches_of_its_store(vocab, store, tmp_path):
  config = stream_config(vocab, mixture='few_words')
  workdir = row_stream.ensure_vocabulary(config.data, str(tmp_path), vocab)
  streamed, held_out = row_stream.open_streams(config, row_stream.open_vocabulary(workdir))
  examples = examples_lib.make_examples(store, config.data, LENGTH, config.seed)
  assert held_out is None and 0 < streamed.stats['fill'] <= 1
  batches = loader.stream(loader.Batches(streamed, 8), threads=0)
  for index in range(examples.rows // 8 + 3):  # into the second epoch
    assert_equal(next(batches)[1], loader.Batches(examples, 8).at(index)[0])
  resumed, _ = row_stream.open_streams(config, row_stream.open_vocabulary(workdir))
  assert_equal(
    next(loader.stream(loader.Batches(resumed, 8), 9, threads=0))[1],
    loader.Batches(examples, 8).at(9)[0],
  )


@mutation("split = dict(data) | dict(documents=0), 'train'", "split = data, 'train'")
def test_a_stream_is_judged_on_the_rows_of_another_text(vocab, tmp_path):
  (tmp_path / 'b.txt').write_bytes(b'\n\n'.join(read_documents()))
  given = dict(input=tmp_path / 'b.txt', vocab=vocab, split='lines', holdout=0.0)
  store = run(output=tmp_path / 's', **given)
  config = stream_config(vocab, mixture='few_words', heldout=str(tmp_path / 'b.txt'), documents=5)
  config.evals.held_out.examples = 0
  workdir = row_stream.ensure_vocabulary(config.data, str(tmp_path), vocab)
  _, held_out = row_stream.open_streams(config, row_stream.open_vocabulary(workdir))
  expected = examples_lib.make_examples(store, config.data, LENGTH, config.seed)
  row_n = np.arange(expected.rows)
  assert held_out.rows == len(row_n)
  assert_equal(held_out.batch(row_n, False), expected.batch(row_n, False))


@mutation('(held > _MOST and len(window) >= 4)', 'False')
def test_few_long_documents_wait_at_once(monkeypatch):
  monkeypatch.setattr('bertjax.examples.seqio_tasks.windows._MOST', 1000)
  documents = [bytes(1 + 37 * i % 300) for i in range(200)]
  found = list(windows.windows(documents, 50))
  assert sum(found, []) == documents and max(map(len, found)) < 25
  assert all(sum(map(len, window)) <= 1300 for window in found)
  assert list(map(len, windows.windows([b'a'] * 199, 50))) == [50, 50, 99]
  assert list(map(len, windows.windows([bytes(2000)] * 7, 50))) == [2, 2, 3]


@mutation('finished if row_stream.is_finished(data) else ""', '""')
def test_a_users_own_examples_stream_as_they_are(vocab, tmp_path):
  def dataset(split, shuffle_files, seed=None):
    del shuffle_files, seed
    rows = tf.data.Dataset.range({'train': 50, 'validation': 6}[split])
    row = lambda i: dict(
      token_T=tf.fill([LENGTH], 5 + i % 9), example_T=tf.ones([LENGTH], tf.int64),
      target_pos_P=tf.fill([2], i % LENGTH), weight_P=tf.ones([2], tf.float64),
    )  # fmt: skip
    return rows.map(row)

  feature = lambda dtype: seqio.Feature(
    seqio.PassThroughVocabulary(0), add_eos=False, dtype=dtype, rank=1
  )
  features = {k: feature(tf.int64) for k in ('token_T', 'example_T', 'target_pos_P')}
  source = seqio.FunctionDataSource(dataset, splits=['train', 'validation'])
  seqio.TaskRegistry.add(
    'own', source, output_features=features | dict(weight_P=feature(tf.float64))
  )
  config = stream_config(vocab, mixture='own')
  store = row_stream.open_vocabulary(
    row_stream.ensure_vocabulary(config.data, str(tmp_path), vocab)
  )
  said = 'config.data.plan, mask and pack, and what says how text is read, have no effect'
  assert said in seqio_reader.READER.says([config], '')
  assert said not in seqio_reader.READER.says([stream_config(vocab, input='a.txt')], '')
  streamed, held_out = row_stream.open_streams(config, store)
  _, batch, counts = next(loader.stream(loader.Batches(streamed, 8), threads=0))
  assert batch['token_BT'].dtype == np.int32 and batch['weight_BP'].dtype == np.float32
  assert counts['dropped'] == 0 and counts['predicted'] == 16
  assert held_out is not None
  evaluated = list(loader.eval_batches(held_out, 4))
  assert held_out.rows == 6 and [b['weight_BP'].sum() for b in evaluated] == [8, 4]
  config.length = 16
  with pytest.raises(ValueError, match=f'{LENGTH} tokens, but config.length=16'):
    row_stream.open_streams(config, store)[0].batch(np.arange(4), True)


def test_errors_of_a_stream(vocab, tmp_path):
  open_stream = lambda **data: row_stream.open_streams(stream_config(vocab, **data), store)[0]
  (tmp_path / 'vocab').symlink_to(vocab)
  store = row_stream.open_vocabulary(str(tmp_path))
  (tmp_path / 'bad.txt').write_bytes(b'one\xff\n\ntwo\n')
  with pytest.raises(ValueError, match='UTF-8'):
    open_stream(input=str(tmp_path / 'bad.txt')).batch(np.arange(4), True)
  with pytest.raises(ValueError, match="did you mean 'few_words'|few_words"):
    open_stream(mixture='few_word').batch(np.arange(4), True)
  with pytest.raises(ValueError, match='set config.data.vocab'):
    row_stream.ensure_vocabulary(stream_config('', mixture='few_words').data, str(tmp_path), '')


USER_MODULE = """
import seqio
from bertjax.examples import recipes
from bertjax.examples.seqio_tasks import (example_tasks, corpora, registered)

documents = lambda: (f'the {i} of words\\nand the {i % 7}\\n'.encode() for i in range(300))
seqio.TaskRegistry.add_provider('letters', corpora.stream_task('letters', documents))
recipe = recipes.ROBERTA_SENTENCES
example_tasks.add_examples('letters_sentences', 'letters', VOCAB, recipe, length=32, window=64)
"""


@pytest.mark.full
def test_a_users_task_trains_by_its_name_and_resumes_bit_for_bit(vocab, tmp_path):
  (tmp_path / 'user_examples.py').write_text(USER_MODULE.replace('VOCAB', repr(vocab)))
  root = pathlib.Path(__file__).resolve().parents[3]
  workdir = tmp_path / 'run'
  command = [
    sys.executable, '-m', 'bertjax.main', '--config=configs/roberta.py:test',
    f'--workdir={workdir}', '--config.data.reader=seqio', '--config.data.module=user_examples',
    '--config.data.mixture=letters_sentences', '--config.batch_size=32', '--config.length=32',
    '--config.total_steps=9', '--config.log_steps=1', '--config.checkpoint_steps=5',
    '--config.evals.held_out.batch_size=8',
  ]  # fmt: skip
  env = dict(os.environ, PYTHONPATH=f'{root}:{tmp_path}', XLA_FLAGS='')

  def losses():
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, (workdir / 'metrics.jsonl').read_text().splitlines())
    return done.stderr, [(line['step'], line['loss']) for line in lines if 'loss' in line]

  _, whole = losses()
  shutil.rmtree(workdir / 'checkpoints' / '9')
  said, resumed = losses()
  assert 'goes on behind 64 rows' in said and resumed == whole and len(whole) == 9
  assert not (workdir / 'store').exists()
