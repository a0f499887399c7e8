"""Rows of a plan over a store, masked: every batch is a pure function of its row numbers.

  plan     which ranges of the store make up which example     examples/plans/
  packing  which examples share a row                          packing.py
  order    which rows a batch has                              shuffle.py
  tokens   gathered and laid out                               layout.py
  masking  what is hidden and predicted                        examples/noise/

A plan is a set of columns, one entry per example. It is kept beside the store, in `plans/HASH/`, or
in a directory of the caller's where the store is read-only. Tokens, units and columns of the store
are gathered here alone, from the ranges that the plan names, so that every masking works with every
plan, or is refused by `plan_and_mask.open_recipe`.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertjax import counter_rng, registry
from bertjax.data_contracts import Chosen, Plan, Spec
from bertjax.errors import UserError, warn
from bertjax.examples import layout, packing
from bertjax.examples import shuffle as shuffle_lib
from bertjax.examples.plan_and_mask import Recipe, check_length, check_special, open_recipe
from bertjax.machine import checksums
from bertjax.store import cache, npy_files

FORMAT = 3  # of the cached plans; 2 took text of one document for random text of another


def tables_of(model: Any) -> tuple[str, ...]:
  """Names of the embedding tables of `config.model` that read ids of the batch."""
  return tuple(name for name, _ in model.extra) if 'extra' in model else ()


def read_by(store: Any, model: Any) -> Any:
  """Returns the store in the order in which `config.model` reads it."""
  return store.turned() if 'backward' in model and model.backward else store


@dataclasses.dataclass(frozen=True)
class Examples:
  """The rows of an endless sequence of epochs; `data_contracts.TrainingRows`."""

  store: Any  # the token store
  recipe: Recipe  # the plan and masking that make its batches
  spec: Spec  # inputs of the plan besides the store
  column: dict[str, np.ndarray]  # name -> [examples], the plan
  count: dict[str, int]  # counts of the plan, by name
  # letter -> columns of a row, of each text: T, and U of a noise that makes a second one
  size: dict[str, int]
  tables: Sequence[str] = ()  # names of the store's columns that batches show as `<name>_BT`
  # int64 [rows + 1], where each row's examples begin in row_example; None where rows are examples
  row_start: np.ndarray | None = None
  row_example: np.ndarray | None = None  # int64 [examples], row by row; None likewise
  plan: pathlib.Path | None = None  # the directory of the plan, None of one in memory

  @property
  def length(self) -> int:
    """Tokens of text per row, before the noise."""
    return self.spec.length

  @property
  def examples(self) -> int:
    """Examples per epoch."""
    return len(self.column['length'])

  @property
  def rows(self) -> int:
    """Rows per epoch."""
    return self.examples if self.row_start is None else len(self.row_start) - 1

  @property
  def ordered(self) -> bool:
    """True if each row continues the same row of the batch before it."""
    return self.recipe.plan.ordered

  @property
  def stats(self) -> dict[str, float]:
    """The plan in figures: its own counts, examples, rows, real tokens per row and their share."""
    real = self.count['tokens'] / self.rows
    own = dict(examples=self.examples, rows=self.rows, tokens_per_row=real, fill=real / self.length)
    return self.count | own

  def template(self) -> dict[str, np.ndarray]:
    """Returns a row, for its shapes and dtypes."""
    row = self.batch(np.zeros(1, np.int64), shuffle=not self.ordered)
    return {name: value for name, value in row.items() if name != 'dropped_B'}

  def batch(
    self, row_n: np.ndarray, shuffle: bool, place_n: np.ndarray | None = None
  ) -> dict[str, np.ndarray]:
    """Builds rows, counted over all epochs: the batch of `bertjax.types`, and dropped_B int32,
    targets that had no slot. With shuffle the rows of every epoch, or with language_alpha those of
    every language, are permuted; otherwise they keep the corpus's order. Rows that are masked one
    by one are numbered `place_n`, by default as they are asked for."""
    row_n, block = np.asarray(row_n, np.int64), self.recipe.masking.block(self.recipe.mask_options)
    if self.ordered:
      batch = self._by_epoch(row_n, shuffle)
      return self._fitted(batch) if shuffle else batch
    if block == 1:
      return self._build(row_n if place_n is None else place_n, *self._rows_at(row_n, shuffle))
    # Whatever rows are asked for, whole blocks are built.
    block_n, at_n = np.unique(row_n // block, return_inverse=True)
    whole_n = np.repeat(block_n * block, block) + np.tile(np.arange(block), len(block_n))
    batch = self._build(whole_n, *self._rows_at(whole_n, shuffle))
    return {name: value[at_n * block + row_n % block] for name, value in batch.items()}

  def _by_epoch(self, row_n, shuffle) -> dict[str, np.ndarray]:
    epoch_n, index_n = np.divmod(row_n, self.rows)
    parts, at_n = [], np.argsort(epoch_n, kind='stable')
    for epoch in np.unique(epoch_n).tolist():
      mine_n = np.flatnonzero(epoch_n == epoch)
      chosen = self._chosen(index_n[mine_n])._replace(epoch=epoch, shuffle=shuffle)
      parts.append(self._masked(chosen, row_n[mine_n], epoch_n[mine_n]))
    inverse_n = np.argsort(at_n)
    return {name: np.concatenate([p[name] for p in parts])[inverse_n] for name in parts[0]}

  def _fitted(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a batch of as many columns and slots as its longest row asks for; see `Plan.unit`."""
    unit = self.recipe.plan.unit(self.recipe.plan_options)
    if not unit:
      return batch
    longest = int((batch['example_BT'] > 0).sum(1).max())
    columns = -(-longest // unit) * unit
    return {k: v[:, :columns] if k.endswith(('_BT', '_BP')) else v for k, v in batch.items()}

  @functools.cached_property
  def _schedule(self) -> shuffle_lib.Schedule | None:
    alpha = self.recipe.language_alpha
    if alpha is None:
      return None
    column, block = self.column, self.recipe.language_block
    return shuffle_lib.schedule(column['group'], alpha, block, column.get('weight'))

  def _rows_at(self, row_n, shuffle) -> tuple[np.ndarray, np.ndarray]:
    """Returns the epoch and the index in the epoch of these rows."""
    if shuffle and self._schedule:
      return shuffle_lib.by_language(row_n, self._schedule, self.spec.seed)
    return shuffle_lib.rows(row_n, self.rows, self.spec.seed, shuffle)

  def _build(self, row_n, epoch_n, index_n) -> dict[str, np.ndarray]:
    if self.row_start is None or self.row_example is None:
      return self._masked(self._chosen(index_n), row_n, epoch_n)
    start_n = self.row_start[index_n]
    row_E, offset_E = layout.ragged(self.row_start[index_n + 1] - start_n)
    example_E = self.row_example[start_n[row_E] + offset_E]
    return self._masked(self._chosen(example_E), row_n, epoch_n, row_E)

  def _chosen(self, example_E) -> Chosen:
    return Chosen({k: column[example_E] for k, column in self.column.items()}, example_E)

  def _masked(self, chosen: Chosen, row_n, epoch_n, row_E=None) -> dict[str, np.ndarray]:
    """Makes the batch of examples, by default one a row."""
    recipe = self.recipe
    row_E = np.arange(len(row_n)) if row_E is None else row_E
    # A masking that draws nothing has no field `static`.
    static = getattr(recipe.mask_options, 'static', True)
    epoch_E = np.zeros_like(row_E) if static else epoch_n[row_E]
    root = counter_rng.root(self.spec.seed, 'corrupt')
    key_E = counter_rng.fold(counter_rng.fold(root, epoch_E), chosen.index_E)
    rows = layout.lay_out(
      recipe.plan.ranges(self.store, self.spec, chosen), self.store, row_E, key_E,
      (len(row_n), self.length), row_n, self.spec.seed,
    )  # fmt: skip
    lacking = [name for name in self.tables if name not in rows.ranges.table]
    more = {name: layout.column(rows, self.store, name) for name in lacking}
    rows = rows._replace(ranges=rows.ranges._replace(table={**rows.ranges.table, **more}))
    made = recipe.masking.corrupt(rows, recipe.mask_options, self.store)
    if recipe.masking.sizes is None:
      return {**layout.frame(rows, recipe.pack), **made}
    pad, none = self.store.special['pad'], np.zeros(len(row_n), np.int32)
    return layout.frame_streams(rows, made, self.size, recipe.pack, pad) | dict(dropped_B=none)


def make_examples(
  store,
  data: Any,
  length: int,
  seed: int,
  fallback: str | None = None,
  rows: int = 0,
  tables: Sequence[str] = (),
) -> Examples:
  """Opens the plan of a recipe, `config.data`, over a store, building it on first use. The noise
  says how many tokens of text rows of `length` columns take. Where the store's directory cannot be
  written the plan lies in `fallback`; where that cannot either, in memory. An ordered plan has a
  column for each of the `rows` of a batch; `tables` are as of `Examples`. Raises UserError: as
  `open_recipe`; a special token that the vocabulary lacks, or a store or length that the plan
  cannot use."""
  store, recipe, spec, size = _opened(store, data, length, seed, rows, tables)
  _pieces(store, recipe, spec)  # meets all mistakes before anything is written
  names = [recipe.plan_name, *([recipe.mask_name] if recipe.masking.sizes else ())]
  own = [registry.own_file(name) for name in names if '.' in name]
  identity = dict(
    format=FORMAT,
    code=[checksums.of_file(pathlib.Path(file)) for file in own if file],
    store=checksums.digest(store.meta),
    plan=[recipe.plan_name, dataclasses.asdict(recipe.plan_options)],
    pack=recipe.pack,
    **spec._replace(rows=rows if recipe.plan.ordered else 0, options=None)._asdict(),
  )
  if recipe.masking.sizes:  # which rows hold which examples follows from them
    identity |= dict(noise=[recipe.mask_name, dataclasses.asdict(recipe.mask_options)], size=size)
  roots = [pathlib.Path(store.path, 'plans'), *([pathlib.Path(fallback)] if fallback else [])]

  def build(path: pathlib.Path) -> dict[str, int]:
    count = npy_files.write_columns(path, _pieces(store, recipe, spec))
    if recipe.pack > 1:
      length_E = np.load(path / 'length.npy', mmap_mode='r')
      npy_files.write_columns(path, packing.columns(length_E, recipe, spec.length, size))
    return count

  try:
    directory, count = cache.directory(roots, identity, build)
  except cache.NoRoom as error:
    warn('the plan is kept in memory, and made again at each start: %s', error)
    return examples_in_memory(store, data, length, seed, rows, tables)
  load = lambda path: np.asarray(np.load(path, mmap_mode='r'))
  column = {path.stem: load(path) for path in sorted(directory.glob('*.npy'))}
  packed: dict[str, Any] = {n: column.pop(n, None) for n in ('row_start', 'row_example')}
  found = Examples(store, recipe, spec, column, count, size, tables, plan=directory, **packed)
  return _checked(found)


def examples_in_memory(
  store, data: Any, length: int, seed: int, rows: int = 0, tables: Sequence[str] = ()
) -> Examples:
  """Opens a plan in memory, for a store without a directory: `make_examples` without writing."""
  store, recipe, spec, size = _opened(store, data, length, seed, rows, tables)
  column, count = npy_files.join_columns(_pieces(store, recipe, spec))
  packed: dict[str, Any] = {}
  if recipe.pack > 1:
    packed, _ = npy_files.join_columns(packing.columns(column['length'], recipe, spec.length, size))
  return _checked(Examples(store, recipe, spec, column, count, size, tables, **packed))


def _opened(store, data, length, seed, rows, tables) -> tuple[Any, Recipe, Spec, dict[str, int]]:
  recipe = open_recipe(data)
  if recipe.plan.ordered and rows < 1:
    raise UserError(
      f'config.data.plan {recipe.plan_name!r} reads columns of the whole text side by side: '
      'expected a store, got text that is streamed. Set config.data.reader=store'
    )
  store = store.numbered(data.languages)
  for name in (*recipe.plan.columns, *tables):
    store.column(name)  # refuses a store that lacks it, with the remedy
  if recipe.masking.units(recipe.mask_options):
    store.check_units()
  noise, tokens = recipe.masking, recipe.masking.raw(recipe.mask_options, length)
  made = noise.sizes(recipe.mask_options, tokens) if noise.sizes else {}
  size = {letter: int(columns) for letter, columns in made.items()} | dict(T=length)
  return store, recipe, Spec(recipe.plan_options, tokens, seed, rows), size


def _pieces(store, recipe: Recipe, spec: Spec):
  """Returns the plan's pieces, which are made as they are read; all mistakes are met before
  that."""
  check_special(recipe, store.special, str(store.path))
  if len(store.documents) < 2:
    raise UserError(f'{store.path}: expected at least one document, got none')
  recipe.masking.check(recipe.mask_options, store, spec.length)
  check_length(recipe, spec.length)
  return _kept(recipe.plan.build(store, spec), store, recipe.plan, spec)


def _kept(pieces, store, plan: Plan, spec: Spec):
  """Yields the pieces, their tokens counted, without the examples that `Plan.keep` leaves out."""
  for column, count in pieces:
    if plan.keep is not None:
      ranges = plan.ranges(store, spec, Chosen(column, np.arange(len(column['length']))))
      token_n, _ = layout.tokens(ranges, store)
      stays_E, left_out = plan.keep(store, spec.options, token_n, ranges.length_E)
      column, count = {k: value_E[stays_E] for k, value_E in column.items()}, count | left_out
    yield column, count | dict(tokens=int(column['length'].sum()))


def _checked(examples: Examples) -> Examples:
  """Refuses a plan without rows, and to sample languages that it does not know."""
  recipe = examples.recipe
  if not examples.examples:
    raise UserError(
      f'the plan {recipe.plan_name!r} makes no row of {examples.length} tokens of '
      f'{examples.store.path}, its counts are {examples.count}: raise config.length or give more '
      'text'
    )
  if recipe.language_alpha is not None and 'group' not in examples.column:
    raise UserError(
      f'config.data.language_alpha={recipe.language_alpha} needs the language of every row, which '
      f'the plan {recipe.plan_name!r} over {examples.store.path} does not know: prepare the store '
      'with languages, or set language_alpha=None'
    )
  return examples
