"""Metrics to services besides metrics.jsonl: one that fails is said, and never stops the run."""

import contextlib
import importlib.util
import json
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax

from bertjax import dotted, json_files, registry
from bertjax.errors import UserError

RECORD = 'trackers.json'  # of a workdir: tracker -> id of the run there
PATIENCE = 10  # failures in a row after which a tracker is left alone


class Tracker(Protocol):
  """A run at a service."""

  id: str  # by which the service finds it again

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Logs scalars of a step."""
    ...

  def close(self) -> None:
    """Sends what is waiting."""
    ...


class Trackers:
  """Those of `config.trackers`, on process 0; a resume goes on with the runs that it began."""

  def __init__(self, config: Any, workdir: pathlib.Path | str, say: Callable[[str], None]):
    """Opens them and writes RECORD to the workdir. UserError: no such tracker, or its package is
    lacking."""
    self._say, self._open, self._failures = say, {}, {}
    if jax.process_index() != 0 or not config.trackers:
      return
    record = pathlib.Path(workdir, RECORD)
    ids: dict[str, str] = {}
    with self._guarded(RECORD, 'be read'):
      ids |= json_files.loads(record.read_bytes()) if record.exists() else {}
    flat = dotted.flat(config.copy_and_resolve_references().to_dict())
    for name in config.trackers:
      make = registry.chosen('bertjax.metrics.trackers', name, 'config.trackers')
      with self._guarded(name, 'be opened'):
        self._open[name] = make(config.name, flat, pathlib.Path(workdir), ids.get(name, ''))
        ids[name] = self._open[name].id
        say(f'Metrics also go to {name}, run {ids[name]}')
    with self._guarded(RECORD, 'be written'):
      record.write_text(json.dumps(ids, indent=1), encoding='utf-8')

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Sends scalars to all; those that are not finite too."""
    values = {name: float(value) for name, value in scalars.items()}
    for name, tracker in list(self._open.items()):
      with self._guarded(name, f'take step {step}'):
        tracker.write(int(step), values)
        self._failures[name] = 0
      if self._failures[name] >= PATIENCE:
        self._say(f'{name} has failed {PATIENCE} times in a row: it gets no more of this run')
        del self._open[name]

  def close(self) -> None:
    """Closes all."""
    for name, tracker in self._open.items():
      with self._guarded(name, 'be closed'):
        tracker.close()
    self._open = {}

  @contextlib.contextmanager
  def _guarded(self, name: str, what: str) -> Iterator[None]:
    try:
      yield
    except Exception as error:  # whatever a service, its package or the network may raise
      self._failures[name] = self._failures.get(name, 0) + 1
      self._say(f'Warning: {name} could not {what}: {error!r}; the run goes on without it')
      # For --verbosity=1.
      logging.getLogger(__name__).debug('traceback of the warning above', exc_info=True)


def check(names: Sequence[str]) -> None:
  """Refuses trackers whose packages are not installed. Raises UserError, which names one."""
  for name in names:
    registry.find('bertjax.metrics.trackers', name, 'config.trackers')
    if '.' not in name and importlib.util.find_spec(name) is None:
      raise UserError(
        f'config.trackers: {name} is not installed: pip install {name}, or leave it out'
      )
