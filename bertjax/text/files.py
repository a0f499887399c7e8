"""Files of text to documents, compressed or not. Bytes in, bytes out.

A file may have a language, `en=wiki/*.txt`; parallel text has two, in two files of as many lines,
`en-de=train.en+train.de`, or in the first two columns of one, `en-de=train.tsv`. What a file is
follows from its name (`kinds`); a folder stands for all such files below it.
"""

import contextlib
import dataclasses
import functools
import glob
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from bertjax.errors import UserError, amount, require_file, warn, warn_once
from bertjax.machine import remote
from bertjax.text import compressed, kinds
from bertjax.text import documents as documents_lib
from bertjax.text import left_out as left_out_lib
from bertjax.text.formats import plain, records
from bertjax.text.formats.records import Reading, Said
from bertjax.text.left_out import LeftOut, Wrong

_BOM = b'\xef\xbb\xbf'
_LANGUAGE = re.compile(r'\s*([A-Za-z]\w*(?:-[A-Za-z]\w*)?)=(.+)')


class Source(NamedTuple):
  """Files that are read one after the other, or parallel text."""

  paths: list[pathlib.Path]  # of files; of parallel text the two sides, or one with columns
  language: str = ''  # as in `documents`; '' where it is not said

  @property
  def parallel(self) -> bool:
    """True for parallel text, whose paths are read side by side."""
    return documents_lib.PARALLEL in self.language


def find_sources(pattern: str) -> list[Source]:
  """Returns the sources of a comma list of paths, folders and globs, with or without languages.
  Raises UserError for a pattern without files, a language of some alone, and parallel text that is
  not two files of as many lines or one with columns."""
  found = []
  for part in pattern.split(','):
    match = _LANGUAGE.fullmatch(part)
    if not match:
      found.append(Source(find_files(part)))
    elif '-' in match[1]:
      found.append(_parallel(*match.groups()))
    else:
      found.append(Source(find_files(match[2]), match[1]))
  without = [str(source.paths[0]) for source in found if not source.language]
  if 0 < len(without) < len(found):
    raise UserError(
      f'{without[0]} has no language, but other files have: expected LANGUAGE={without[0]}, or no '
      'language at all'
    )
  return found


def says_language(pattern: str) -> bool:
  """Returns True if a comma list of sources names a language; no file is opened."""
  return any(map(_LANGUAGE.fullmatch, pattern.split(',')))


def _parallel(name: str, pattern: str) -> Source:
  sides = [find_files(part) for part in pattern.split('+')]
  paths = [path for side in sides for path in side]
  one = kinds.kind_of(paths[0]) == kinds.TSV
  if len(paths) != len(sides) or len(paths) != 2 - one:
    raise UserError(
      f'{name}={pattern}: expected parallel text, two files joined by + or one .tsv, got '
      f'{len(paths)} files. The name of one language has no hyphen: write zh_cn for zh-cn'
    )
  if len(paths) == 2:
    counts = [_count(path) for path in paths]
    if counts[0] != counts[1]:
      raise UserError(
        f'parallel text needs as many lines on both sides: {paths[0]} has {counts[0]}, {paths[1]} '
        f'has {counts[1]}. Align the files line by line'
      )
  return Source(paths, name.replace('-', documents_lib.PARALLEL))


def _count(path: pathlib.Path) -> int:
  kinds.check(path, lines=True)
  with path.open('rb') as raw:
    return sum(1 for _ in _lines(path, raw))


def find_files(pattern: str) -> list[pathlib.Path]:
  """Returns the files of a comma list of paths, folders and globs, each pattern's sorted. Raises
  UserError if a pattern matches no file, or a pipe or a link that leads to none, a folder has none
  of a kind that we know, or a name is not UTF-8."""
  found = []
  for part in map(str.strip, pattern.split(',')):
    files = _remote(part) if remote.is_remote(part) else _local(part)
    if not files:
      raise UserError(
        f'no file matches {part!r}: expected text files ({kinds.NAMES}), a folder of them, a glob '
        'in quotes, tfds:NAME, or the name of a seqio Task or Mixture (yours with --module). '
        'Commas separate names: write ? for the comma in one'
      )
    found += files
  for path in found:
    try:
      str(path).encode()
    except UnicodeEncodeError as error:
      raise UserError(
        f'the name of {os.fsencode(path)!r} is not UTF-8, and a store keeps the names of its text: '
        'rename it'
      ) from error
  return found


def _local(pattern: str) -> list[Any]:
  """Returns the files of a path or a glob. Raises UserError for what is neither file nor folder."""
  paths = [pathlib.Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
  below = lambda folder: sorted(path for path in folder.rglob('*') if not path.is_dir())
  # A glob that matches files means these, and not what lies below the folders beside them.
  found = [path for path in paths if not path.is_dir()]
  found = found or [path for folder in paths for path in _known(folder, below(folder))]
  for path in found:
    require_file(path, 'text')
  return found


def _remote(pattern: str) -> list[Any]:
  """Returns the files of a URL: one, those of a glob, or all of known kinds below a folder."""
  found: list[Any] = remote.find(pattern)
  if found == [remote.path(pattern)] or glob.has_magic(pattern):
    return found
  return _known(remote.path(pattern), found)


def _known(folder: Any, paths: Sequence[Any]) -> list[Any]:
  """Returns the files of known kinds below a folder; says how many others there are."""
  paths = [p for p in paths if not any(n[0] in '._' for n in p.relative_to(folder).parts)]
  others = [path for path in paths if kinds.kind_of(path) is None]
  if others:
    warn(
      '%s: %s left out, for want of a name that ends with %s; the first is %s',
      folder, amount(len(others), 'files'), kinds.NAMES, others[0],
    )  # fmt: skip
  return [path for path in paths if kinds.kind_of(path)]


def fingerprint(sources: Sequence[Source]) -> list[dict]:
  """Path, size, modification time in nanoseconds and, where said, language of every file."""
  files = [(path, source.language) for source in sources for path in source.paths]
  stats = [(path.resolve(), path.stat(), language) for path, language in files]
  return [
    dict(path=str(p), size=s.st_size, mtime_ns=s.st_mtime_ns)
    | (dict(language=language) if language else {})
    for p, s, language in stats
  ]


def read_lines(path: pathlib.Path) -> Iterator[bytes]:
  """Yields the lines of a file of lines, compressed or not, with their line feeds. Raises UserError
  if it is not UTF-8, no text, or a damaged archive."""
  kinds.check(path, lines=True)
  with path.open('rb') as raw:
    yield from left_out_lib.strict(_lines(path, raw), path)


def _lines(path: pathlib.Path, raw: IO[bytes]) -> Iterator[bytes]:
  """Yields the lines of a file with their line feeds, without the mark of UTF-8."""
  lines = compressed.lines(path, raw, left_out_lib.MAX_DOCUMENT)
  for line in lines:
    yield line.removeprefix(_BOM)
    break
  yield from lines


@dataclasses.dataclass
class Files:
  """Text files, read as a stream of documents."""

  sources: list[Source]  # in order
  errors: str  # 'strict' refuses bytes that are not UTF-8; 'replace' leaves them to whoever decodes
  field: str  # of JSON lines and tables, which holds the text
  # of the records to make, as in `documents`. `language` comes from the sources where they say it;
  # else, like `role`, from a field of JSON lines or tables.
  columns: Sequence[str] = ()
  # whether plain text is one stream: its lines, blank ones too, come in blocks of 64 KiB or a
  # hundredth of all files, so that a share of them can be held out
  verbatim: bool = False
  # counts or refuses lines and records that are wrong
  left_out: LeftOut = dataclasses.field(default_factory=LeftOut)
  done: int = 0  # bytes of the files read so far, compressed as they lie on disk

  @property
  def paths(self) -> list[pathlib.Path]:
    """All files."""
    return [path for source in self.sources for path in source.paths]

  @property
  def languages(self) -> list[str]:
    """Those that the sources name, in the order of their first mention."""
    names = [
      name for s in self.sources for name in s.language.split(documents_lib.PARALLEL) if name
    ]
    return list(dict.fromkeys(names))

  @functools.cached_property
  def total(self) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in self.paths)

  def alone(self, source: Source) -> 'Files':
    """Returns those of a source by themselves, of which nothing is read yet."""
    left_out = LeftOut(self.left_out.skip)
    return dataclasses.replace(self, sources=[source], left_out=left_out, done=0)

  def parts(self) -> list[Source]:
    """Returns each file as a source of its own, the two sides of parallel text as one."""
    each = lambda s: [s] if s.parallel else [s._replace(paths=[path]) for path in s.paths]
    return [part for source in self.sources for part in each(source)]

  def check(self) -> None:
    """Looks at the beginning of every file. UserError: one that is no text; see `kinds.check`."""
    for source in self.sources:
      for path in source.paths:
        kinds.check(path, lines=source.parallel)

  def __iter__(self) -> Iterator[bytes]:
    """Yields the records of all files. Raises UserError: bytes that are not UTF-8, a damaged
    archive, a JSON line without its text, a line without its columns; file and place are named."""
    self.left_out.clear()
    finished = 0
    for part in self.parts():
      paths, language = part
      read = self._read_pairs(paths) if part.parallel else self._read(paths[0])
      for text, said, at in read:
        self.done = finished + at
        values = said | (dict(language=language) if language else {})
        try:
          record = documents_lib.join(text, [values.get(name, '') for name in self.columns])
        except UserError as error:
          self.left_out.refuse(str(paths[0]), Wrong(str(error)))
          continue
        yield record
      finished += sum(path.stat().st_size for path in paths)
      self.done = finished

  def _read(self, path: pathlib.Path) -> Iterator[tuple[bytes, Said, int]]:
    """Yields (text, what is said of it, bytes of the file read so far)."""
    kind = kinds.check(path)
    with path.open('rb') as raw:
      for number, (text, said) in enumerate(self._documents(kind, path, raw)):
        if number == 0 and documents_lib.ROLE in {*self.columns} - {*said}:
          warn_once(
            f'{path}: the first document has no field {documents_lib.ROLE!r}, which --columns asks '
            'for: where there is none it is 0'
          )
        yield text, said, raw.tell()

  def _documents(self, kind, path, raw) -> Iterator[tuple[bytes, Said]]:
    reading = Reading(path, self.errors, self.field, self.columns, self.left_out)
    lines = _lines(path, raw)
    if kind != kinds.TEXT:
      return records.documents(kind, raw if kind == kinds.PARQUET else lines, reading)
    texts = plain.checked(lines, reading)
    if self.verbatim:
      return ((text, {}) for text in plain.blocks(texts, self.total))
    return ((text, {}) for text in plain.documents(texts, path, self.total))

  def _read_pairs(self, paths) -> Iterator[tuple[bytes, Said, int]]:
    """Yields (pair, {}, bytes of the files read so far), as `_read`, for parallel text."""
    with contextlib.ExitStack() as stack:
      raws = [stack.enter_context(path.open('rb')) for path in paths]
      sides = [_lines(path, raw) for path, raw in zip(paths, raws, strict=True)]
      for pair in records.pairs(sides, paths, self.errors, self.left_out):
        yield pair, {}, sum(raw.tell() for raw in raws)
