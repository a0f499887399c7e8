"""Arms of a comparison: a recipe each, on one text, with one vocabulary."""

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bertjax.config import command_line, presets
from bertjax.config.keys import LEAST_PIECES
from bertjax.errors import UserError, choose
from bertjax.examples import readers, unread_text
from bertjax.launch import grid
from bertjax.machine import checksums
from bertjax.store import ensure
from bertjax.text.corpus import PYTHON_DOCS
from bertjax.text.files import find_sources
from bertjax.train import resolve
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

_ARM = re.compile(r'([^:\[\]]+)(?::([^:\[\]]+))?(?:\[(.*)\])?')


class Text(NamedTuple):
  """The text and vocabulary of all arms."""

  input: str
  heldout: str  # '': a share of the documents
  vocab: str  # a file or directory, or KIND:SIZE of one to be trained

  @property
  def trained(self) -> tuple[str, int] | None:
    """Kind and size of a vocabulary that is to be trained; None of one that is there."""
    kind, colon, size = self.vocab.partition(':')
    return (kind, int(size)) if kind in TRAINERS and colon and size.isdecimal() else None

  @property
  def ids(self) -> int:
    """Number of ids, at most."""
    return self.trained[1] if self.trained else load_vocabulary(self.vocab).size

  def keys(self) -> dict[str, str]:
    """Returns the keys of a config that say so."""
    kind, size = self.trained or ('', 0)
    found = {'data.input': self.input, 'data.heldout': self.heldout, 'data.store': ''}
    found['data.vocab'] = '' if kind else self.vocab
    return found | {'data.train_vocab.type': kind, 'data.train_vocab.size': str(size)}


class Arm(NamedTuple):
  """A recipe of the comparison."""

  name: str  # as it was asked for
  file: str  # of --config
  point: Mapping[str, str]  # keys that it changes, besides those of the text
  config: Any  # completed, with text and vocabulary

  @property
  def folder(self) -> str:
    """Name of the directory of its runs."""
    return ''.join(c if c.isalnum() or c in '.-' else '_' for c in self.name)

  @property
  def flags(self) -> list[str]:
    """The flags of `bertjax.main` for its recipe, on any machine with the preset of this one."""
    point = {'preset': self.config.preset, **self.point}
    return [f'--config={self.file}', *(f'--config.{k}={v}' for k, v in point.items())]

  @property
  def store(self) -> str:
    """Name of its store: arms share one where these are made of the same."""
    return checksums.digest(ensure.made_of(self.config.data))[:8]


def parse(given: str, size: str, text: Text, common: Sequence[str]) -> list[Arm]:
  """Returns the arms of --arms=NAME[:SIZE][[KEY=VALUE,...]],...; `common` are KEY=VALUE of all.
  Raises UserError: an arm, size or key that there is not, a config that cannot be or reads
  no text, two arms of one name or directory, or a vocabulary that is too small to be trained."""
  if text.trained and text.trained[1] < LEAST_PIECES:
    raise UserError(f'--vocab={text.vocab}: expected a size of at least {LEAST_PIECES}')
  arms = [_arm(each, size, text, common) for each in grid.split(given)]
  names = [arm.name for arm in arms]
  if twice := sorted({name for name in names if names.count(name) > 1}):
    raise UserError(f'--arms: {twice[0]!r} is there twice: expected each arm once')
  for one, other in itertools.combinations(arms, 2):
    if one.folder == other.folder:
      raise UserError(
        f'--arms: runs of {one.name!r} and of {other.name!r} would lie in one directory, '
        f'{one.folder}: name one of the files otherwise'
      )
  return arms


def _arm(given: str, size: str, text: Text, common: Sequence[str]) -> Arm:
  found = _ARM.fullmatch(given)
  if not found:
    raise UserError(f'--arms: expected NAME, NAME:SIZE or NAME[KEY=VALUE,...], got {given!r}')
  name, own, changes = found.groups()
  if not name.endswith('.py'):  # of the user's own
    choose(name, [path.stem for path in command_line.FOLDER.glob('[!_]*.py')], '--arms')
    name = f'configs/{name}.py'
  point = keys((*common, *(grid.split(changes) if changes else ())), f'--arms={given}')
  file = f'{name}:{own or size}'
  try:
    config = grid.changed_by(command_line.load(file), point | text.keys(), 'config')
    presets.choose_own(config, point, os.environ)
    presets.set_fields(config, point)
    resolve.resolve(config)
  except UserError as error:
    raise UserError(f'--arms={given}: {error}') from error
  if config.data.reader != 'store':
    raise UserError(f'--arms={given}: expected a recipe that pretrains on text, {file} does not')
  return Arm(given, file, point, config)


def keys(lines: Iterable[str], flag: str) -> dict[str, str]:
  """Returns the keys of KEY=VALUE lines. Raises UserError, which names the flag, for another."""
  found = {}
  for line in lines:
    key, equals, value = line.partition('=')
    if not equals:
      raise UserError(f'{flag}: expected KEY=VALUE, got {line!r}')
    found[key.strip().removeprefix('config.')] = value.strip()
  return found


def refusals(arms: Sequence[Arm], text: Text) -> dict[str, str]:
  """Returns arm -> why it cannot use the vocabulary or the text, of those that cannot."""
  found = {}
  for arm in arms:
    config = grid.changed_by(arm.config, text.keys(), '--vocab')
    try:
      readers.of(config.data).check(config)
    except UserError as error:
      found[arm.name] = str(error)
  return found


def check_files(arms: Sequence[Arm], text: Text) -> None:
  """Raises UserError if no file matches, of text that is in files."""
  for name in (text.input, text.heldout):
    if in_files(arms, name):
      find_sources(name)


def in_files(arms: Sequence[Arm], name: str) -> bool:
  """Returns whether a text of the arms, '': none, is in files."""
  by_task = any(unread_text.by_task(arm.config.data) for arm in arms)
  return name not in ('', PYTHON_DOCS) and not by_task


def check_vocabulary(arms: Sequence[Arm], text: Text) -> None:
  """Raises UserError if arms cannot share the vocabulary: which and why, and which groups there
  are that could share a trained one."""
  refused = refusals(arms, text)
  if not refused:
    return
  why = ''.join(f'\n  {name}: {said}' for name, said in refused.items())
  lines, whole = [], []
  for kind in TRAINERS:
    other = text._replace(vocab=f'{kind}:{text.trained[1] if text.trained else 8000}')
    lost = refusals(arms, other)
    serves = [arm.name for arm in arms if arm.name not in lost]
    whole += [] if lost else [f'--vocab={other.vocab}']
    lines += [f'\n  {kind}: {", ".join(serves)}'] if serves else []
  remedy = f'take {" or ".join(whole)}' if whole else 'compare each group by itself'
  raise UserError(
    f'--vocab={text.vocab} does not serve all arms:{why}\nKinds of vocabulary, and the arms that '
    f'each could serve:{"".join(lines)}\nExpected one that serves all: {remedy}, or leave arms out'
  )
