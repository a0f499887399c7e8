"""Text as seqio Tasks: TFDS, registered Tasks and Mixtures."""

import collections
import importlib.util
import os

import pytest
from mutation import mutation
from slow_imports import corpora, loaded, seqio, tf, tfds

from bertjax import text_flags
from bertjax.examples.seqio_tasks import names

REGISTERING = """
import seqio
from bertjax.examples.seqio_tasks.corpora import stream_task

seqio.TaskRegistry.add_provider(
  'my_text', stream_task('my_text', lambda: (f'mine {i}'.encode() for i in range(300)))
)
seqio.TaskRegistry.add_provider('more_text', stream_task('more_text', lambda: [b'more'] * 7))
seqio.MixtureRegistry.add('my_mixture', [('my_text', 3), ('more_text', 1)])
"""


@pytest.fixture(scope='module', autouse=True)
def registered_tasks():
  importlib.import_module('bertjax.examples.seqio_tasks.registered')


def texts(corpus):
  return [text.decode() for batch in corpus.batches() for text in batch]


@pytest.fixture(scope='module')
def module(tmp_path_factory):
  """A user's module that registers Tasks; its name."""
  directory = tmp_path_factory.mktemp('user')
  (directory / 'user_tasks.py').write_text(REGISTERING)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(directory)
    yield 'user_tasks'


@pytest.mark.parametrize('name', ['lm1b', 'wiki40b/en'])
def test_tfds_builders_by_name(name):
  with tfds.testing.mock_data(num_examples=5):
    assert len(texts(corpora.open_corpus(f'tfds:{name}'))) == 5


@pytest.mark.parametrize(('name', 'members'), [('wikipedia', 1), ('wikipedia_books', 2)])
def test_registered_corpora_in_one_pass(name, members):
  with tfds.testing.mock_data(num_examples=3):
    assert len(texts(corpora.open_corpus(name))) == 3 * members


def test_users_tasks_and_mixtures(module):
  mine = corpora.open_corpus('my_text', module=module)
  assert texts(mine) == [f'mine {i}' for i in range(300)]
  once = collections.Counter(text.split()[0] for text in texts(corpora.open_corpus('my_mixture')))
  assert once == dict(mine=300, more=7)
  drawn = texts(corpora.open_corpus('my_mixture', documents=2000))
  assert drawn == texts(corpora.open_corpus('my_mixture', documents=2000))
  count = collections.Counter(text.split()[0] for text in drawn)
  assert len(drawn) == 2000 and abs(count['mine'] / 2000 - 0.75) < 0.03


@pytest.mark.full
def test_members_of_the_multilingual_mixture_say_their_language():
  with tfds.testing.mock_data(num_examples=2):
    corpus = corpora.open_corpus('wiki40b_languages')
    records = [record for batch in corpus.batches() for record in batch]
  assert corpus.columns == ['language']
  said = [record.split(b'\x1f')[0].decode() for record in records]
  assert said == [language for language in names.LANGUAGES for _ in range(2)]


def test_example_tasks_are_told_apart():
  if 'not_text' not in seqio.TaskRegistry.names():
    source = seqio.FunctionDataSource(
      lambda split, shuffle_files: tf.data.Dataset.from_tensors({'inputs': [1]}), ['train']
    )
    vocabulary = seqio.PassThroughVocabulary(size=9)
    features = {'inputs': seqio.Feature(vocabulary, add_eos=False)}
    seqio.TaskRegistry.add('not_text', source=source, preprocessors=[], output_features=features)
  with pytest.raises(ValueError, match=r"\['inputs'\]: expected one string `text`"):
    texts(corpora.open_corpus('not_text'))


def test_mistakes_are_named():
  with pytest.raises(ValueError, match="did you mean 'wikipedia'"):
    corpora.open_corpus('wikipeda')
  with pytest.raises(ValueError, match='tfds:nope'):
    corpora.open_corpus('tfds:nope')
  with pytest.raises(ValueError, match="no text feature 'text'.*book_text.*--field"):
    corpora.open_corpus('tfds:pg19')
  for rest in ('test', '1.0.0:test'):
    with pytest.raises(ValueError, match=f'tfds:pg19:{rest}: text of a builder is .* split train'):
      corpora.open_corpus(f'tfds:pg19:{rest}', field='book_text')
  with pytest.raises(ValueError, match='got --columns=language: leave it out, or register a Task'):
    corpora.open_corpus('tfds:pg19', field='book_text', columns=('language',))


@mutation("    load('loaded').leave_gpus()\n", '', file='bertjax/text_flags.py')
@mutation(
  'contextlib.suppress(RuntimeError)',
  'contextlib.nullcontext()',
  file='bertjax/examples/seqio_tasks/loaded.py',
)
def test_who_opens_text_leaves_the_gpus_to_jax_and_who_imports_does_not(monkeypatch):
  hidden = []

  def hide(*given):
    hidden.append(given)
    raise RuntimeError('Visible devices cannot be modified after being initialized')

  monkeypatch.setattr(tf.config, 'set_visible_devices', hide)
  spec = importlib.util.find_spec('bertjax.examples.seqio_tasks.corpora')
  assert spec and spec.loader
  spec.loader.exec_module(importlib.util.module_from_spec(spec))
  assert not hidden
  assert text_flags._opened('lm1b', 1, '') and hidden == [([], 'GPU')]


@mutation('if not greeting.match(line)', 'if greeting.match(line)')
@pytest.mark.parametrize(
  'level, shown', [('3', b''), ('1', b'E0000 00:00 c\n'), ('0', b'I0000 00:00 b\nE0000 00:00 c\n')]
)
def test_greetings_alone_are_kept_from_the_screen(capfdbinary, monkeypatch, level, shown):
  monkeypatch.setenv('TF_CPP_MIN_LOG_LEVEL', level)
  with pytest.raises(KeyError), loaded.without_greetings():
    os.write(2, b'I0000 00:00 b\nE0000 00:00 c\nImported: E0000\n')
    raise KeyError
  assert capfdbinary.readouterr().err == shown + b'Imported: E0000\n'
