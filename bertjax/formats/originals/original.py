"""Reading of checkpoints that the original programs wrote."""

import atexit
import contextlib
import itertools
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bertjax.errors import UserError
from bertjax.formats import tables
from bertjax.formats.huggingface import Taken
from bertjax.formats.tables import Row
from bertjax.formats.weights import View, shape_of
from bertjax.vocab import formats, whole_words

Absent = Callable[[Row, tuple[int, ...]], Any]  # (row, our shape) -> the array of a missing head
HEAD = 64  # width of a head in all published sizes


class Opening(NamedTuple):
  """A checkpoint before its tensors are taken."""

  path: pathlib.Path  # what was named
  files: tuple[pathlib.Path, ...]  # that hold the tensors
  # the fields of `config.model` that it determines; those of the recipe are the others
  model: dict[str, Any]
  recipe: str  # module of `configs/` whose recipe goes with it
  vocabulary: pathlib.Path | None  # what `load_vocabulary` may be given, or None
  step: int | None  # of the training, if the checkpoint says it
  # what is not in the files and was taken for granted, or could not be made; sentences
  assumed: list[str]
  take: Callable[[Any, Absent], Taken]  # (whole `config.model`, absent) -> its parameters
  # head -> names of the classes that it tells apart, by their ids, where they are said
  classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
  languages: tuple[str, ...] = ()  # names of those of its table, by their ids, likewise
  # what is kept with it besides: `problem_type` of a head for texts, '' where it is not said, and
  # the `Sentences` of sentence-transformers
  meta: Mapping[str, Any] = MappingProxyType({})


class Part(NamedTuple):
  """Rows of a table and the `config.model` that their sizes are of: a net, or all of a model."""

  rows: tuple[Row, ...]
  model: Any


class Kind(NamedTuple):
  """A program whose checkpoints of TensorFlow 1 are read."""

  title: str  # what a message calls it
  family: str  # `config.model.family`
  config: str  # the JSON file that it writes beside its checkpoints; '': none
  mark: str  # how a name begins that it alone has
  # (names and shapes, the JSON or {}) -> the fields of `config.model`, and what is assumed
  fields: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[dict[str, Any], list[str]]]
  parts: Callable[[Any], tuple[Part, ...]]  # `config.model` -> the rows
  heads: tuple[str, ...]  # how names of heads begin, which the model may lack
  # `config.model` -> tensors that hold all layers
  stacked: Callable[[Any], tuple[str, ...]] = lambda model: ()
  # (parameters of the parts, `config.model`) -> those of the model
  join: Callable[[list[dict[str, Any]], Any], dict[str, Any]] = lambda params, model: params[0]
  # (folder, ids, empty directory or None) -> a vocabulary of a form of its own, or None; None: it
  # is one of those that `load_vocabulary` reads
  vocabulary: Callable[..., pathlib.Path | None] | None = None


def cut(state: Mapping[str, Any], bounds: Mapping[str, Sequence[int]]) -> View:
  """Returns a state with some tensors cut along their first axis: NAME becomes NAME[0], NAME[1],
  ... `bounds` says where the pieces of a name begin, and the end."""
  names, pieces = {name: name for name in state if name not in bounds}, {}
  for name in bounds.keys() & state.keys():
    for i, pair in enumerate(itertools.pairwise(bounds[name])):
      names[f'{name}[{i}]'], pieces[f'{name}[{i}]'] = name, slice(*pair)
  return View(state, names, pieces)


def even(state: Mapping[str, Any], name: str, pieces: int | None = None) -> list[int]:
  """Returns the bounds of so many equal pieces of a tensor; None: of single rows."""
  rows = shape_of(state, name)[0]
  pieces = rows if pieces is None else pieces
  return [rows * i // pieces for i in range(pieces + 1)]


def renamed(rows: Iterable[Row], **parts: str) -> tuple[Row, ...]:
  """Returns the rows of a class of transformers by the names that its original has, of which the
  class has made its own: of TensorFlow 1, whose kernels are [in, out] and scales called gamma;
  `parts` are names that differ."""
  return tuple(_renamed(row, parts) for row in rows)


def _renamed(row: Row, parts: Mapping[str, str]) -> Row:
  path = row.theirs.replace('.layer.{layer}', '.layer_{layer}').replace('layer_norm', 'LayerNorm')
  *scope, leaf = [parts.get(part, part) for part in path.split('.')]
  (theirs, ours), kind = row.axes.split('->'), row.ours.rpartition('/')[2]
  if kind == 'kernel' and leaf == 'weight':  # of torch, [out, in]
    theirs, leaf = ','.join(reversed(theirs.split(','))), 'kernel'
  elif kind == 'kernel':  # as XLNet's class has them: [in, out], without an ending
    scope, leaf = [*scope, leaf], 'kernel'
  elif 'LayerNorm' in scope[-1]:
    leaf = dict(weight='gamma', bias='beta')[leaf]
  elif leaf == 'weight':  # of a table
    scope, leaf = scope[:-1], scope[-1]
  return row._replace(theirs='/'.join([*scope, leaf]), axes=f'{theirs}->{ours}')


def take(
  state: Mapping[str, Any], parts: Sequence[Part], known: set[str], absent: Absent
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
  """Returns the parameters of each part, our paths of heads that were made, and names that are left
  out. Raises UserError that lists the missing, unexpected and misshapen tensors of all parts."""
  names_of = lambda part: {n for row in part.rows for n in tables.names_of(row, part.model)}
  names = {name for part in parts for name in names_of(part)}

  def made(part: Part) -> list[str]:
    # What is unexpected is so to all parts: the first one says it.
    elsewhere = known | names - names_of(part) | (set() if part is parts[0] else set(state))
    return tables.check_names(state, part.rows, elsewhere, (), part.model)[0]

  paths = {path for own in _each(parts, made) for path in own}
  params = _each(parts, lambda part: tables.to_ours(state, part.rows, part.model, absent))
  return params, sorted(paths), sorted(state.keys() & known - names)


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Puts a file's name before the message of a UserError that has it not."""
  try:
    yield
  except UserError as error:
    said = str(error)
    raise UserError(said if str(path) in said else f'{path}: {said}') from error


def folder(into: pathlib.Path | None) -> pathlib.Path:
  """Returns the directory for a vocabulary that is made of files; None: one that goes when the
  program ends."""
  if into is None:
    into = pathlib.Path(tempfile.mkdtemp(prefix='bertjax-'))
    atexit.register(shutil.rmtree, into, ignore_errors=True)
  return into


def words(pieces: Sequence[str], into: pathlib.Path | None) -> pathlib.Path:
  """Writes a vocabulary of whole words, by id, to a directory as of `folder`; returns that."""
  into = folder(into)
  formats.write(into, {'tokenizer.json': whole_words.of_words(pieces).to_str()})
  return into


def _each(parts: Iterable[Part], found: Callable[[Part], Any]) -> list[Any]:
  """Returns what is found of each part; raises what is wrong with all of them at the end."""
  each, said = [], []
  for part in parts:
    try:
      each.append(found(part))
    except UserError as error:
      said.append(str(error))
  if said:
    raise UserError('; '.join(said))
  return each


def shape(state: Mapping[str, Any], name: str) -> tuple[int, ...]:
  """Returns the shape of a tensor that must be there. Raises UserError if it is not."""
  if name not in state:
    raise UserError(f'{name} is missing, whose shape says the size of the model')
  return shape_of(state, name)


def count(state: Iterable[str], start: str) -> int:
  """Returns how many of the numbers 0, 1, ... follow `start` in the names of a state."""
  number = re.compile(re.escape(start) + r'(\d+)')
  return max((int(found[1]) for name in state if (found := number.match(name))), default=-1) + 1


def activation(name: str, known: Mapping[str, str]) -> str:
  """Returns our name of an original's activation. Raises UserError: our models have no such."""
  if name not in known:
    raise UserError(
      f'the activation is {name!r}, which our models do not compute: expected one of '
      f'{", ".join(map(repr, known))}'
    )
  return known[name]
