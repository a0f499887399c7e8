"""The token store: a corpus as plain .npy files that are memory-mapped, never loaded.

  store.json       format, counts, vocabulary, source fingerprint, size and sha256 of every file
                   and of itself; written last
  tokens-*.npy     parts, cut between documents: sentences end to end, without special tokens;
                   uint16 or uint32
  sentences.npy    int64 [sentences + 1], offsets into the tokens of all parts
  documents.npy    int64 [documents + 1], offsets into sentences
  counts.npy       int64 [V], how often each id occurs
  word_starts.npy  bool [V], False for ids that continue a word
  units-*.npy      where asked for, uint8 beside each part of tokens: 0 continues a unit, 1 starts a
                   plain word, 2 starts a phrase or entity that a lexicon or segmenter found
  columns/NAME.npy   uint8 [sentences], where the text says it: `language`, an index into the
                   languages of store.json; `role`, who speaks in a dialogue
  vocab/           the vocabulary's files, so that the store stands alone
  heldout/         a store of the documents kept for evaluation; without vocab/

Only NumPy and the vocabulary are imported here: this is the train path.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.machine import checksums, last_words
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary

FORMAT = 2
_REMEDY = 'Make it again with `python -m bertjax.prepare`'
COLUMN_REMEDY = dict(
  language='Make it again with --input=LANGUAGE=FILES, or --columns=language for JSON lines',
  role='Make it again of JSON lines with --columns=role, or of a seqio Task with a feature role',
)


@dataclasses.dataclass(frozen=True, eq=False)
class Store:
  """An opened token store; its arrays are memory-mapped."""

  path: pathlib.Path  # its directory
  meta: Mapping[str, Any]  # `store.json`
  sentences: np.ndarray  # int64 [sentences + 1], offsets into the tokens
  documents: np.ndarray  # int64 [documents + 1], offsets into sentences
  counts: np.ndarray  # int64 [V]
  word_starts: np.ndarray  # bool [V]
  parts: tuple[np.ndarray, ...]  # the tokens
  units: tuple[np.ndarray, ...] = ()  # uint8 beside each part; () if they were not looked for
  columns: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # uint8 [sentences]

  @property
  def languages(self) -> Sequence[str]:
    """Names, by their index in the column `language`; () of text whose language nobody said."""
    return self.meta['languages']

  @property
  def vocabulary_size(self) -> int:
    """V, the number of ids."""
    return self.meta['vocabulary']['size']

  @property
  def special(self) -> Mapping[str, int | None]:
    """cls, sep, pad, mask, unk -> id, or None where the vocabulary has none."""
    return self.meta['vocabulary']['special']

  @property
  def sentinels(self) -> Sequence[int]:
    """Ids of <extra_id_0>, <extra_id_1>, .. of the vocabulary."""
    return self.meta['vocabulary'].get('sentinels', ())

  @functools.cached_property
  def vocabulary(self) -> Vocabulary | None:
    """The vocabulary beside it; None where a store is without its files, as what it holds out."""
    own = self.path / 'vocab'
    return read_vocabulary(own) if own.is_dir() else None

  def reads_as(self, vocabulary: Vocabulary | None, meta: Mapping[str, Any]) -> bool:
    """Returns whether this store gives a text the ids that a vocabulary gives it. `meta` is what
    is said of that vocabulary, by a store that may lie without it."""
    ours = self.meta['vocabulary']  # stores of earlier versions do not say their accents
    keys = [key for key in ('sha256', 'lowercase', 'accents') if key in ours and key in meta]
    alike = all(ours[key] == meta[key] for key in keys)
    own = self.vocabulary
    return alike and not (own and vocabulary and not own.reads_as(vocabulary))

  @functools.cached_property
  def _part_starts(self) -> np.ndarray:
    return np.cumsum([0] + [len(part) for part in self.parts])

  def column(self, name: str) -> np.ndarray:
    """Returns one value per sentence, uint8 [sentences]; a UserError if there is none."""
    if name not in self.columns:
      said = ', '.join(self.columns) or 'none'
      remedy = COLUMN_REMEDY.get(name, f'Stores have {" and ".join(COLUMN_REMEDY)} at most')
      raise UserError(f'{self.path} has no column {name!r}, only {said}. {remedy}')
    return self.columns[name]

  def numbered(self, languages: Sequence[str]) -> 'Store':
    """Returns the store with its languages numbered as they stand in `languages`; () changes
    nothing. Raises UserError where one is not among them, or the store knows none."""
    if not languages or list(languages) == list(self.languages):
      return self
    language_S = self.column('language')
    missing = [name for name in self.languages if name not in languages]
    if missing:
      raise UserError(
        f'{self.path} has the languages {", ".join(missing)}, which have no id: expected those of '
        f'config.data.languages, {", ".join(languages)}. Name them there, or leave it empty'
      )
    number_l = np.array([list(languages).index(name) for name in self.languages], np.uint8)
    meta = dict(self.meta, languages=list(languages))
    columns = dict(self.columns, language=number_l[language_S])
    return dataclasses.replace(self, meta=meta, columns=columns)

  def turned(self) -> 'Store':
    """Returns the store read from its end: the last token of the last document is the first."""
    flipped = lambda offset_n: offset_n[-1] - offset_n[::-1]
    parts = lambda found: tuple(part[::-1] for part in found[::-1])
    return dataclasses.replace(
      self, meta=dict(self.meta, turned=True), sentences=flipped(self.sentences),
      documents=flipped(self.documents), parts=parts(self.parts), units=parts(self.units),
      columns={name: value_S[::-1] for name, value_S in self.columns.items()},
    )  # fmt: skip

  def gather(self, start_n: np.ndarray, length_n: np.ndarray) -> np.ndarray:
    """Reads ranges of tokens (int64 [n] each, a range in one document) and lays them end to end,
    int32 [sum of length_n]."""
    return self._gather(self.parts, np.int32, start_n, length_n)

  def gather_units(self, start_n: np.ndarray, length_n: np.ndarray) -> np.ndarray:
    """Reads units as `gather` reads tokens: uint8. Raises UserError where there are none."""
    self.check_units()
    return self._gather(self.units, np.uint8, start_n, length_n)

  def check_units(self) -> None:
    """Raises UserError where the store does not know its phrases and entities."""
    if not self.units:
      raise UserError(
        f'{self.path} has no units: expected the phrases and entities of its text beside the '
        'tokens. Make it again with `python -m bertjax.prepare --lexicon=FILES` or --segmenter=NAME'
      )

  def _gather(self, parts, dtype, start_n: np.ndarray, length_n: np.ndarray) -> np.ndarray:
    start_n, length_n = np.asarray(start_n), np.asarray(length_n)
    start_n, length_n = start_n[length_n > 0], length_n[length_n > 0]
    part_n = np.searchsorted(self._part_starts, start_n, 'right') - 1
    # Ranges that touch in the store are copied as one: rows of whole sentences are a slice or two.
    touch_n = (start_n[1:] == start_n[:-1] + length_n[:-1]) & (part_n[1:] == part_n[:-1])
    first_n = np.flatnonzero(np.append(True, ~touch_n)) if len(start_n) else np.zeros(0, np.int64)
    end_n = np.cumsum(length_n)
    out = np.empty(end_n[-1] if len(end_n) else 0, dtype)
    at_n = (end_n - length_n)[first_n]
    size_n = np.diff(np.append(at_n, len(out)))
    local_n = start_n[first_n] - self._part_starts[part_n[first_n]]
    columns = (part_n[first_n], local_n, at_n, size_n)
    for part, local, at, size in zip(*(column.tolist() for column in columns), strict=True):
      out[at : at + size] = parts[part][local : local + size]
    return out


def open_store(path: str | pathlib.Path) -> Store:
  """Opens a token store; reads nothing but `store.json` and the headers of the arrays. Raises
  UserError as `read_meta`, or where files are missing, cut short or do not fit together."""
  path = pathlib.Path(path)
  meta = read_meta(path)
  for name, size in meta['files'].items():
    file = path / name
    if not file.is_file() or file.stat().st_size != size:
      got = f'{file.stat().st_size}' if file.is_file() else 'no file'
      raise UserError(f'{file}: expected {size} bytes as store.json says, got {got}. {_REMEDY}')
  last_words.of_files()
  array = lambda name: np.asarray(np.load(path / name, mmap_mode='r'))
  store = Store(
    path,
    meta,
    array('sentences.npy'),
    array('documents.npy'),
    array('counts.npy'),
    array('word_starts.npy'),
    tuple(array(part_name('tokens', part)) for part in range(meta['parts'])),
    tuple(array(part_name('units', part)) for part in range(meta['parts'] * meta['units'])),
    {name: array(column_name(name)) for name in meta['columns']},
  )
  _check(store)
  return store


def open_beside(store: Store, path: str | pathlib.Path) -> Store:
  """Opens a text that a model of another store is judged on, with the ids of its languages. Raises
  UserError if it was made with another vocabulary or other rules of it, or has a language that the
  store has not."""
  found = open_store(path)
  if not store.reads_as(found.vocabulary, theirs := found.meta['vocabulary']):
    raise UserError(
      f'{found.path} was made with another vocabulary, or other rules of it (sha256 '
      f'{theirs["sha256"][:12]}), than {store.path}: make it again with --vocab={store.path}/vocab'
    )
  unknown = [name for name in found.languages if name not in store.languages]
  if unknown and store.languages:
    raise UserError(
      f'{found.path} has the languages {", ".join(unknown)}, which {store.path} has no ids for: '
      f'expected some of {", ".join(store.languages)}. Make it again of text in these'
    )
  return found.numbered(store.languages) if found.languages else found


def column_name(name: str) -> str:
  """Returns the file name of a column, e.g. columns/language.npy."""
  return f'columns/{name}.npy'


def part_name(kind: str, part: int) -> str:
  """Returns the file name of a part, e.g. tokens-00003.npy."""
  return f'{kind}-{part:05d}.npy'


def read_meta(path: pathlib.Path) -> dict[str, Any]:
  """Returns `store.json`, without a look at the other files. Raises UserError where there is none,
  it is torn or changed, of another format, or names files outside of the store."""
  file = path / 'store.json'
  if not file.is_file():
    partial = path.with_name(path.name + '.partial')
    hint = f'{partial} is half written: repeat its command to finish it' if partial.exists() else ''
    if path.exists():
      raise UserError(f'{path} is not a token store: it has no store.json. {hint or _REMEDY}')
    hint = hint or 'Make it with `python -m bertjax.prepare`'
    raise UserError(f'there is no store {path}. {hint}')
  try:
    meta = json_files.loads(file.read_text(encoding='utf-8'))
    version = meta['format']
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f'{file} is not the description of a token store: {error}. {_REMEDY}') from None
  if version != FORMAT:
    raise UserError(
      f'{path} has format {version}, this version of bertjax reads format {FORMAT}. '
      f'{_REMEDY}, or use the version of bertjax that wrote it'
    )
  if not all(isinstance(meta.get(key), dict) for key in ('files', 'sha256')):
    raise UserError(
      f'{file} is not the description of a token store: it lacks the sizes or the sha256 of its '
      f'files. {_REMEDY}'
    )
  sha256 = dict(meta['sha256'])
  said, got = str(sha256.pop(file.name, None)), checksums.digest(dict(meta, sha256=sha256))
  if got != said:
    raise UserError(
      f'{file} was changed or damaged: expected sha256 {said[:12]} of what it says, got '
      f'{got[:12]}. {_REMEDY}'
    )
  for name in (*meta['files'], *map(column_name, meta.get('columns', ()))):
    if name.startswith('/') or '..' in pathlib.PurePosixPath(name).parts:
      raise UserError(f'{file} names {name!r}, which is outside of the store. {_REMEDY}')
  return meta


def _check(store: Store) -> None:
  meta = store.meta
  expected = dict(
    tokens=(meta['tokens'], sum(len(part) for part in store.parts)),
    offsets=(meta['tokens'], int(store.sentences[-1])),
    sentences=(meta['sentences'], len(store.sentences) - 1),
    documents=(meta['documents'], len(store.documents) - 1),
    ids=(store.vocabulary_size, len(store.counts)),
    word_starts=(store.vocabulary_size, len(store.word_starts)),
    dtype=([meta['dtype']], sorted({str(part.dtype) for part in store.parts})),
    units=(meta['tokens'] * meta['units'], sum(len(part) for part in store.units)),
  )
  columns = {f'column {name}': (meta['sentences'], len(x)) for name, x in store.columns.items()}
  for name, (said, got) in (expected | columns).items():
    if said != got:
      raise UserError(
        f'{store.path}: store.json says {said} for {name}, the arrays have {got}. {_REMEDY}'
      )
