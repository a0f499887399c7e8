"""Reading of checkpoints that the original programs wrote.

Each module that `sources/foreign.py` names exports `open_checkpoint(path) -> Opening`. It raises
UserError for a file that is not there, cannot be read or carries code, and for a model that ours
does not compute.
"""

import atexit
import contextlib
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
from bertjax.formats.weights import shape_of
from bertjax.vocab import formats, whole_words
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

HEAD = 64  # width of a head in all published sizes


class Opening(NamedTuple):
  """A checkpoint before its tensors are taken."""

  path: pathlib.Path  # what was named
  files: tuple[pathlib.Path, ...]  # that hold the tensors; (): those of the directory
  # the fields of `config.model` that it determines; those of the recipe are the others
  model: dict[str, Any]
  recipe: str  # module of `configs/` whose recipe goes with it
  vocabulary: Vocabulary | None
  # what is not in the files and was taken for granted, or could not be made; sentences
  assumed: list[str]
  take: Callable[[Any], Taken]  # whole `config.model` -> its parameters
  # head -> names of the classes that it tells apart, by their ids, where they are said
  classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
  languages: tuple[str, ...] = ()  # names of those of its table, by their ids, likewise
  # what is kept with it besides: `problem_type` of a head for texts, '' where it is not said, the
  # `Sentences` of sentence-transformers, and `between`, a `layouts.Between` or None
  meta: Mapping[str, Any] = MappingProxyType({})


class Kind(NamedTuple):
  """A program whose checkpoints of TensorFlow 1 are read."""

  title: str  # what a message calls it
  family: str  # `config.model.family`
  config: str  # the JSON file that it writes beside its checkpoints; '': none
  mark: str  # how a name begins that it alone has
  # (names and shapes, the JSON or {}) -> the fields of `config.model`, and what is assumed
  fields: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[dict[str, Any], list[str]]]
  rows: Callable[[Any], tuple[Row, ...]]  # `config.model` -> its table
  heads: tuple[str, ...]  # how names of heads begin, which the model may lack
  # (folder, ids) -> a vocabulary of a form of its own, or None where there is none; None: it is one
  # of those that `load_vocabulary` reads
  vocabulary: Callable[[pathlib.Path, int], Vocabulary | None] | None = None


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


def take(state: Mapping[str, Any], rows: Sequence[Row], model: Any, known: set[str]) -> Taken:
  """Returns the tensors of a table; those of `known` may be there besides. Raises UserError that
  lists the missing, unexpected and misshapen ones."""
  made, left_out = tables.check_names(state, rows, known, (), model)
  return Taken(tables.to_ours(state, rows, model), made, left_out)


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Puts a file's name before the message of a UserError that has it not."""
  try:
    yield
  except UserError as error:
    said = str(error)
    raise UserError(said if str(path) in said else f'{path}: {said}') from error


def vocabulary_of(files: Mapping[str, str | bytes]) -> Vocabulary:
  """Returns the vocabulary of files, name -> content, which lie in a directory that goes when the
  program ends."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix='bertjax-'))
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  formats.write(folder, files)
  return load_vocabulary(folder)


def words(pieces: Sequence[str]) -> Vocabulary:
  """Returns a vocabulary of whole words, by id."""
  return vocabulary_of({'tokenizer.json': whole_words.of_words(pieces).to_str()})


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
