"""Plans, which say what tokens make up what row, and `Examples`, which builds batches from them.

A plan is a set of columns, one entry per example, made by a module of this package from the store's
offsets and the seed alone. A plan module, named by `config.data.plan`, has

  build(store, recipe, length, seed)  checks its arguments and returns an iterator of pieces
                                      (columns, counts); the column `length` counts all tokens
  assemble(store, column)             makes the `layout.Text` of some examples
  SPECIAL                             the special tokens it needs, by name
  OPTIONS                             fields of the recipe that it alone follows from, if any

and a corruption, named by `config.data.corrupt`, has

  check(recipe, store, length)        raises UserError where the recipe is wrong
  corrupt(rows, recipe, store)        makes token_BT and what is predicted
  block(recipe)                       how many rows it must be given together, if more than one
  SPECIAL                             as above

A plan whose rows follow each other, batch by batch, has instead of `assemble` a function
`reader(store, recipe, length, seed)`, which returns (epoch, index of rows, shuffle) -> `layout.Text`:
see `bertjax.data.column_stream`. Its rows are never permuted; `config.data.lanes` says how many a batch
has.

A plan whose column `group` says the language of each row can be read language by language: see
`bertjax.data.language_sampling` and `config.data.language_alpha`.

A new file with these is a new plan or corruption; there is no list to add it to. What corruptions
share is in `bertjax.data.targets`.

Plans are kept beside the store, in `plans/HASH/`, or in a directory of the caller's where the store
is read-only.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from bertjax import registry
from bertjax.data import counter_rng, language_sampling, layout, packing
from bertjax.data.store import cache, npy_files
from bertjax.errors import UserError

FORMAT = 1
# What every plan follows from, besides the store, the length, the seed and its own OPTIONS.
KEYS = (
  'plan',
  'dupe_factor',
  'short_prob',
  'pack',
  'max_examples',
)


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
    """The plan in figures: its own counts, examples, rows, real tokens per row and their share."""
    tokens_per_row = self.count['tokens'] / self.rows
    stats = dict(self.count, examples=self.examples, rows=self.rows)
    return stats | dict(tokens_per_row=tokens_per_row, fill=tokens_per_row / self.length)

  def batch(self, row_n: np.ndarray, shuffle: bool) -> dict[str, np.ndarray]:
    """Builds rows.

    Args:
      row_n: int64 row numbers counted over all epochs, >= 0.
      shuffle: permute the rows of every epoch, or with language_alpha those of every language;
        otherwise they keep the corpus's order.

    Returns:
      The batch of `bertjax.types`, and dropped_B int32: targets that had no slot.
    """
    row_n, block = np.asarray(row_n, np.int64), self._block
    if self._reader:
      return self._read(row_n, shuffle)
    if block == 1:
      return self._build(row_n, *self._rows_at(row_n, shuffle))
    # Whatever rows are asked for, whole blocks are built.
    block_n, at_n = np.unique(row_n // block, return_inverse=True)
    whole_n = np.repeat(block_n * block, block) + np.tile(np.arange(block), len(block_n))
    batch = self._build(whole_n, *self._rows_at(whole_n, shuffle))
    return {name: value[at_n * block + row_n % block] for name, value in batch.items()}

  @property
  def ordered(self) -> bool:
    """Whether rows go on where those of the batch before them stopped."""
    return self._reader is not None

  @functools.cached_property
  def _reader(self) -> Any:
    plan = find('plan', self.recipe.plan)
    if not hasattr(plan, 'reader'):
      return None
    return plan.reader(self.store, self.recipe, self.length, self.seed)

  def _read(self, row_n, shuffle) -> dict[str, np.ndarray]:
    """Builds rows epoch by epoch."""
    epoch_n, index_n = np.divmod(row_n, self.rows)
    parts, at_n = [], np.argsort(epoch_n, kind='stable')
    for epoch in np.unique(epoch_n).tolist():
      mine_n = np.flatnonzero(epoch_n == epoch)
      text = self._reader(epoch, index_n[mine_n], shuffle)
      parts.append(self._corrupt(text, row_n[mine_n], epoch_n[mine_n], index_n[mine_n]))
    inverse_n = np.argsort(at_n)
    return {name: np.concatenate([p[name] for p in parts])[inverse_n] for name in parts[0]}

  @property
  def _block(self) -> int:
    corruption = find('corrupt', self.recipe.corrupt)
    return corruption.block(self.recipe) if hasattr(corruption, 'block') else 1

  @functools.cached_property
  def _schedule(self) -> language_sampling.Schedule | None:
    alpha = self.recipe.language_alpha
    if alpha is None:
      return None
    return language_sampling.schedule(self.column['group'], alpha, self.recipe.language_block)

  def _rows_at(self, row_n, shuffle) -> tuple[np.ndarray, np.ndarray]:
    """Returns the epoch and the index in the epoch of these rows."""
    if shuffle and self._schedule:
      return language_sampling.rows_at(row_n, self._schedule, self.seed)
    epoch_n, index_n = np.divmod(row_n, self.rows)
    if shuffle:
      key_n = counter_rng.fold(counter_rng.root(self.seed, 'shuffle'), epoch_n)
      index_n = counter_rng.permute(key_n, index_n, self.rows)
    return epoch_n, index_n

  def _build(self, row_n, epoch_n, index_n) -> dict[str, np.ndarray]:
    if self.row_start is None or self.row_example is None:
      row_E, example_E = np.arange(len(index_n)), index_n
    else:
      start_n = self.row_start[index_n]
      row_E, offset_E = layout.ragged(self.row_start[index_n + 1] - start_n)
      example_E = self.row_example[start_n[row_E] + offset_E]
    plan = find('plan', self.recipe.plan)
    text = plan.assemble(self.store, {k: column[example_E] for k, column in self.column.items()})
    return self._corrupt(text, row_n, epoch_n, example_E, row_E)

  def _corrupt(self, text, row_n, epoch_n, example_E, row_E=None) -> dict[str, np.ndarray]:
    """Makes the batch of examples, by default one a row."""
    row_E = np.arange(len(row_n)) if row_E is None else row_E
    epoch_E = np.zeros_like(row_E) if self.recipe.mask.static else epoch_n[row_E]
    key_E = counter_rng.fold(
      counter_rng.fold(counter_rng.root(self.seed, 'corrupt'), epoch_E), example_E
    )
    placed = layout.layout(text, row_E, key_E, (len(row_n), self.length), row_n, self.seed)
    corruption = find('corrupt', self.recipe.corrupt)
    slots = self.recipe.max_examples if self.recipe.pack else 1
    return layout.frame(placed, slots) | corruption.corrupt(placed, self.recipe, self.store)


def make_examples(store, recipe, length: int, seed: int, fallback: str | None = None) -> Examples:
  """Opens the plan of a recipe over a store, building it on first use.

  Args:
    store: the token store.
    recipe: `config.data`.
    length: tokens per row, special tokens included.
    seed: of the plan, the order and the corruption.
    fallback: directory for plans where the store's own cannot be written.

  Raises:
    UserError: an unknown plan or corruption, a special token that the vocabulary lacks, a store or
      length that the plan cannot use, or no place to write the plan.
  """
  pieces = _pieces(store, recipe, length, seed)
  options = getattr(find('plan', recipe.plan), 'OPTIONS', ())
  identity = dict(
    format=FORMAT,
    length=length,
    seed=seed,
    store=cache.digest(store.meta),
    **{key: recipe[key] for key in (*KEYS, *options)},
  )
  roots = [pathlib.Path(store.path, 'plans'), *([pathlib.Path(fallback)] if fallback else [])]

  def build(path: pathlib.Path) -> dict[str, int]:
    count = npy_files.write_columns(path, pieces)
    if recipe.pack:
      length_E = np.load(path / 'length.npy', mmap_mode='r')
      npy_files.write_columns(path, _packed(length_E, recipe, length))
    return count

  directory, count = cache.directory(roots, identity, build)
  files = sorted(directory.glob('*.npy'))
  column = {path.stem: np.asarray(np.load(path, mmap_mode='r')) for path in files}
  packed = {name: column.pop(name, None) for name in ('row_start', 'row_example')}
  return _checked(Examples(store, recipe, length, seed, column, count=count, **packed))


def examples_in_memory(store, recipe, length: int, seed: int) -> Examples:
  """As `make_examples`, for a store that has no directory: nothing is written."""
  column, count = npy_files.join_columns(_pieces(store, recipe, length, seed))
  packed: dict[str, Any] = dict(row_start=None, row_example=None)
  if recipe.pack:
    packed, _ = npy_files.join_columns(_packed(column['length'], recipe, length))
  return _checked(Examples(store, recipe, length, seed, column, count=count, **packed))


def find(kind: str, name: str) -> ModuleType:
  """The module that `config.data.<kind>` names, 'plan' or 'corrupt'."""
  package = {'plan': 'plans', 'corrupt': 'masking'}[kind]
  return registry.find(f'bertjax.data.{package}', name, f'config.data.{kind}')


def _pieces(store, recipe, length, seed) -> Iterator[tuple]:
  """Returns the plan's pieces, which are made as they are read; all mistakes are met before
  that."""
  plan, corruption = find('plan', recipe.plan), find('corrupt', recipe.corrupt)
  needed = dict.fromkeys(('pad', *plan.SPECIAL, *corruption.SPECIAL))
  missing = [name for name in needed if store.special.get(name) is None]
  if missing:
    raise UserError(
      f'plan {recipe.plan!r} with {recipe.corrupt!r} needs the special tokens {", ".join(needed)}; '
      f'the vocabulary of {store.path} has no {", ".join(missing)}. Prepare the store with a '
      'vocabulary that has them'
    )
  if len(store.documents) < 2:
    raise UserError(f'{store.path}: expected at least one document, got none')
  if recipe.pack and recipe.max_examples < 1:
    raise UserError(f'config.data.max_examples must be at least 1, got {recipe.max_examples}')
  if recipe.language_alpha is not None and (recipe.pack or recipe.language_block < 1):
    raise UserError(
      'config.data.language_alpha reads rows language by language: expected pack=False and '
      f'language_block >= 1, got {recipe.pack} and {recipe.language_block}'
    )
  corruption.check(recipe, store, length)
  return _counted(plan.build(store, recipe, length, seed))


def _checked(examples: Examples) -> Examples:
  """Refuses a plan without rows, and to sample languages that it does not know."""
  if not examples.examples:
    raise UserError(
      f'the plan {examples.recipe.plan!r} makes no row of {examples.length} tokens of '
      f'{examples.store.path}, its counts are {examples.count}: raise config.length or give more '
      'text'
    )
  if examples.recipe.language_alpha is not None and 'group' not in examples.column:
    raise UserError(
      f'config.data.language_alpha={examples.recipe.language_alpha} needs the language of every '
      f'row, which the plan {examples.recipe.plan!r} over {examples.store.path} does not know: '
      'prepare the store with languages, or set language_alpha=None'
    )
  return examples


def _counted(pieces):
  for column, count in pieces:
    yield column, count | dict(tokens=int(column['length'].sum()))


def _packed(length_E, recipe, capacity):
  yield dict(row_start=np.zeros(1, np.int64)), {}
  packed = 0
  for example_n, count_n in packing.pack(length_E, capacity, recipe.max_examples):
    stop_n = packed + np.cumsum(count_n)
    packed = int(stop_n[-1])
    yield dict(row_start=stop_n, row_example=example_n), {}
