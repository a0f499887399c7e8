"""Worker processes of `prepare`: they take documents as bytes and return ids.

Only NumPy, tokenizers and sentencepiece are imported here, so a worker starts in a moment.
"""

import collections
import concurrent.futures
import functools
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bertjax.errors import UserError
from bertjax.machine.pool import Pool
from bertjax.text import documents as documents_lib
from bertjax.text import phrases, sentence_split
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary


class Options(NamedTuple):
  """The options by which documents become ids."""

  vocab: str  # and `lowercase`: arguments of `load_vocabulary`
  lowercase: bool | None
  split: str  # 'lines', 'sentences' or 'verbatim'
  errors: str  # 'strict' or 'replace', for bytes that are not UTF-8
  columns: Sequence[str] = ()
  lexicon: str = ''  # and `segmenter`: arguments of `phrases.finder`
  segmenter: str = ''
  skip_bad: bool = False  # malformed documents are left out, not refused


# What is counted of each document, as `builder.Stats` adds it up.
COUNTED = ('bytes', 'empty_sentences', 'replaced', 'broken_pairs', 'spelled_special')


class Encoded(NamedTuple):
  """A batch of D documents of S sentences."""

  token_n: np.ndarray  # int32 ids, sentence by sentence
  length_S: np.ndarray  # int64 tokens of each sentence, > 0
  size_D: np.ndarray  # int64 sentences of each document; 0 where nothing is left of it
  counted: Mapping[str, np.ndarray]  # names of COUNTED -> int64 per document
  unit_n: np.ndarray | None = None  # uint8, as `phrases.unit_starts` returns it, if looked for
  column: Mapping[str, np.ndarray] = {}  # uint8 per sentence; `language` int32, into `languages`
  languages: Sequence[str] = ()  # in the order of their first mention in the batch
  bad: Mapping[int, str] = {}  # number in the batch -> what is wrong, of documents left out
  whole: bool = True  # a part of the store may end behind the batch

  def between(self, first: int, last: int, whole: bool) -> 'Encoded':
    """Returns the documents from `first` to before `last`."""
    unit_D = np.append(0, np.cumsum(self.size_D))
    units = slice(*unit_D[[first, last]])
    token_S = np.append(0, np.cumsum(self.length_S))
    tokens = slice(*token_S[unit_D[[first, last]]])
    return Encoded(
      self.token_n[tokens],
      self.length_S[units],
      self.size_D[first:last],
      {name: count_D[first:last] for name, count_D in self.counted.items()},
      None if self.unit_n is None else self.unit_n[tokens],
      {name: value_S[units] for name, value_S in self.column.items()},
      self.languages,
      {number - first: what for number, what in self.bad.items() if first <= number < last},
      whole,
    )


def spaced(split: str, vocabulary: Vocabulary) -> bool:
  """Returns whether sentences cut out of a line keep the space before them, which changes ids."""
  return split == sentence_split.SENTENCES and vocabulary.reads_first_space


def encode(documents: list[bytes], vocabulary: Vocabulary, options: Options) -> Encoded:
  """Splits and tokenises a batch of documents. Raises UserError for bytes that are not UTF-8, where
  errors are strict, and columns that do not fit the lines, unless such documents are left out."""
  fields = [()] * len(documents)
  if options.columns:
    parts = [record.split(documents_lib.SEPARATOR, len(options.columns)) for record in documents]
    fields, documents = [part[:-1] for part in parts], [part[-1] for part in parts]
  split, replaced_D, bad = _split(documents, fields, options, spaced(options.split, vocabulary))
  sentences = [sentence for document in split for sentence in document.texts]
  languages_U = [name for document in split for name in document.values.get('language', ())]
  token_n, length_U, unit_n = _tokens(sentences, languages_U, vocabulary, options)
  kept_U = length_U > 0
  size_D = np.array([len(document.texts) for document in split], np.int64)
  end_D = np.append(0, np.cumsum(size_D))
  kept_before_U = np.append(0, np.cumsum(kept_U))
  left_D = np.diff(kept_before_U[end_D])
  broken_D = np.array([document.parallel for document in split], bool) & (left_D < size_D)
  if broken_D.any():
    whole_U = np.repeat(~broken_D, size_D)
    whole_n = np.repeat(whole_U, length_U)
    token_n, unit_n = token_n[whole_n], None if unit_n is None else unit_n[whole_n]
    kept_U, left_D = kept_U & whole_U, np.where(broken_D, 0, left_D)
  column, languages = _columns(split, options.columns)
  counted = dict(
    bytes=[len(document) for document in documents],
    empty_sentences=np.where(broken_D, 0, size_D - left_D),
    replaced=replaced_D,
    broken_pairs=broken_D,
    spelled_special=[vocabulary.count_spelled([document]) for document in documents],
  )
  return Encoded(
    token_n,
    length_U[kept_U],
    left_D,
    {name: np.array(count_D, np.int64) for name, count_D in counted.items()},
    unit_n,
    {name: value_U[kept_U] for name, value_U in column.items()},
    languages,
    bad,
  )


def _split(documents, fields, options, spaced):
  """Returns the sentences, `documents.Sentences`, and the characters replaced of each document, and
  what is wrong with some, by number."""
  split, replaced_D, bad = [], [0] * len(documents), {}
  mark = '\ufffd'
  for document, values in zip(documents, fields, strict=True):
    try:
      text = sentence_split.decode(document, options.errors)
      if options.errors == 'replace':
        replaced_D[len(split)] = text.count(mark) - document.count(mark.encode())
      named = zip(options.columns, values, strict=True)
      said = {name: value.decode('utf-8') for name, value in named}
      split.append(documents_lib.split(text, said, options.split, spaced))
    except UserError as error:
      if not options.skip_bad:
        raise
      bad[len(split)] = str(error)
      split.append(documents_lib.Sentences([], {name: [] for name in options.columns}, False))
  return split, replaced_D, bad


def _tokens(sentences, languages, vocabulary, options):
  """Returns the ids of all sentences, how many each has, and their units or None."""
  find = phrases.finder(options.lexicon, options.segmenter)
  if find is None:
    return *vocabulary.encode_flat(sentences, languages or None), None
  flat = vocabulary.encode_spans(sentences)
  unit_n = phrases.unit_starts(flat, sentences, map(find, sentences), vocabulary.word_starts)
  return *flat[:2], unit_n


def _columns(split, names) -> tuple[dict[str, np.ndarray], list[str]]:
  """Returns the columns of all sentences, and the languages that they number."""
  values = {name: [v for document in split for v in document.values[name]] for name in names}
  languages: list[str] = list(dict.fromkeys(values.get('language', [])))
  if languages:
    number = {name: i for i, name in enumerate(languages)}
    values['language'] = [number[name] for name in values['language']]
  dtype = dict(language=np.int32)  # how many a store may have is for who adds them up
  column = {k: np.array(value, dtype.get(k, np.uint8)) for k, value in values.items()}
  return column, languages


def encode_all(
  batches: Iterable[list[bytes]], options: Options, workers: int
) -> Generator[Encoded, None, None]:
  """Encodes batches of documents in several processes, or one in this process; yields the results
  in order, a bounded number ahead."""
  if workers == 1:
    vocabulary = load_vocabulary(options.vocab, options.lowercase)
    yield from (encode(batch, vocabulary, options) for batch in batches)
    return
  with Pool(workers, functools.partial(_start, options)) as pool:
    ahead: collections.deque[concurrent.futures.Future] = collections.deque()
    try:
      for batch in batches:
        ahead.append(pool.submit(_work, batch))
        if len(ahead) > 2 * workers:
          yield ahead.popleft().result()
      while ahead:
        yield ahead.popleft().result()
    finally:
      for future in ahead:
        future.cancel()


_worker: tuple[Vocabulary, Options]


def _start(options: Options) -> None:
  global _worker
  os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # the processes are the parallelism
  _worker = load_vocabulary(options.vocab, options.lowercase), options


def _work(batch: list[bytes]) -> Encoded:
  return encode(batch, *_worker)
