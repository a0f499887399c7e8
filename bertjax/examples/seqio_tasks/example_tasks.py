"""Complete training examples as seqio Tasks, made by the plans and maskings of the store.

One example is one row of the batch of `bertjax.types`. Its features are named like the arrays,
without their B: token_BT is token_T, dropped_B is dropped.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bertjax import registry
from bertjax.errors import UserError
from bertjax.examples.examples import examples_in_memory
from bertjax.examples.seqio_tasks.corpora import (
  Failing,
  open_corpus,
  own_failures,
  registered_names,
)
from bertjax.examples.seqio_tasks.loaded import seqio, tf
from bertjax.examples.seqio_tasks.windows import (
  WINDOW,
  batch_name,
  encode_store,
  feature_name,
  probe,
  window_seed,
  windows,
)
from bertjax.store import encode
from bertjax.text import sentence_split
from bertjax.text.corpus import Corpus
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

Provider = seqio.Task | seqio.Mixture
_BLOCK = 256  # examples that cross from Python to tf.data at once


class ExampleSource(Failing, seqio.DataSource):
  """Windows of documents as a seqio source, and `examples`, which makes rows of them.

  seqio repeats the source, before any example is made of it. So a window carries its number, and
  the epoch follows from that.
  """

  def __init__(self, text: str, vocab: Callable[[], str], recipe: Any, length: int, options: dict):
    """Reads nothing yet; arguments and errors of `example_task`, whose options are seed and
    window."""
    self.vocab = functools.cache(vocab)
    self.row = probe(recipe, length)
    self._text, self._recipe, self._length, self._options = text, recipe, length, options
    # The rows of a window are permuted where seqio asks for a shuffle.
    super().__init__(splits=['train'], performs_internal_shuffling=True)

  @property
  def supports_arbitrary_sharding(self) -> bool:
    """The documents are read in order."""
    return False

  def list_shards(self, split: str) -> list[str]:
    """One; seqio deals the windows out where it needs more."""
    return [split]

  def get_dataset(
    self, split: str = 'train', shuffle: bool = True, seed: int | None = None, **unused: Any
  ) -> tf.data.Dataset:
    """Returns windows, and how `examples` is to make rows of them. Raises UserError: no such text,
    or one in languages that the recipe does not number."""
    # Here, since what is raised within a generator comes as TensorFlow's own.
    if 'language' in self._corpus.columns and not self._recipe.languages:
      raise UserError(
        f'{self._text} is in several languages, and its rows are made of some documents at a time, '
        'which would number them by what they have: expected the names of all in their order, '
        'languages=(..) of the recipe (config.data.languages)'
      )
    spec = dict(documents=tf.TensorSpec([None], tf.string), window=tf.TensorSpec([], tf.int64))
    how = dict(seed=np.int64(self._options['seed'] if seed is None else seed), shuffle=shuffle)
    dataset = tf.data.Dataset.from_generator(self._windows, output_signature=spec)
    return dataset.map(lambda window: window | how)

  def examples(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Makes the rows of windows, as a preprocessor of seqio."""
    spec = {
      feature_name(key): tf.TensorSpec((None, *value.shape[1:]), value.dtype)
      for key, value in self.row.items()
    }

    def number(state, window):
      epoch, before = state
      epoch += tf.cast(window['window'] <= before, tf.int64)
      return (epoch, window['window']), dict(window, epoch=epoch)

    def rows(window):
      names = ('documents', 'window', 'epoch', 'seed', 'shuffle')
      args = tuple(window[name] for name in names)
      return tf.data.Dataset.from_generator(self._rows, args=args, output_signature=spec)

    start = (tf.constant(0, tf.int64), tf.constant(-1, tf.int64))
    return dataset.scan(start, number).flat_map(rows).unbatch()

  def _windows(self) -> Iterator[dict[str, Any]]:
    with self.keeping():
      documents = itertools.chain.from_iterable(self._corpus.batches())
      for number, window in enumerate(windows(documents, self._options['window'])):
        yield dict(documents=window, window=number)

  def _rows(self, documents_D, window, epoch, seed, shuffle) -> Iterator[dict[str, np.ndarray]]:
    with self.keeping():
      store = encode_store(self._text, list(documents_D), *self._coder)
      seed = window_seed(int(seed), int(window))
      examples = examples_in_memory(store, self._recipe, self._length, seed)
      for first in range(0, examples.rows, _BLOCK):
        row_n = int(epoch) * examples.rows + np.arange(first, min(first + _BLOCK, examples.rows))
        batch = examples.batch(row_n, bool(shuffle))
        yield {feature_name(key): value for key, value in batch.items()}

  @functools.cached_property
  def _corpus(self) -> Corpus:
    recipe = self._recipe
    return open_corpus(
      self._text,
      recipe.documents,
      errors=recipe.errors,
      field=recipe.field,
      columns=tuple(recipe.columns),
      verbatim=recipe.split == sentence_split.VERBATIM,
      skip_bad=recipe.skip_bad,
    )

  @functools.cached_property
  def _coder(self) -> tuple[Vocabulary, encode.Options]:
    recipe = self._recipe
    options = encode.Options(
      self.vocab(),
      recipe.lowercase,
      self._corpus.detect(recipe.split),
      recipe.errors,
      tuple(self._corpus.columns),
      recipe.lexicon,
      recipe.segmenter,
      recipe.skip_bad,
    )
    return load_vocabulary(options.vocab, options.lowercase), options


def example_task(
  name: str,
  text: str,
  vocab: str | Callable[[], str],
  recipe: Mapping[str, Any],
  length: int,
  seed: int = 0,
  window: int = WINDOW,
) -> seqio.Task:
  """Builds a Task of complete training examples, not registered: of a text as of
  `corpora.open_corpus`, a vocabulary by its path or a function that returns it when examples are
  made, and a recipe, `config.data` or a dict like `BERT_PAIRS`; one that does not work raises
  UserError. Its documents are read in windows, and the rows of a window, of `length` tokens, are
  those of a store of its documents: where the whole corpus fits one (less than two windows), the
  rows and their order are the store's, with shuffle and without. Otherwise rows are shuffled, and
  random next sentences drawn, within a window. `get_dataset` may get another seed."""
  path = vocab if callable(vocab) else lambda: vocab
  options = dict(seed=seed, window=window)
  source = ExampleSource(text, path, ConfigDict(recipe), length, options)
  return seqio.Task(
    name,
    source,
    output_features=features(source.row),
    preprocessors=[source.examples],
    shuffle_buffer_size=None,
  )


def features(row: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Returns the features of a Task of rows like this batch of one."""
  feature = functools.partial(seqio.Feature, seqio.PassThroughVocabulary(size=0), add_eos=False)
  return {
    feature_name(k): feature(dtype=tf.as_dtype(x.dtype), rank=x.ndim - 1) for k, x in row.items()
  }


def add_examples(name: str, *args: Any, **options: Any) -> None:
  """Registers an `example_task`, whose arguments it takes."""
  seqio.TaskRegistry.add_provider(name, example_task(name, *args, **options))


def vocabulary_path(data: Any) -> str | None:
  """Returns the vocabulary of the example Task that config.data.mixture names, or None where it
  does not say. Raises UserError: a Mixture of Tasks with several vocabularies."""
  provider = registered_examples(data)
  sources = [task.source for task in seqio.get_subtasks(provider)] if provider else []
  paths = {source.vocab() if isinstance(source, ExampleSource) else None for source in sources}
  if len(paths) > 1:
    raise UserError(
      f'{data.mixture} mixes examples of several vocabularies: {sorted(map(str, paths))}. Register '
      'its Tasks with one vocabulary'
    )
  return paths.pop() if paths else None


def read_rows(
  provider: Provider, skip: int = 0, split: str = 'train', seed: int | None = None, limit: int = 0
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the examples of a Task, whose features are named like those of an example Task, as
  batches of any size, without the first `skip`: with a seed shuffled and without end, else one pass
  in order; at most `limit`, 0: all."""
  again = seed is not None
  dataset = provider.get_dataset(
    None, split, shuffle=again, seed=seed, num_epochs=None if again else 1, try_in_mem_cache=False
  )
  dataset = dataset.skip(skip).take(limit or -1).batch(_BLOCK // 4)
  with own_failures(provider.name, seqio.get_subtasks(provider)):
    for batch in dataset.as_numpy_iterator():
      rows = {batch_name(name, value.ndim - 1): value for name, value in batch.items()}
      floats = lambda value: np.issubdtype(value.dtype, np.floating)
      yield {k: x.astype(np.float32 if floats(x) else np.int32) for k, x in rows.items()}


def registered_examples(data: Any) -> Provider | None:
  """Returns the Task or Mixture of examples that config.data.mixture names, or None."""
  if data.module:
    registry.load(data.module, 'config.data.module')
  if data.mixture not in registered_names():
    return None
  provider = seqio.get_mixture_or_task(data.mixture)
  return provider if feature_name('token_BT') in provider.output_features else None
