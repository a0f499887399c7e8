"""Plans: which tokens make up which row of an epoch; and `Examples`, which turns row numbers into
batches.

A plan is a set of columns, one entry per example, made by a module of this package from the store's
offsets and the seed alone. A plan module, named by `config.data.plan`, has

  build(store, recipe, length, seed)  yields (columns, counts) in pieces; a column `length` counts
  all tokens assemble(store, column)             makes the `rows.Text` of some examples SPECIAL
  names of the special tokens it needs

and a corruption, named by `config.data.corrupt`, has `corrupt(rows, recipe, store)`, `check(recipe,
length)` and SPECIAL. A new file with these functions is a new plan or corruption; there is no list
to add it to.

Plans are cached beside the store, in `plans/HASH/`, or in a directory of the caller's where the
store is read-only.
"""

import dataclasses
import errno
import functools
import hashlib
import importlib
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bertjax.data import columns, draws, packing, rows
from bertjax.names import choose

FORMAT = 1
KEYS = (
  'plan',
  'dupe_factor',
  'short_prob',
  'pack',
  'max_examples',
)  # of config.data, that a plan follows from


@dataclasses.dataclass(frozen=True)
class Examples:
  """The rows of an endless sequence of epochs; every batch is a pure function of its row numbers.

  Attributes:
    store: the token store.
    recipe: `config.data`.
    length: tokens per row.
    seed: of the plan, the order and the corruption.
    column: name -> [examples], the plan.
    row_start: int64 [rows + 1], where each row's examples begin in row_example; None where rows are
      examples.
    row_example: int64 [examples], row by row; None where rows are examples.
    count: what the plan counted.
  """

  store: Any
  recipe: Any
  length: int
  seed: int
  column: dict[str, np.ndarray]
  row_start: np.ndarray | None
  row_example: np.ndarray | None
  count: dict[str, int]

  @property
  def examples(self) -> int:
    """Examples per epoch."""
    return len(self.column['length'])

  @property
  def rows(self) -> int:
    """Rows per epoch."""
    return self.examples if self.row_start is None else len(self.row_start) - 1

  @property
  def stats(self) -> dict[str, float]:
    """The plan in figures: examples, rows, mean real tokens per row, and its own counts."""
    share = {k: self.count[k] / self.examples for k in ('random_next',) if k in self.count}
    return dict(
      examples=self.examples,
      rows=self.rows,
      tokens_per_row=self.count['tokens'] / self.rows,
      fill=self.count['tokens'] / self.rows / self.length,
      **{k: v for k, v in self.count.items() if k != 'tokens'} | share,
    )

  def batch(self, row_n: np.ndarray, shuffle: bool) -> dict[str, np.ndarray]:
    """Builds rows.

    Args:
      row_n: int64 row numbers counted over all epochs, >= 0.
      shuffle: permute the rows of every epoch; otherwise they keep the corpus's order.

    Returns:
      The batch of `bertjax.types`, and dropped_B int32: targets that had no slot.
    """
    epoch_n, index_n = np.divmod(np.asarray(row_n, np.int64), self.rows)
    if shuffle:
      key_n = draws.fold(draws.root(self.seed, 'shuffle'), epoch_n)
      index_n = draws.permute(key_n, index_n, self.rows)
    if self.row_start is None or self.row_example is None:
      row_E, example_E = np.arange(len(index_n)), index_n
    else:
      start_n = self.row_start[index_n]
      row_E, offset_E = rows.ragged(self.row_start[index_n + 1] - start_n)
      example_E = self.row_example[start_n[row_E] + offset_E]
    plan = find('plan', self.recipe.plan)
    text = plan.assemble(self.store, {k: column[example_E] for k, column in self.column.items()})
    epoch_E = np.zeros_like(row_E) if self.recipe.mask.static else epoch_n[row_E]
    key_E = draws.fold(draws.fold(draws.root(self.seed, 'corrupt'), epoch_E), example_E)
    placed = rows.layout(text, row_E, key_E, (len(index_n), self.length))
    corruption = find('corrupt', self.recipe.corrupt)
    slots = self.recipe.max_examples if self.recipe.pack else 1
    return rows.frame(placed, slots) | corruption.corrupt(placed, self.recipe, self.store)


def make_examples(store, recipe, length: int, seed: int, cache: str | None = None) -> Examples:
  """Opens the plan of a recipe over a store, building it on first use.

  Args:
    store: the token store.
    recipe: `config.data`.
    length: tokens per row, special tokens included.
    seed: of the plan, the order and the corruption.
    cache: directory for plans where the store's own cannot be written.

  Raises:
    ValueError: an unknown plan or corruption, a special token that the vocabulary lacks, a store or
      length that the plan cannot use, or no place to write the plan.
  """
  _check(store, recipe, length)
  identity = dict(
    format=FORMAT,
    length=length,
    seed=seed,
    store=_digest(store.meta),
    **{key: recipe[key] for key in KEYS},
  )
  directory = _directory(
    store, identity, cache, lambda path: _build(path, store, recipe, length, seed)
  )
  names = [path.stem for path in sorted(directory.glob('*.npy'))]
  column = {name: np.load(directory / f'{name}.npy', mmap_mode='r') for name in names}
  row_start, row_example = column.pop('row_start', None), column.pop('row_example', None)
  count = json.loads((directory / 'plan.json').read_text())['count']
  return Examples(store, recipe, length, seed, column, row_start, row_example, count)


def examples_in_memory(store, recipe, length: int, seed: int) -> Examples:
  """As `make_examples`, for a store that has no directory: nothing is written."""
  _check(store, recipe, length)
  build = find('plan', recipe.plan).build
  column, count = columns.join_columns(_counted(build(store, recipe, length, seed)))
  if not recipe.pack:
    return Examples(store, recipe, length, seed, column, None, None, count)
  packed, _ = columns.join_columns(_packed(column['length'], recipe, length))
  return Examples(store, recipe, length, seed, column, count=count, **packed)


@functools.cache
def find(kind: str, name: str):
  """Imports the module that `config.data.<kind>` names.

  Args:
    kind: 'plan' or 'corrupt'.
    name: of a module of bertjax.data.

  Raises:
    ValueError: there is no such module, or it lacks the functions; the nearest name is given.
  """
  function = {'plan': 'build', 'corrupt': 'corrupt'}[kind]
  files = sorted(pathlib.Path(__file__).parent.glob('*.py'))
  known = [f.stem for f in files if f'\ndef {function}(' in f.read_text(encoding='utf-8')]
  return importlib.import_module(f'bertjax.data.{choose(name, known, f"config.data.{kind}")}')


def _check(store, recipe, length):
  plan, corruption = find('plan', recipe.plan), find('corrupt', recipe.corrupt)
  needed = dict.fromkeys(('pad', *plan.SPECIAL, *corruption.SPECIAL))
  missing = [name for name in needed if store.special[name] is None]
  if missing:
    raise ValueError(
      f'plan {recipe.plan!r} with {recipe.corrupt!r} needs the special tokens {", ".join(needed)}; '
      f'the vocabulary of {store.path} has no {", ".join(missing)}. Prepare the store with a '
      'vocabulary that has them'
    )
  corruption.check(recipe, length)


def _digest(value) -> str:
  return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _directory(store, identity, cache, build) -> pathlib.Path:
  """Returns the directory of the plan with this identity, building it if there is none."""
  name = _digest(identity)[:32]
  roots = [pathlib.Path(root) for root in (pathlib.Path(store.path, 'plans'), cache) if root]
  for root in roots:
    if _is_whole(root / name, identity):
      return root / name
  for root in roots:
    try:
      root.mkdir(parents=True, exist_ok=True)
      temporary = pathlib.Path(tempfile.mkdtemp(prefix='.building-', dir=root))
    except OSError as error:
      if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise
      continue
    try:
      logging.info('building the plan %s', root / name)
      count = build(temporary)
      files = {path.name: path.stat().st_size for path in temporary.iterdir()}
      record = dict(identity=identity, count=count, files=files)
      (temporary / 'plan.json').write_text(json.dumps(record, indent=1))
      _publish(temporary, root / name, identity)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
    return root / name
  raise ValueError(
    f'no place for the plan: {" and ".join(map(str, roots))} cannot be written. Make the store '
    'writable or name a writable cache directory'
  )


def _is_whole(path, identity) -> bool:
  """Whether the directory holds this plan with every file at its full size."""
  try:
    record = json.loads((path / 'plan.json').read_text())
    sizes = {name: (path / name).stat().st_size for name in record['files']}
  except FileNotFoundError:
    return False
  return record['identity'] == identity and sizes == record['files']


def _publish(temporary, path, identity):
  """Renames a finished plan into place; another process may have been faster with the same one."""
  if path.exists() and not _is_whole(path, identity):
    logging.warning('the plan %s is damaged and is replaced', path)
    shutil.rmtree(path)
  try:
    os.rename(temporary, path)
  except OSError:
    if not _is_whole(path, identity):
      raise


def _build(directory, store, recipe, length, seed) -> dict[str, int]:
  """Writes the columns of a plan; returns what it counted."""
  build = find('plan', recipe.plan).build
  count = columns.write_columns(directory, _counted(build(store, recipe, length, seed)))
  if recipe.pack:
    length_E = np.load(directory / 'length.npy', mmap_mode='r')
    columns.write_columns(directory, _packed(length_E, recipe, length))
  return count


def _counted(pieces: Iterable[tuple]) -> Iterator[tuple]:
  for column, count in pieces:
    yield column, count | dict(tokens=int(column['length'].sum()))


def _packed(length_E, recipe, capacity) -> Iterator[tuple]:
  yield dict(row_start=np.zeros(1, np.int64)), {}
  packed = 0
  for example_n, count_n in packing.pack(length_E, capacity, recipe.max_examples):
    stop_n = packed + np.cumsum(count_n)
    packed = int(stop_n[-1])
    yield dict(row_start=stop_n, row_example=example_n), {}
