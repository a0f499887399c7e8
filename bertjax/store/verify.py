"""Is a finished store what was written? Reads every file of it once, from end to end."""

import pathlib
from collections.abc import Iterator

from bertjax.machine import checksums
from bertjax.store import cache, reader

HELD_OUT, PLANS = 'heldout', 'plans'


def faults(path: pathlib.Path) -> Iterator[str]:
  """Yields what is wrong with the files of a store and of its `heldout/`, as it is found. Raises
  UserError as `reader.read_meta`."""
  meta = reader.read_meta(path)
  for name, size in meta['files'].items():
    if said := checksums.fault(path / name, size, meta['sha256'].get(name, '')):
      yield said
  if (path / HELD_OUT).exists():
    yield from faults(path / HELD_OUT)


def other_sizes(path: pathlib.Path) -> Iterator[str]:
  """Yields which files of a store, of those that are there, have other sizes than were written;
  reads none. Raises UserError as `reader.read_meta`, where there is a description."""
  sizes = reader.read_meta(path)['files'] if (path / 'store.json').is_file() else {}
  for name, size in sizes.items():
    if (path / name).exists() and (said := checksums.fault(path / name, size, '', reads=False)):
      yield said


def plan_faults(path: pathlib.Path) -> Iterator[str]:
  """Yields what is wrong with the plans beside a store and its `heldout/`."""
  for directory in (path / PLANS, path / HELD_OUT / PLANS):
    for record in sorted(directory.glob(f'*/{cache.RECORD}')):
      if said := cache.fault(record.parent):
        yield said
