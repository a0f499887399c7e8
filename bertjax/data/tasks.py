"""Text as seqio Tasks, whose examples are documents, `text`; and corpora opened by what names them.

Registered here:

  python_docs          the documentation that every Python carries
  wikipedia, wiki40b, c4, lm1b, books    from TFDS; books are those of Project Gutenberg (PG-19),
                       since the BookCorpus of the papers is not to be had
  wikipedia_books      a Mixture of two, in proportion to their documents
  wiki40b_LANGUAGE, wiki40b_languages    a Mixture over languages, p ~ size^0.7

A user's module does the same with its own (`--module`), and its names work like these.
"""

import dataclasses
import difflib
import functools
import importlib
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import seqio  # noqa: E402  (after the environment that TensorFlow reads)
import tensorflow as tf  # noqa: E402
import tensorflow_datasets as tfds  # noqa: E402

from bertjax.data import python_docs  # noqa: E402
from bertjax.data.sources import Files, find_files  # noqa: E402

tf.config.set_visible_devices([], 'GPU')  # which are JAX's

# Of the smoothed language sampling of multilingual BERT (google-research/bert, multilingual.md).
SMOOTHING = 0.7
LANGUAGES = (
  'ar',
  'de',
  'en',
  'es',
  'fr',
  'hi',
  'id',
  'it',
  'ja',
  'ko',
  'nl',
  'pt',
  'ru',
  'tr',
  'vi',
)
LANGUAGES += ('zh-cn',)

_FEATURES = {
  'text': seqio.Feature(seqio.PassThroughVocabulary(size=1), add_eos=False, dtype=tf.string, rank=0)
}
_BLOCK_BYTES = 2**18  # of documents that go to a worker at once
_WIKI40B = r'\s*_START_(?:ARTICLE|SECTION|PARAGRAPH)_\s*|_NEWLINE_'


class _Stream:
  """Documents of a generator as a seqio source.

  tf.data turns an exception of the generator into text, so it is kept here.
  """

  def __init__(self, documents: Callable[[], Iterable[bytes]]):
    self.documents = documents
    self.failure: Exception | None = None

  def _blocks(self) -> Iterator[list[bytes]]:
    """tf.data takes 40 us for an element from Python, and 2 us for one of a block."""
    try:
      yield from blocks(self.documents())
    except Exception as error:
      self.failure = error
      raise

  def dataset(self, split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    """The documents, `{'text': string}`; there is nothing to shuffle."""
    spec = tf.TensorSpec([None], tf.string)
    lists = tf.data.Dataset.from_generator(self._blocks, output_signature=spec)
    return lists.unbatch().map(lambda text: {'text': text})


def blocks(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
  """Groups documents; where a group ends follows from its first document alone, so a resumed run
  groups as an uninterrupted one does."""
  block, size = [], 0
  for document in documents:
    block.append(document)
    size += len(document)
    if size >= _BLOCK_BYTES:
      yield block
      block, size = [], 0
  if block:
    yield block


def stream_task(name: str, documents: Callable[[], Iterable[bytes]]) -> tuple[seqio.Task, _Stream]:
  """A text Task over a generator of UTF-8 documents, not registered."""
  stream = _Stream(documents)
  source = seqio.FunctionDataSource(stream.dataset, splits=['train'])
  return seqio.Task(name, source, output_features=_FEATURES, preprocessors=[]), stream


def tfds_task(name: str, tfds_name: str, field: str = 'text') -> seqio.Task:
  """A text Task over a TFDS builder, not registered.

  Args:
    name: of the Task.
    tfds_name: 'NAME:VERSION' or 'NAME/CONFIG:VERSION'.
    field: the builder's feature that holds the text.
  """
  preprocessors: list[Callable] = [functools.partial(_keep_text, field=field)]
  if tfds_name.startswith('wiki40b'):
    preprocessors.append(_clean_wiki40b)
  source = seqio.TfdsDataSource(tfds_name=tfds_name)
  return seqio.Task(name, source, output_features=_FEATURES, preprocessors=preprocessors)


def _keep_text(dataset: tf.data.Dataset, field: str) -> tf.data.Dataset:
  return dataset.map(lambda example: {'text': example[field]}, num_parallel_calls=2)


def _clean_wiki40b(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Its articles, sections and paragraphs are marked in the text (tfds catalogue, wiki40b)."""
  clean = lambda text: tf.strings.regex_replace(text, _WIKI40B, '\n')
  return dataset.map(lambda example: {'text': clean(example['text'])}, num_parallel_calls=2)


def smoothed(task: seqio.Task, alpha: float = SMOOTHING) -> float:
  """A mixing rate ~ documents^alpha: small languages are drawn more often than their share."""
  return documents_of(task) ** alpha


def documents_of(task: seqio.Task) -> float:
  """A mixing rate ~ documents: the mixture of one pass over all members.

  Raises:
    ValueError: TFDS has not generated the data yet, so their number is not known.
  """
  size = _size(task)
  if size is None:
    raise ValueError(
      f'{task.name}: the number of documents is not known before the data are there. Generate them '
      'with `tfds build`, or mix with rates of your own'
    )
  return float(size)


def _size(task: seqio.Task) -> int | None:
  """How many documents it has, or None where that is not known."""
  source = task.source
  if isinstance(source, seqio.TfdsDataSource) and 'train' not in source.tfds_dataset.info.splits:
    return None
  size = source.num_input_examples('train')
  return int(size) if size and math.isfinite(size) else None


@dataclasses.dataclass
class Corpus:
  """Documents, one after the other.

  Attributes:
    name: of the corpus.
    fingerprint: what its text depends on, for store.json.
    dataset: makes the strings.
    documents: how many, or None where that is not known.
    stream: what fails where a generator fails, or None.
    files: what tells how far reading has come, or None.
  """

  name: str
  fingerprint: list
  dataset: Callable[[], tf.data.Dataset]
  documents: int | None = None
  stream: _Stream | None = None
  files: Files | None = None

  def batches(self, skip: int = 0) -> Iterator[list[bytes]]:
    """Yields groups of documents, without the first `skip` documents.

    Raises:
      ValueError: what is wrong with the source, by name and place.
    """
    strings = self.dataset().skip(skip).batch(16).prefetch(4)
    try:
      yield from blocks(text for batch in strings.as_numpy_iterator() for text in batch)
    except tf.errors.OpError as error:
      failure = self.stream.failure if self.stream else None
      raise failure or ValueError(f'{self.name} cannot be read: {error}') from error

  def done(self, position: int) -> float | None:
    """Which part of the corpus lies before this document, if that is known."""
    if self.files:
      return self.files.done / max(self.files.total, 1)
    return position / self.documents if self.documents else None


def open_corpus(
  name: str, documents: int = 0, module: str = '', errors: str = 'strict', field: str = 'text'
) -> Corpus:
  """Opens text by what names it.

  Args:
    name: the name of a registered seqio Task or Mixture; 'tfds:NAME' or 'tfds:NAME/CONFIG'; or a
      comma list of files and globs.
    documents: 0 for one pass over everything; else so many documents, those of a Mixture drawn at
      its rates.
    module: imported first; registers Tasks and Mixtures.
    errors: of files: 'strict' or 'replace'.
    field: of JSON lines and TFDS builders, which holds the text.

  Raises:
    ValueError: nothing has this name, or it has no text.
  """
  if module:
    importlib.import_module(module)
  if name in seqio.TaskRegistry.names() or name in seqio.MixtureRegistry.names():
    corpus = _registered(name, documents)
  elif name.startswith('tfds:'):
    corpus = _from_tfds(name, field)
  else:
    corpus = _from_files(name, errors, field)
  if documents:
    whole = corpus.dataset
    corpus = dataclasses.replace(
      corpus, dataset=lambda: whole().take(documents), documents=documents, files=None
    )
  return corpus


def _strings(name: str, dataset: tf.data.Dataset) -> tf.data.Dataset:
  spec: Any = dataset.element_spec
  if 'text' not in spec or spec['text'].dtype != tf.string or spec['text'].shape.rank != 0:
    raise ValueError(
      f'{name} has the features {sorted(spec)}: expected one string `text`, a document. A Task of '
      'finished training examples is read with --config.data.reader=seqio, not prepared'
    )
  return dataset.map(lambda example: example['text'])


def _one_pass(task: seqio.Task) -> tf.data.Dataset:
  # seqio's cache of small datasets asks TFDS for a size that it does not know before generation.
  dataset = task.get_dataset(None, split='train', shuffle=False, try_in_mem_cache=False)
  return _strings(task.name, dataset)


def _registered(name: str, documents: int) -> Corpus:
  provider = seqio.get_mixture_or_task(name)
  fingerprint = python_docs.fingerprint() if name == 'python_docs' else [dict(task=name)]
  tasks = seqio.get_subtasks(provider)
  if documents and isinstance(provider, seqio.Mixture):
    drawn = functools.partial(
      provider.get_dataset,
      None,
      split='train',
      shuffle=False,
      seed=0,
      num_epochs=None,
      try_in_mem_cache=False,
    )
    return Corpus(name, fingerprint, lambda: _strings(name, drawn()))
  chain = lambda: functools.reduce(tf.data.Dataset.concatenate, map(_one_pass, tasks))
  sizes = [_size(task) for task in tasks]
  known = sum(filter(None, sizes)) if all(sizes) else None
  stream = _STREAMS.get(name)
  return Corpus(name, fingerprint, chain, known, stream)


def _from_tfds(name: str, field: str) -> Corpus:
  builder_name = name.removeprefix('tfds:').split(':')[0]
  try:
    builder = tfds.builder(builder_name)
  except (tfds.core.DatasetNotFoundError, ValueError) as error:
    raise ValueError(f'{name}: {error}') from error
  features: Any = builder.info.features
  strings = [key for key, value in features.items() if isinstance(value, tfds.features.Text)]
  if field not in strings:
    raise ValueError(
      f'{name} has no text feature {field!r}; its strings are {sorted(strings)}: name one with '
      '--field'
    )
  config = f'/{builder.builder_config.name}' if builder.builder_config else ''
  versioned = f'{builder.name}{config}:{builder.version}'
  task = tfds_task('tfds_' + builder.name, versioned, field)
  return Corpus(name, [dict(tfds=versioned)], lambda: _one_pass(task), _size(task))


def _from_files(name: str, errors: str, field: str) -> Corpus:
  try:
    files = Files(find_files(name), errors, field)
  except ValueError as error:
    known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
    near = difflib.get_close_matches(name, known, 1)
    raise ValueError(f'{error}' + (f'. Did you mean {near[0]!r}?' if near else '')) from error
  if not files.total:
    raise ValueError(f'{name}: all files are empty')
  task, stream = stream_task('files', lambda: files)
  title = pathlib.Path(name.split(',')[0]).name
  return Corpus(title, files.fingerprint, lambda: _one_pass(task), stream=stream, files=files)


def _register_corpora() -> None:
  add = seqio.TaskRegistry.add_provider
  task, _STREAMS['python_docs'] = stream_task('python_docs', python_docs.documents)
  add('python_docs', task)
  for name, tfds_name, field in (
    ('wikipedia', 'wikipedia/20230601.en:1.0.0', 'text'),
    ('wiki40b', 'wiki40b/en:1.3.0', 'text'),
    ('c4', 'c4/en:3.1.0', 'text'),
    ('lm1b', 'lm1b:1.1.0', 'text'),
    ('books', 'pg19:0.1.1', 'book_text'),
  ):
    add(name, tfds_task(name, tfds_name, field))
  seqio.MixtureRegistry.add('wikipedia_books', ['wikipedia', 'books'], default_rate=documents_of)
  names = {language: f'wiki40b_{language.replace("-", "_")}' for language in LANGUAGES}
  for language, name in names.items():
    add(name, tfds_task(name, f'wiki40b/{language}:1.3.0'))
  seqio.MixtureRegistry.add('wiki40b_languages', list(names.values()), default_rate=smoothed)


_STREAMS: dict[str, _Stream] = {}
_register_corpora()
