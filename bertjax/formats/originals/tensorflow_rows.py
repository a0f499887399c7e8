"""Rows of variables as TensorFlow 1 names them: kernels are [in, out], scales are called gamma."""

import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bertjax.formats.originals.original import Part
from bertjax.formats.tables import Row


class Kind(NamedTuple):
  """A program whose checkpoints are read."""

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


def renamed(rows: Iterable[Row], **parts: str) -> tuple[Row, ...]:
  """Returns the rows of a class of transformers by the names that its original has, of which the
  class has made its own; `parts` are names that differ."""
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
