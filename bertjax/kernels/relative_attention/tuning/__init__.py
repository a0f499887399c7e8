"""The tiles of the kernels, as data: a JSON file for each kind of device, tried from the top.

`tpu.json` and `gpu.json` are for kinds without a file of their own. `python -m bertjax.bench kernel
--mode=tune` times candidates on the device at hand and writes the file of its kind.
"""

import contextlib
import contextvars
import functools
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax

from bertjax.errors import warn

FOLDER = pathlib.Path(__file__).parent

# The kernels of an implementation that have tiles of their own.
KERNELS = {'tpu': ('both',), 'gpu': ('forward', 'queries', 'keys', 'diagonals')}


class Tile(NamedTuple):
  """The sides of a kernel's tiles (TPU: the same multiple of 128; GPU: powers of two from 16), and
  the warps and pipeline stages of a GPU's programs."""

  queries: int
  keys: int
  warps: int = 4
  stages: int = 2


class Call(NamedTuple):
  """Key of a table of tiles: dtype of q, how many tables of positions are multiplied, H,
  max(T, S)."""

  dtype: str
  tables: int
  size: int
  length: int

  @classmethod
  def of(cls, q_BTNH: jax.Array, k_BSNH: jax.Array, tables: int) -> 'Call':
    """Returns the key of these operands."""
    length = max(q_BTNH.shape[1], k_BSNH.shape[1])
    return cls(q_BTNH.dtype.name, tables, q_BTNH.shape[-1], length)


class Entry(NamedTuple):
  """The tiles of each of KERNELS, for the calls of a dtype and so many tables, of at most this size
  and length; None: of any."""

  kernels: Mapping[str, Tile]
  dtype: str | None = None
  tables: int | None = None
  size: int | None = None
  length: int | None = None

  def covers(self, call: Call) -> bool:
    """Returns True if the entry's tiles are for this call."""
    pairs: Any = list(zip(self[1:], call, strict=True))
    same = all(mine is None or mine == its for mine, its in pairs[:2])
    return same and all(mine is None or its <= mine for mine, its in pairs[2:])


Table = tuple[Entry, ...]

_CHOSEN: contextvars.ContextVar[Table | None] = contextvars.ContextVar('tiles', default=None)


@contextlib.contextmanager
def using(table: Table) -> Iterator[None]:
  """Within it, this table is that of every device: what is traced there is timed or tested."""
  token = _CHOSEN.set(table)
  try:
    yield
  finally:
    _CHOSEN.reset(token)


def choose(impl: str, kind: str, call: Call) -> Mapping[str, Tile]:
  """Returns the tile of each kernel of an implementation, for a call on a kind of device; raises
  ValueError where the file of the kind is not a table."""
  table = _CHOSEN.get() or load(impl, kind)
  return next(entry.kernels for entry in table if entry.covers(call))


def path(kind: str) -> pathlib.Path:
  """Returns the path for a kind of device's table: 'TPU v5 lite' in `tpu_v5_lite.json`."""
  return FOLDER / (re.sub(r'\W+', '_', kind.strip().lower()) + '.json')


@functools.cache
def load(impl: str, kind: str) -> Table:
  """Returns the table of a kind of device, or that of all kinds without one, which is said once."""
  own = path(kind)
  file = own if own.exists() else FOLDER / f'{impl}.json'
  if file != own:
    warn(
      'attention: no tiles were timed on %r, so its kernel takes those of %s; '
      '`python -m bertjax.bench kernel --mode=tune` on it times some and writes %s',
      kind, file.name, own.name,
    )  # fmt: skip
  try:
    return parse(impl, json.loads(file.read_text()))
  except ValueError as error:
    remedy = 'remove it; python -m bertjax.bench kernel --mode=tune writes it anew'
    raise ValueError(f'{file}: {error}; {remedy}') from error


def parse(impl: str, data: Any) -> Table:
  """Returns a table from its file's content: {'timed': None or where and when, 'entries': [..]},
  each entry with the fields of `Entry`. Raises ValueError for unknown or missing fields, tiles that
  the kernel cannot have, and calls that no entry covers."""
  if not isinstance(data, dict) or set(data) != {'timed', 'entries'} or not data['entries']:
    raise ValueError("expected {'timed': .., 'entries': [..]} with an entry at least")
  table = tuple(_entry(impl, entry) for entry in data['entries'])
  conditions = [k for k, x in table[-1]._asdict().items() if k != 'kernels' and x is not None]
  if conditions:
    raise ValueError(f'expected a last entry for all calls, got one with {", ".join(conditions)}')
  return table


def _entry(impl: str, data: dict[str, Any]) -> Entry:
  if not set(data) <= set(Entry._fields):
    raise ValueError(f'expected fields among {", ".join(Entry._fields)}; got {sorted(data)}')
  kernels = data.get('kernels', {})
  if set(kernels) != set(KERNELS[impl]):
    raise ValueError(f'expected tiles of {", ".join(KERNELS[impl])}; got {sorted(kernels)}')
  tiles = {}
  for name, fields in kernels.items():
    try:
      tiles[name] = Tile(**fields)
    except TypeError as error:
      raise ValueError(f'expected {", ".join(Tile._fields)}; got {fields}') from error
    check(impl, name, tiles[name])
  return Entry(tiles, **{name: x for name, x in data.items() if name != 'kernels'})


def check(impl: str, kernel: str, tile: Tile) -> None:
  """Raises ValueError for a tile that the kernel cannot have; says which it can."""
  square = impl == 'tpu' or kernel == 'diagonals'
  if square and tile.queries != tile.keys:
    raise ValueError(f'attention: expected as many queries as keys in {kernel}, got {tile}')
  if impl == 'tpu' and (tile.keys % 128 or tile.keys <= 0):
    raise ValueError(f'attention: expected tiles of a multiple of 128, got {tile}')
  if impl == 'gpu' and any(n < 16 or n & (n - 1) for n in tile[:2]):
    raise ValueError(f'attention: expected tiles of powers of two from 16, got {tile}')
  if tile.warps not in (1, 2, 4, 8, 16) or tile.stages < 1:
    raise ValueError(f'attention: expected 1, 2, 4, 8 or 16 warps and a stage or more, got {tile}')


def dump(table: Table, timed: str | None) -> dict[str, Any]:
  """Returns the content of a table's file; `parse` reads it."""
  told = lambda x: {k: v for k, v in x._asdict().items() if x._field_defaults.get(k) != v}
  tiles = lambda entry: dict(kernels={k: told(tile) for k, tile in entry.kernels.items()})
  return dict(timed=timed, entries=[told(entry) | tiles(entry) for entry in table])
