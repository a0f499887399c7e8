"""Labelled examples of TFDS, whose own features decode them: the data alone is made up."""

import contextlib

import pytest
from mutation import mutation

from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.examples.labelled.common import datasets, from_config
from bertjax.vocab.vocabulary import load_vocabulary
from configs.finetune import tfds as recipes

PIECES = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *'abcdefghijklmnopqrstuvwxyz']
PIECES += [f'##{letter}' for letter in 'abcdefghijklmnopqrstuvwxyz']
LANGUAGES = ['en', *recipes.LANGUAGES]
EXAMPLES = {
  'sentence1': 'a b', 'sentence2': 'c', 'sentence': 'a b', 'question1': 'a', 'question2': 'b',
  'premise': 'p', 'hypothesis': 'h', 'label': 1, 'idx': 0, 'id': 'q1', 'title': 't',
  'context': 'ada was here', 'question': 'who', 'is_impossible': False,
  'answers': {'text': ['ada', 'here'], 'answer_start': [0, 8]},
  'plausible_answers': {'text': [], 'answer_start': []},
  'tokens': ['eu', 'rejects'], 'pos': [0, 1], 'chunks': [0, 1], 'ner': [3, 0],
  'article': 'long', 'questions': ['who', 'what'], 'options': [['x', 'y'], ['z', 'w']],
  'example_id': 'h1',
}  # fmt: skip
RACE = dict(EXAMPLES, answers=['B', 'A'])
XNLI = dict(
  premise={language: f'p {language}' for language in LANGUAGES},
  hypothesis={language: f'h {language}' for language in LANGUAGES},
  label=2,
)


@contextlib.contextmanager
def prepared(**changes):
  """Every data set has one example, written and read by its own features."""
  from bertjax.examples.seqio_tasks.loaded import tf, tfds

  def dataset(builder, *_, **__):
    given = dict(race=RACE, xnli=XNLI).get(builder.name, EXAMPLES) | changes
    features = builder.info.features
    written = features.serialize_example({name: given[name] for name in features})
    return tf.data.Dataset.from_tensors(written).map(features.deserialize_example)

  with tfds.testing.mock_data(as_dataset_fn=dataset):
    yield


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  path = tmp_path_factory.mktemp('vocabulary') / 'vocab'
  path.mkdir()
  (path / 'vocab.txt').write_text('\n'.join(PIECES) + '\n')
  return load_vocabulary(path / 'vocab.txt')


def encoded(config, path, vocabulary):
  """The rows of one name."""
  task, options = from_config.task_of(config.data.task)
  records = list(task.read(path, options))
  return task.encode(records, options, vocabulary, 256)


@pytest.mark.parametrize('name', [*(f'glue/{task}' for task in recipes.GLUE), *recipes.OTHERS])
@mutation('return feature.int2str(int(value)) if value >= 0 else ', 'return ', case='glue/mrpc')
@mutation('return texts[language]', 'return next(iter(texts.values()))', case='xnli')
def test_every_task_is_read_with_the_features_of_tfds(name, store):
  config = recipes.get_config(name)
  sections.complete(config)
  given = (config.data.train, config.data.dev, *(e.file for e in config.evals.values()))
  files = {path for path in given if path}
  if name == 'xnli':  # a file a language, of which two are enough to read
    assert len(files) == 16
    files = {config.data.dev, 'tfds:xnli:validation:sw'} & files
  with prepared():
    found = {path: encoded(config, path, store) for path in files}
  spelled = lambda row: ' '.join(PIECES[i] for i in row).replace(' ##', '')
  said = {path: [spelled(row) for row in each.id_n] for path, each in found.items()}
  labels = {k: v.tolist() for k, v in found[config.data.dev].label.items()}
  if name == 'xnli':
    assert said['tfds:xnli:validation:sw'] == ['[CLS] p sw [SEP] h sw [SEP]']
    assert labels == dict(label=[2])
  elif name.startswith('glue/'):
    assert labels == dict(label=[1])
    pair = name not in ('glue/cola', 'glue/sst2')
    assert all(row.count('[SEP]') == 1 + pair for (row,) in said.values())
    assert len(said) == (3 if name == 'glue/mnli' else 2)
  elif name.startswith('race'):
    assert said[config.data.train] == [
      '[CLS] long [SEP] who x [SEP] [CLS] long [SEP] who y [SEP]',
      '[CLS] long [SEP] what z [SEP] [CLS] long [SEP] what w [SEP]',
    ]
    assert labels == dict(right=[[0, 1], [1, 0]])
  elif name == 'conll2003':
    tags = found[config.data.train].token_label['tag']
    assert said[config.data.train] == ['[CLS] eu rejects [SEP]']
    assert 3 in tags[0].tolist()  # B-ORG
  else:
    assert said[config.data.train] == ['[CLS] who [SEP] ada was here [SEP]']


NEAREST = {
  'tfds:xnlii:train': r"Dataset xnlii not found; did you mean 'xnli'\?$",
  'tfds:glu/mrpc:train': r"Dataset glu not found; did you mean 'glue'\?$",
  'tfds:glue/mrpcs:train': r"mrpcs not found .*; did you mean 'glue/mrpc'\?$",
  'tfds:glue/mrpc:9.9.9:train': 'cannot be loaded at version 9.9.9, only: 2.0.0, [0-9., ]*$',
}


@pytest.mark.parametrize('path', NEAREST)
@mutation('in known else nearest(own, known)', 'else nearest(own, known)', case='tfds:xnlii:train')
@mutation('  if own in known:', '  if own in known and not variant:', case='tfds:glue/mrpcs:train')
@mutation('(ValueError, AssertionError) as', 'ValueError as', case='tfds:glue/mrpc:9.9.9:train')
def test_the_nearest_name_that_tfds_has_is_said(path):
  with pytest.raises(UserError, match=NEAREST[path]):
    next(iter(datasets.examples(path)))


@pytest.mark.parametrize(
  ('path', 'said'),
  [
    ('tfds:glue/mrpc', 'expected tfds:NAME:SPLIT'),
    ('tfds:xnli:validation', 'texts in 15 languages: expected one behind it'),
    ('tfds:xnli:validation:nl', "expected one of ar, bg, .* got 'nl'"),
  ],
)
def test_a_name_that_tfds_does_not_have_is_refused(path, said):
  config = recipes.get_config('xnli')
  task, options = from_config.task_of(config.data.task)
  with prepared(), pytest.raises(UserError, match=said):
    list(task.read(path, options))
  config.data.task.text = ('premise', 'hypotesis')
  with (
    prepared(),
    pytest.raises(UserError, match="expected 'hypotesis' .*; did you mean 'hypothesis'"),
  ):
    list(task.read('tfds:xnli:validation:de', from_config.task_of(config.data.task)[1]))


def test_what_cannot_be_downloaded_is_said_with_the_remedy(monkeypatch, tmp_path):
  from bertjax.examples.seqio_tasks.loaded import tfds

  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  monkeypatch.setattr(
    tfds.core.DatasetBuilder, 'download_and_prepare',
    lambda *_: (_ for _ in ()).throw(ConnectionError('no route')),
  )  # fmt: skip
  with pytest.raises(UserError, match=r'could not get it \(no route\): run `tfds build glue/mrpc`'):
    next(iter(datasets.examples('tfds:glue/mrpc:train')))
