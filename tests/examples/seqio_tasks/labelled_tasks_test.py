"""Labelled examples as seqio Tasks, against the rows of a run of fine-tuning."""

import json
import types

import numpy as np
import pytest
from mutation import mutation
from slow_imports import labelled_tasks, seqio, windows

from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config
from bertjax.vocab.train import train_wordpiece
from bertjax.vocab.vocabulary import load_vocabulary
from configs.finetune import choice, glue, tagging, text, write

LENGTH = 24
LINES = ['the film was good', 'bad and long ' * 9, 'i saw it', 'ada saw it in paris', 'it was']


@pytest.fixture(scope='module')
def vocab(tmp_path_factory):
  path = tmp_path_factory.mktemp('vocab')
  train_wordpiece(LINES * 4, 60, True, path)
  return str(path)


@pytest.fixture(scope='module')
def files(vocab, tmp_path_factory):
  """kind -> (config.data.task, its file)."""
  path = tmp_path_factory.mktemp('files')
  (path / 'vocab').symlink_to(vocab)
  classes = text.recipe(('text',), 'label', ('no', 'yes'), 'accuracy').data.task
  numbers = text.recipe(('text',), 'label', (), 'spearman').data.task
  table = lambda name, labels: (path / name).write_text(
    'text\tlabel\n' + ''.join(f'{x}\t{y}\n' for x, y in zip(LINES, labels, strict=True))
  )
  table('classes.tsv', ['yes', 'no', 'no', 'yes', 'no'])
  table('numbers.tsv', [1.5, 0.25, -3, 0, 7])
  tagged = '\n\n'.join('\n'.join(f'{w} O' for w in line.split()) for line in LINES)
  (path / 'tags.conll').write_text(tagged.replace('ada O', 'ada B-PER') + '\n')
  asked = [[['a: the film was long'], [dict(question=q, choice=LINES[:3], answer=LINES[i])], str(i)]
           for i, q in enumerate(('was it good', 'what was it', 'who saw it'))]  # fmt: skip
  (path / 'choice.json').write_text(json.dumps(asked))
  table('written.tsv', ['good', 'bad', 'saw it', 'in paris', 'it was'])
  written = write.get_config().data.task
  written.update(read='see: {text}', write='label', target_length=30)
  return dict(
    written=(written, path / 'written.tsv'),
    classes=(classes, path / 'classes.tsv'),
    numbers=(numbers, path / 'numbers.tsv'),
    tags=(tagging.get_config('ner').data.task, path / 'tags.conll'),
    choice=(choice.get_config('dream').data.task, path / 'choice.json'),
  )


@pytest.mark.parametrize('kind', ['classes', 'numbers', 'tags', 'choice', 'written'])
@mutation('BU=examples.columns', 'BU=8', case='written')
@mutation("vocabulary.special['pad'] or 0", '1')
def test_a_task_has_the_rows_of_a_run(kind, files, vocab):
  task, path = files[kind]
  made = labelled_tasks.labelled_task('t', task, dict(train=str(path)), vocab, LENGTH)
  found = list(made.get_dataset(None, 'train', shuffle=False).as_numpy_iterator())
  data = types.SimpleNamespace(task=task, length_block=1)
  config = types.SimpleNamespace(data=data, model={}, length=LENGTH, seed=0)
  special = load_vocabulary(vocab).special
  store = types.SimpleNamespace(path=path.parent, special=special, languages=())
  served = from_config.open_rows(config, str(path), 'train', store, 0, together=1 << 20)
  expected = served.batch(np.arange(served.rows), shuffle=False)
  assert len(found) == served.rows
  for key, value in expected.items():
    got = np.stack([example[windows.feature_name(key)] for example in found])
    assert got.dtype == value.dtype
    columns = value.shape[1] if key[-2:] in ('BT', 'BU') else None
    np.testing.assert_array_equal(got[:, :columns] if columns else got, value)
    if columns:
      assert got.shape[1] == (served.length if key.endswith('_BT') else 32)
      assert set(np.unique(got[:, columns:])) <= {0}


def test_tasks_are_shuffled_and_have_their_splits(files, vocab):
  task, path = files['classes']
  splits = dict(train=str(path), validation=str(path))
  labelled_tasks.add_labelled('opinions', task, splits, vocab, LENGTH)
  found = seqio.get_mixture_or_task('opinions')
  rows = lambda **how: [
    tuple(x['token_T']) for x in found.get_dataset(None, 'train', **how).as_numpy_iterator()
  ]
  plain, shuffled = rows(shuffle=False), [rows(shuffle=True, seed=seed) for seed in range(8)]
  # Of three rows one order in six is the plain one.
  assert any(order != plain for order in shuffled)
  assert all(sorted(order) == sorted(plain) for order in shuffled)
  assert set(found.splits) == {'train', 'validation'}
  seqio.TaskRegistry.remove('opinions')


def test_what_is_wrong_is_said_before_anything_is_read(files, vocab):
  task, path = files['classes']
  make = lambda files, **more: labelled_tasks.labelled_task('t', task | more, files, vocab, LENGTH)
  task = task.to_dict()
  with pytest.raises(UserError, match="'t' has no files"):
    make({})
  with pytest.raises(UserError, match="did you mean 'label'"):
    make(dict(train=str(path)), label='lable')


@mutation('vocabulary = vocabulary.of_language(language)', 'vocabulary = vocabulary')
def test_texts_are_cut_by_the_rules_of_their_language(xlm_words, tmp_path):
  text = "L'homme qu'il a vu."
  (tmp_path / 'a.tsv').write_text(f'sentence\tlabel\n{text}\t1\n')
  task, files = glue.get_config('sst2').data.task, dict(train=f'{tmp_path}/a.tsv')
  made = labelled_tasks.labelled_task('t', task, files, xlm_words, 32, language='fr')
  (row,) = made.get_dataset(None, 'train', shuffle=False).as_numpy_iterator()
  want, _ = load_vocabulary(xlm_words).encode_flat([text], ['fr'])
  assert row['token_T'][1 : 1 + len(want)].tolist() == want.tolist()
  with pytest.raises(UserError, match='expected language, got none'):
    labelled_tasks.labelled_task('t', task, files, xlm_words, 32)
