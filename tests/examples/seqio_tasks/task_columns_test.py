"""Tasks of a user's module as labelled examples, against a file with the same lines."""

import sys

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import records, tagged

MODULE = """
import seqio
import tensorflow as tf

ROWS = [
  ('the film was fine', 'yes', 1.5, ['O', 'O', 'O', 'B']),
  ('a poor one', 'no', -2.0, ['O', 'O', 'O']),
  ('caf\u00e9', 'yes', 3.0, ['B']),
]

def source(split, shuffle_files=False, seed=None):
  names, kinds = ('text', 'label', 'stars', 'tags'), (tf.string, tf.string, tf.float32, tf.string)
  kept = ROWS if split == 'train' else ROWS[:1]
  return tf.data.Dataset.from_generator(
    lambda: (dict(zip(names, row)) for row in kept),
    output_signature={
      n: tf.TensorSpec((None,) if n == 'tags' else (), k) for n, k in zip(names, kinds)
    },
  )

words = seqio.PassThroughVocabulary(size=0)
feature = lambda dtype, rank: seqio.Feature(words, add_eos=False, dtype=dtype, rank=rank)
seqio.TaskRegistry.add(
  'reviews', source=seqio.FunctionDataSource(source, splits=('train', 'dev')), preprocessors=[],
  output_features=dict(
    text=feature(tf.string, 0), label=feature(tf.string, 0), stars=feature(tf.float32, 0),
    tags=feature(tf.string, 1),
  ),
)
seqio.MixtureRegistry.add('all_reviews', ['reviews'], default_rate=1.0)
"""
LINES = [('the film was fine', 'yes', '1.5'), ('a poor one', 'no', '-2.0'), ('café', 'yes', '3.0')]


@pytest.fixture(scope='module', autouse=True)
def module(tmp_path_factory):
  folder = tmp_path_factory.mktemp('modules')
  (folder / 'tasks_of_mine.py').write_text(MODULE)
  sys.path.insert(0, str(folder))
  yield
  sys.path.remove(str(folder))


@pytest.mark.parametrize('name', ['reviews', 'all_reviews'])
@mutation('shuffle=False, num_epochs=1', 'shuffle=False, num_epochs=2')
def test_columns_are_those_of_a_table(name, tmp_path):
  table = tmp_path / 'table.tsv'
  table.write_text('\n'.join(map('\t'.join, [('text', 'label', 'stars'), *LINES])) + '\n')
  columns = ('text', 'label', 'stars')
  read = lambda path: [
    [str(record.values[column]) for column in columns] for record in records.read(path, columns)
  ]
  assert read(f'seqio:tasks_of_mine:{name}:train') == read(str(table))
  assert len(read(f'seqio:tasks_of_mine:{name}:dev')) == 1


def test_lists_are_words():
  found = tagged.read('seqio:tasks_of_mine:reviews:train', ('text', 'tags'), (1, 2), ' ')
  assert [(s.words, s.tags) for s in found] == [
    (text.split(), tags)
    for (text, *_), tags in zip(LINES, ([*'OOOB'], [*'OOO'], ['B']), strict=True)
  ]


@pytest.mark.parametrize(
  'path, said',
  [
    ('seqio:reviews:train', 'expected seqio:MODULE:NAME:SPLIT'),
    ('seqio:no_such_module:reviews:train', "No module named 'no_such_module'"),
    ('seqio:tasks_of_mine:review:train', "did you mean 'reviews'"),
    ('seqio:tasks_of_mine:reviews:test', 'expected one of dev, train'),
  ],
)
def test_what_is_not_there_is_refused(path, said):
  with pytest.raises(UserError, match=said):
    list(records.read(path, ('text',)))
