"""Checkpoints: asynchronous, verified file by file, written to be killed at any moment.

  checkpoints/500/state           orbax: the state; its `variables` can be read alone
  checkpoints/500/manifest.json   meta, shapes, sha256 of every file; see manifest.py
  checkpoints/500/scores.json     what the evaluation after that step found, once it is over
  checkpoints/750.saving          being written, or left by a killed save: removed at the next start
  checkpoints/750.damaged         set aside by a restore that fell back to an older one

A checkpoint gets its name last, so `500` is complete unless something damaged it since. All
processes need the same file system; process 0 writes, judges and deletes. Where the workdir is a
URL each has a directory of its own: its part of the state is sent there, and the manifest last.
"""

import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp

from bertjax.checkpoint import finite, manifest, reading
from bertjax.errors import UserError, warn
from bertjax.machine import durable, hosts, mirror

TIMEOUT_S = 1800  # of one save; a longer one is an error, not a hang
_saves = itertools.count()  # tried in this process, as in all others


class Checkpoints:
  """The checkpoints of a run; every process makes the same calls."""

  def __init__(
    self,
    directory: pathlib.Path | str,
    keep: int,
    best: Any,
    completed: Callable[[int], None] = lambda step: None,
    workdir: mirror.Workdir | None = None,
  ):
    """Removes what a killed save left in `directory`, which is made if missing. Kept are the `keep`
    newest and the best by `config.best`; process 0 calls `completed` with the step of each complete
    one."""
    self._directory = pathlib.Path(directory).absolute()  # orbax takes no relative path
    self._keep, self._best, self._completed = keep, best, completed
    self._workdir = workdir or mirror.Workdir(str(directory))
    self._writes = self._workdir.remote or jax.process_index() == 0  # to this directory
    self._directory.mkdir(parents=True, exist_ok=True)
    if self._writes:
      for leftover in (*self._directory.glob('*.saving'), *self._directory.glob('*.deleted')):
        shutil.rmtree(leftover)
    self._saver = _saver(apart=self._workdir.remote and jax.process_count() > 1)
    self._thread = concurrent.futures.ThreadPoolExecutor(1)
    self._newest = 0  # step of the last save
    self._pending: list[tuple[int, concurrent.futures.Future]] = []  # of the thread, in order

  def save(self, step: int, state: Any, meta: Mapping[str, Any], wait: bool = False) -> None:
    """Copies the state, a pytree with `variables` at its top, off the devices and returns: it may
    be donated then. The rest happens in the background, or with `wait` before it returns; `restore`
    gives the JSON values of `meta` back. UserError: the step has a checkpoint already, or, with
    wait, this save failed."""
    self.settle()
    final = self._directory / str(step)
    if final.exists():
      raise UserError(f'{final} exists already: restore from it, or remove it')
    saving = final.with_name(f'{step}.saving')
    record = dict(step=step, meta=meta, arrays=reading.describe(state))
    try:
      self._make(saving)
      self._saver.save(saving / 'state', args=ocp.args.PyTreeSave(state))
    except Exception as error:  # a full disk is a ValueError of TensorStore
      future = concurrent.futures.Future()
      future.set_exception(error)
    else:
      future = self._thread.submit(self._commit, saving, final, record)
      self._newest = step
    self._pending.append((step, future))
    if wait:
      self.wait()

  def _make(self, saving: pathlib.Path) -> None:
    """Makes the directory of a save; an error of one process is raised by all, which would wait for
    it."""
    error = None
    try:
      if self._writes:
        saving.mkdir()
    except OSError as found:
      error = found
    said = hosts.gather(f'saving/{next(_saves)}', str(error or ''))
    if error:
      raise error
    if any(said):
      raise OSError(f'another process cannot save: {next(filter(None, said))}')

  def has(self, step: int) -> bool:
    """Returns whether a step has a checkpoint, or one is being written."""
    return step == self._newest or (self._directory / str(step)).exists()

  def score(self, step: int, scores: Mapping[str, float]) -> None:
    """Adds scores to the checkpoint of a step, in the background and when it is complete;
    `best.metric` among them decides what is kept."""
    if jax.process_index() == 0:
      self._pending.append((step, self._thread.submit(self._score, step, dict(scores))))

  def scores(self, step: int) -> dict[str, float] | None:
    """Returns the scores added to the checkpoint of a step; None without any, or if damaged."""
    self.wait()
    return manifest.read_scores(self._directory / str(step))

  def restore(self, abstract: Any) -> tuple[int, Any, dict[str, Any]] | None:
    """Reads (step, state, meta) of the newest intact checkpoint, None without any; damaged newer
    ones are named in a warning and set aside. The arrays get the shardings of `abstract`,
    ShapeDtypeStructs, whatever mesh they were saved from. UserError: none is intact and finite, or
    the newest intact one has a newer format or other arrays than `abstract`."""
    self.wait()
    steps = reading.steps_in(self._directory)
    if not steps:
      return None
    candidates, problems = [self._directory / str(step) for step in reversed(steps)], []
    while True:
      directory = reading.first_intact(candidates, self._workdir.fetch_checkpoint, problems)
      try:
        state, meta = reading.read_state(directory, abstract, self._saver)
        break
      except finite.NotFinite as error:
        warn('A checkpoint is damaged, and an older one is looked for: %s', error)
        problems.append(str(error))
        candidates = candidates[candidates.index(directory) + 1 :]
    step = int(directory.name)
    if self._writes:
      self._set_aside(s for s in steps if s > step)
    return step, state, meta

  def latest(self) -> pathlib.Path | None:
    """Returns the directory of the newest complete checkpoint."""
    steps = reading.steps_in(self._directory)
    return self._directory / str(steps[-1]) if steps else None

  def failure(self) -> str:
    """Returns the error of a save in the background, once, as a line to show, else ''; the next
    save is the next try. UserError: the workdir is elsewhere, and another run writes there."""
    done = [pair for pair in self._pending if pair[1].done()]
    self._pending = [pair for pair in self._pending if not pair[1].done()]
    for step, future in done:
      error = future.exception()
      if isinstance(error, mirror.TakenOver):
        raise error
      if error is not None:
        if self._writes:
          shutil.rmtree(self._directory / f'{step}.saving', ignore_errors=True)
        return self._said(step, error)
    return ''

  def settle(self) -> None:
    """Returns when no save is under way; one that failed is said."""
    concurrent.futures.wait([future for _, future in self._pending], TIMEOUT_S)
    if said := self.failure():
      warn('%s', said)

  def wait(self) -> None:
    """Returns when no save is under way. UserError: one failed, or took longer than TIMEOUT_S."""
    pending, self._pending = self._pending, []
    for step, future in pending:
      with self._explained(step):
        future.result(TIMEOUT_S)

  def close(self) -> None:
    """Waits for the last save and ends the threads."""
    self.wait()
    self._thread.shutdown()
    with self._explained(self._newest):  # orbax writes of it behind what it was waited for
      self._saver.close()

  def _commit(self, saving: pathlib.Path, final: pathlib.Path, record: dict[str, Any]) -> None:
    self._saver.wait_until_finished()
    files = self._sent(saving, final.name) if self._workdir.remote else None
    if jax.process_index() == 0:
      manifest.write(saving, record, files)
      self._workdir.send_manifest(saving, final.name, files or ())
      saving.rename(final)
      durable.sync(self._directory)
      self._completed(record['step'])
      self._retain()
    elif self._workdir.remote:
      shutil.rmtree(saving)  # a part, of no use without the others

  def _sent(self, saving: pathlib.Path, step: str) -> manifest.Files:
    """Sends what this process has written; returns what all of them have sent."""
    said = [self._workdir.taken_over(), manifest.files_of(saving)]
    everyone = [json.loads(t) for t in hosts.gather(f'written/{step}', json.dumps(said))]
    if taken := everyone[0][0]:
      raise mirror.TakenOver(taken)  # before a byte is sent, by all processes
    files, first = {}, {}
    for process, (_, theirs) in reversed([*enumerate(everyone)]):  # of equal names the first's
      files |= theirs
      first |= dict.fromkeys(theirs, process)
    self._workdir.send_state(saving, step, {n for n in first if first[n] == hosts.index()})
    hosts.barrier(f'sent/{step}')
    return files

  def _score(self, step: int, scores: dict[str, float]) -> None:
    if not (self._directory / str(step)).is_dir():
      return  # its save failed, and that was said
    manifest.write_signed(self._directory / str(step) / manifest.SCORES, dict(scores=scores))
    self._workdir.send_scores(step)
    self._retain()

  def _set_aside(self, steps: Iterable[int]) -> None:
    """Frees the names of damaged checkpoints; the run will come to these steps again."""
    for step in steps:
      if jax.process_index() == 0:
        self._workdir.remove_checkpoint(step)
      aside = self._directory / f'{step}.damaged'
      if aside.exists():
        shutil.rmtree(aside)
      (self._directory / str(step)).rename(aside)

  def _retain(self) -> None:
    """Deletes all but the newest and the best; runs when the newest is complete, or has scores."""
    steps = reading.steps_in(self._directory)
    kept = {*steps[-self._keep :], reading.best_step(self._directory, self._best)}
    for step in set(steps) - kept:
      self._workdir.remove_checkpoint(step)
      doomed = self._directory / f'{step}.deleted'  # a half-deleted one must not look complete
      (self._directory / str(step)).rename(doomed)
      shutil.rmtree(doomed)

  def _said(self, step: int, error: BaseException) -> str:
    return (
      f'checkpoint {step} could not be written to {self._directory}: {error!r}. The newest '
      f'complete one is {self.latest()}: see that the disk has room and can be written to; the '
      'same command resumes'
    )

  @contextlib.contextmanager
  def _explained(self, step: int) -> Iterator[None]:
    try:
      yield
    except Exception as error:
      said = self._said(step, error)
      # TimeoutError is an OSError; TensorStore has no type of its own for a full disk.
      if isinstance(error, OSError) or 'os_error_code=' in str(error):
        raise UserError(said) from error
      error.add_note(said)
      raise


def _saver(apart: bool) -> ocp.AsyncCheckpointer:
  """Makes what writes and reads states. `apart`: each process writes files of its own to a
  directory of its own, where one database would need merging."""
  primary = ocp.options.MultiprocessingOptions(primary_host=None if apart else 0)
  handler = ocp.PyTreeCheckpointHandler(
    use_compression=False,  # floats: 8% smaller, saved 3x slower
    use_ocdbt=not apart,
    multiprocessing_options=primary,
  )
  return ocp.AsyncCheckpointer(
    handler, async_options=ocp.AsyncOptions(timeout_secs=TIMEOUT_S), multiprocessing_options=primary
  )
