"""Writer of a run's log: metrics.jsonl and TensorBoard events."""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bertjax.errors import warn, writing
from bertjax.machine import durable
from bertjax.metrics import lines as lines_lib
from bertjax.metrics.tracking import Trackers

CHANGED = 'changed'  # in the line of a resume with another config: key -> {old, new}


class Writer:
  """Writes scalars to workdir/metrics.jsonl and workdir/tensorboard, from process 0. A line is one
  JSON object, `step` first; numbers read back bit for bit, NaN and Infinity as Python's json has
  them. Time and speed aside, an interrupted run and an uninterrupted one leave the same file."""

  def __init__(
    self, workdir: pathlib.Path | str, resume_step: int, trackers: Trackers | None = None,
    saved: Mapping[str, Any] | None = None,
  ):  # fmt: skip
    """Goes on behind the restored step, 0 in a new run: later lines are removed, and of that step
    its scores and the changes of the config, which are written again. `saved` is what `sync`
    returned then; lines that are lacking or others are said."""
    self._trackers = trackers
    self._first = jax.process_index() == 0
    if not self._first:
      return
    path = pathlib.Path(workdir, 'metrics.jsonl')
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = _cut_back(path, resume_step) if path.exists() else []
    if saved and not _same(kept, saved):
      warn(
        '%s: expected the %d lines that were written until step %d, got %d: some were removed or '
        'changed; the run goes on', path, saved['lines'], resume_step, len(kept),
      )  # fmt: skip
    self._path, self._lines = path, []
    self._digest, self._count = hashlib.sha256(b''.join(kept)), len(kept)
    self._since: list[bytes] = []  # lines that are not in the digest yet
    self._file = open(path, 'ab', buffering=0)
    self._events = _Events(path.parent / 'tensorboard', resume_step + 1)

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Appends one line and one set of events; nothing if there are no scalars. A disk that is full
    does not stop the run: that is said, and lines are kept until it takes them."""
    if not self._first or not scalars:
      return
    values = {name: float(value) for name, value in scalars.items()}
    self.note(step, values)
    self._events.write(int(step), values)
    if self._trackers:
      self._trackers.write(step, values)

  def note(self, step: int, values: Mapping[str, Any]) -> None:
    """Appends a line of JSON values to metrics.jsonl alone; nothing if there are none."""
    if self._first and values:
      self._lines.append(json.dumps({'step': int(step), **values}).encode() + b'\n')
      self._since.append(self._lines[-1])
      self._write_lines()

  def sync(self, step: int) -> dict[str, Any]:
    """Has the lines so far on the disk: the checkpoint of a step counts on them. Returns number and
    sha256 of those that a resume from it keeps; on process 0."""
    if not self._first:
      return {}
    self._write_lines()
    os.fsync(self._file.fileno())
    kept = [line for line in self._since if _stays(json.loads(line), step)]
    self._since = self._since[len(kept) :]
    self._count += len(kept)
    self._digest.update(b''.join(kept))
    return dict(lines=self._count, sha256=self._digest.hexdigest())

  def close(self) -> None:
    """Closes both, once."""
    if self._first and not self._file.closed:
      self._write_lines()
      self._file.close()
      self._events.close()

  def _write_lines(self) -> None:
    end = self._file.seek(0, os.SEEK_END)
    while self._lines:
      try:
        whole = self._file.write(self._lines[0]) == len(self._lines[0])
        reason = 'the line did not fit'
      except OSError as error:
        whole, reason = False, str(error)
      if not whole:
        self._file.truncate(end)  # no torn line in the middle
        warn('%s: %s; its lines wait and are written when there is room', self._path, reason)
        return
      end += len(self._lines.pop(0))


class _Events:
  """TensorBoard's events, without the thread of SummaryWriter, which a full disk ends for good."""

  def __init__(self, directory: pathlib.Path, purge_step: int):
    """TensorBoard forgets `purge_step` and what follows."""
    self._directory, self._purge_step = directory, purge_step
    self._writer: Any = None
    self._on = True

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Writes scalars; at the first failure says so and writes no more."""
    if not self._on:
      return
    from tensorboardX import event_file_writer, summary  # imports torch, if there is one
    from tensorboardX.proto import event_pb2

    proto: Any = event_pb2  # its classes are made when it is imported

    try:
      if self._writer is None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._writer = event_file_writer.EventsWriter(str(self._directory / 'events'))
        start = proto.SessionLog(status=proto.SessionLog.START)
        for first in (dict(file_version='brain.Event:2'), dict(session_log=start)):
          event = proto.Event(wall_time=time.time(), step=self._purge_step, **first)
          self._writer.write_event(event)
      for name, value in values.items():
        scalar = summary.scalar(name, value)
        self._writer.write_event(proto.Event(wall_time=time.time(), step=step, summary=scalar))
      self._writer.flush()
    except OSError as error:
      warn(
        'TensorBoard gets no more of this run, metrics.jsonl has all: %s: %s',
        self._directory,
        error,
      )
      self._on = False

  def close(self) -> None:
    """Closes the file."""
    if self._writer is not None and self._on:
      self._writer.close()


def _stays(row: Mapping[str, Any], step: int) -> bool:
  """Tells whether a line was there when the checkpoint of a step was saved."""
  later = all(name.startswith('eval/') or name == CHANGED for name in row if name != 'step')
  return row['step'] < step or row['step'] == step and not later


def _same(kept: Sequence[bytes], saved: Mapping[str, Any]) -> bool:
  """Compares lines with those that were saved; early stopping may log one after its save."""
  own, more = kept[: saved['lines']], kept[saved['lines'] :]
  whole = hashlib.sha256(b''.join(own)).hexdigest() == saved['sha256']
  return whole and len(more) < 2 and not {*more} & {*own}


def _cut_back(path: pathlib.Path, step: int) -> list[bytes]:
  """Keeps and returns the lines up to a step, without those after its checkpoint and a torn one."""
  kept = [line for line, row in lines_lib.read(path) if _stays(row, step)]
  temporary = path.with_name(path.name + '.tmp')
  with writing('metrics', path):
    temporary.write_bytes(b''.join(kept))
    durable.sync(temporary)
    temporary.rename(path)
  return kept
