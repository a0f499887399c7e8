"""Text as seqio Tasks, whose examples are documents, `text`, and may say `language` and `role` of
their lines (see `text.documents`); and corpora of Tasks, Mixtures and TFDS builders.
"""

import contextlib
import functools
import itertools
import math
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bertjax import registry
from bertjax.errors import UserError
from bertjax.examples.seqio_tasks import names
from bertjax.examples.seqio_tasks.loaded import seqio, tf, tfds
from bertjax.text import corpus as corpus_lib
from bertjax.text import documents as documents_lib
from bertjax.text.corpus import Corpus

_STRING = seqio.Feature(seqio.PassThroughVocabulary(size=1), add_eos=False, dtype=tf.string, rank=0)
_FEATURES = dict(text=_STRING)
_BLOCK_BYTES = 2**18  # of documents that go to TensorFlow at once
# Wiki-40B marks articles, sections and paragraphs in its text (tfds catalogue, wiki40b).
_WIKI40B_MARKS = r'\s*_START_(?:ARTICLE|SECTION|PARAGRAPH)_\s*|_NEWLINE_'


class Failing:
  """A source that keeps what its generators raise, of which tf.data makes text."""

  failure: Exception | None = None

  @contextlib.contextmanager
  def keeping(self) -> Iterator[None]:
    """Keeps what is raised within."""
    try:
      yield
    except Exception as error:
      self.failure = error
      raise


@contextlib.contextmanager
def own_failures(name: str, tasks: Iterable[seqio.Task]) -> Iterator[None]:
  """Raises what a source of these Tasks has kept where TensorFlow raises an error of its own, or
  UserError if that is all there is."""
  failure = tf.errors.OpError  # `tf` is gone when the interpreter ends while rows are left
  try:
    yield
  except failure as error:
    found = (getattr(task.source, 'failure', None) for task in tasks)
    unread = UserError(f'{name} cannot be read: {error}')
    raise next(filter(None, found), unread) from error


class StreamSource(Failing, seqio.FunctionDataSource):
  """Documents of a generator as a seqio source."""

  def __init__(self, documents: Callable[[], Iterable[bytes]]):
    self._documents = documents
    super().__init__(self._dataset, splits=['train'])

  def _blocks(self) -> Iterator[list[bytes]]:
    """tf.data takes 40 us for an element from Python, and 2 us for one of a block."""
    with self.keeping():
      yield from documents_lib.blocks(self._documents(), _BLOCK_BYTES)

  def _dataset(self, split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
    spec = tf.TensorSpec([None], tf.string)
    lists = tf.data.Dataset.from_generator(self._blocks, output_signature=spec)
    return lists.unbatch().map(lambda text: {'text': text})


def stream_task(name: str, documents: Callable[[], Iterable[bytes]]) -> seqio.Task:
  """Returns a text Task over a generator of UTF-8 documents, not registered."""
  return seqio.Task(name, StreamSource(documents), output_features=_FEATURES, preprocessors=[])


def tfds_task(name: str, tfds_name: str, field: str = 'text', language: str = '') -> seqio.Task:
  """Builds a text Task over a TFDS builder ('NAME:VERSION' or 'NAME/CONFIG:VERSION'), not
  registered; `field` is the builder's feature that holds the text, `language` of all documents, or
  ''."""

  def document(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor | str]:
    text = example[field]
    if tfds_name.startswith('wiki40b'):
      text = tf.strings.regex_replace(text, _WIKI40B_MARKS, '\n')
    return dict(text=text, language=language) if language else dict(text=text)

  return seqio.Task(
    name,
    seqio.TfdsDataSource(tfds_name=tfds_name),
    output_features=_FEATURES | (dict(language=_STRING) if language else {}),
    preprocessors=[lambda dataset: dataset.map(document, num_parallel_calls=2)],
  )


def open_corpus(name: str, documents: int = 0, module: str = '', **how: Any) -> Corpus:
  """Opens text by what names it: a registered seqio Task or Mixture; 'tfds:NAME',
  'tfds:NAME/CONFIG' or 'tfds:NAME:VERSION'; or files, as `corpus.open_files` takes them with `how`.
  Takes so many documents, those of a Mixture drawn at its rates; 0: one pass over everything.
  `module` is imported first and registers Tasks, whose columns are all read that are features.
  Raises UserError if nothing has this name, it has no text, or a member of a Mixture has none."""
  if module:
    registry.load(module, '--module')
  if name in registered_names():
    corpus = _registered(name, documents)
  elif name.startswith('tfds:'):
    corpus = _from_tfds(name, how.get('field', 'text'), how.get('columns', ()))
  else:
    corpus = names.open_files(name, registered_names(), **how)
  corpus.left_out.skip = how.get('skip_bad', False)
  return corpus.first(documents) if documents else corpus


def registered_names() -> list[str]:
  """Returns the names of all registered seqio Tasks and Mixtures."""
  return [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]


def _records(
  name: str, tasks: Sequence[seqio.Task], dataset: Callable[[], tf.data.Dataset]
) -> Callable[[int], Iterator[bytes]]:
  """Returns the `records` of a Corpus over the strings of a dataset."""

  def records(skip: int) -> Iterator[bytes]:
    strings = dataset().skip(skip).batch(16).prefetch(4)
    with own_failures(name, tasks):
      yield from itertools.chain.from_iterable(strings.as_numpy_iterator())

  return records


def _strings(name: str, dataset: tf.data.Dataset, columns: Sequence[str] = ()) -> tf.data.Dataset:
  spec: Any = dataset.element_spec
  if 'text' not in spec or spec['text'].dtype != tf.string or spec['text'].shape.rank != 0:
    raise UserError(
      f'{name} has the features {sorted(spec)}: expected one string `text`, a document. A Task of '
      'finished training examples is read with --config.data.reader=seqio, not prepared'
    )
  separator = documents_lib.SEPARATOR.decode()
  join = lambda example: tf.strings.join([example[k] for k in (*columns, 'text')], separator)
  return dataset.map(join if columns else lambda example: example['text'])


def _one_pass(task: seqio.Task, columns: Sequence[str] = ()) -> tf.data.Dataset:
  # seqio's cache of small datasets asks TFDS for a size that it does not know before generation.
  dataset = task.get_dataset(None, split='train', shuffle=False, try_in_mem_cache=False)
  return _strings(task.name, dataset, columns)


def _registered(name: str, documents: int) -> Corpus:
  provider = seqio.get_mixture_or_task(name)
  tasks = seqio.get_subtasks(provider)
  versions = [dict(task=task.name, **_version(task)) for task in tasks]
  columns = [name for name in documents_lib.COLUMNS if name in provider.output_features]
  one_pass = functools.partial(_one_pass, columns=columns)
  if isinstance(provider, seqio.Mixture):
    _refuse_empty_members(provider.name, {task.name: one_pass(task) for task in tasks})
  if documents and isinstance(provider, seqio.Mixture):
    draw = functools.partial(provider.get_dataset, None, split='train', shuffle=False, seed=0)
    drawn = lambda: _strings(name, draw(num_epochs=None, try_in_mem_cache=False), columns)
    records = _records(name, tasks, drawn)
    return Corpus(name, versions, records, columns=columns, members=len(tasks))
  chain = lambda: functools.reduce(tf.data.Dataset.concatenate, map(one_pass, tasks))
  sizes = [size_of(task) for task in tasks]
  known = sum(filter(None, sizes)) if all(sizes) else None
  records = _records(name, tasks, chain)
  return Corpus(name, versions, records, known, columns=columns, members=len(tasks))


def _refuse_empty_members(name: str, members: dict[str, tf.data.Dataset]) -> None:
  """Raises UserError where a member has no document: its rate would mean nothing."""
  for member, dataset in members.items():
    if not sum(1 for _ in dataset.take(1)):
      raise UserError(
        f'{name}: its member {member} has no document: give it text, or leave it out of the Mixture'
      )


def _version(task: seqio.Task) -> dict[str, str]:
  """Returns the versions, besides the Task's name, that its text depends on."""
  if isinstance(task.source, seqio.TfdsDataSource):
    return dict(tfds=str(task.source.tfds_dataset.name))
  return dict(python=platform.python_version()) if task.name == corpus_lib.PYTHON_DOCS else {}


def _from_tfds(name: str, field: str, columns: Sequence[str]) -> Corpus:
  builder_name = name.removeprefix('tfds:')
  if not re.fullmatch(r'[^:]*(:\d[\d.*]*)?', builder_name):
    raise UserError(
      f'{name}: text of a builder is that of its split train, expected tfds:NAME, tfds:NAME/CONFIG '
      'or tfds:NAME:VERSION. For another split register a Task of it (--module)'
    )
  if columns:
    raise UserError(
      f'{name} has no columns but its text, got --columns={",".join(columns)}: leave it out, or '
      'register a Task with features of these names (--module)'
    )
  try:
    builder = tfds.builder(builder_name)
  except (tfds.core.DatasetNotFoundError, ValueError) as error:
    raise UserError(f'{name}: {str(error).splitlines()[0]}') from error
  features: Any = builder.info.features
  strings = [key for key, value in features.items() if isinstance(value, tfds.features.Text)]
  if field not in strings:
    raise UserError(
      f'{name} has no text feature {field!r}; its strings are {sorted(strings)}: name one with '
      '--field'
    )
  config = f'/{builder.builder_config.name}' if builder.builder_config else ''
  versioned = f'{builder.name}{config}:{builder.version}'
  task = tfds_task('tfds_' + builder.name, versioned, field)
  records = _records(name, [task], lambda: _one_pass(task))
  return Corpus(name, [dict(tfds=versioned)], records, size_of(task))


def size_of(task: seqio.Task) -> int | None:
  """Returns the number of documents of a Task, or None if it is unknown."""
  source = task.source
  if isinstance(source, seqio.TfdsDataSource) and 'train' not in source.tfds_dataset.info.splits:
    return None
  size = source.num_input_examples('train')
  return int(size) if size and math.isfinite(size) else None
