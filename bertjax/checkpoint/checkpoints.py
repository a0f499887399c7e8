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
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from jax.experimental import multihost_utils

from bertjax import hosts, mirror
from bertjax.checkpoint import manifest
from bertjax.errors import UserError

TIMEOUT_S = 1800  # of one save; a longer one is an error, not a hang

Fetch = Callable[[str], None]  # makes the checkpoint of a step complete here


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
    """Removes what a killed save left behind.

    Args:
      directory: where the checkpoints are; made if missing.
      keep: how many of the newest to keep.
      best: `config.best`: the one with the best `metric` is kept as well, by `mode`, min or max.
      completed: called by process 0 with the step of a checkpoint that is complete.
      workdir: that the directory is part of, if it may be elsewhere too.

    Raises:
      UserError: a keep below 1 or another mode.
    """
    if keep < 1:
      raise UserError(f'config.keep_checkpoints: expected at least 1, got {keep}')
    if best.mode not in ('min', 'max'):
      raise UserError(f"config.best.mode: expected 'min' or 'max', got {best.mode!r}")
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

  def save(
    self,
    step: int,
    state: Any,
    meta: Mapping[str, Any],
    wait: bool = False,
  ) -> None:
    """Copies the state off the devices and returns; the rest happens in the background.

    Args:
      step: the number of steps taken.
      state: pytree of arrays with `variables` at its top; may be donated after the call.
      meta: JSON values, given back by `restore`.
      wait: whether to return only when the checkpoint is complete.

    Raises:
      UserError: the step has a checkpoint already, or, with wait, this save failed.
    """
    self.settle()
    final = self._directory / str(step)
    if final.exists():
      raise UserError(f'{final} exists already: restore from it, or remove it')
    saving = final.with_name(f'{step}.saving')
    record = dict(step=step, meta=meta, arrays=_describe(state))
    try:
      if self._writes:
        saving.mkdir()
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

  def has(self, step: int) -> bool:
    """Whether there is a checkpoint of a step, or it is under way."""
    return step == self._newest or (self._directory / str(step)).exists()

  def score(self, step: int, scores: Mapping[str, float]) -> None:
    """Adds scores to the checkpoint of a step, in the background and when it is complete;
    `best.metric` among them decides what is kept."""
    if jax.process_index() == 0:
      self._pending.append((step, self._thread.submit(self._score, step, dict(scores))))

  def scores(self, step: int) -> dict[str, float] | None:
    """What was added to the checkpoint of a step; None if nothing was, or it is damaged."""
    self.wait()
    return manifest.read_scores(self._directory / str(step))

  def restore(self, abstract: Any) -> tuple[int, Any, dict[str, Any]] | None:
    """Reads the newest intact checkpoint; damaged newer ones are named in a warning and set aside.

    Args:
      abstract: the state as ShapeDtypeStructs with shardings, which the arrays get whatever mesh
        they were saved from.

    Returns:
      (step, state, meta), or None if there is no checkpoint at all.

    Raises:
      UserError: there are checkpoints and none is intact; the newest intact one has a newer
        format, or other arrays than `abstract`.
    """
    self.wait()
    steps = _steps(self._directory)
    if not steps:
      return None
    candidates = [self._directory / str(step) for step in reversed(steps)]
    directory = _first_intact(candidates, self._workdir.fetch_checkpoint)
    step = int(directory.name)
    if self._writes:
      self._set_aside(s for s in steps if s > step)
    return step, *read_state(directory, abstract, self._saver)

  def latest(self) -> pathlib.Path | None:
    """The directory of the newest complete checkpoint."""
    steps = _steps(self._directory)
    return self._directory / str(steps[-1]) if steps else None

  def failure(self) -> str:
    """What has become of a save in the background: '' while all is well, else what to say, once.

    The next save is the next try.

    Raises:
      UserError: the workdir is elsewhere, and another run writes there.
    """
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
      logging.warning('%s', said)

  def wait(self) -> None:
    """Returns when no save is under way.

    Raises:
      UserError: the save failed, or took longer than TIMEOUT_S.
    """
    pending, self._pending = self._pending, []
    for step, future in pending:
      with self._explained(step):
        future.result(TIMEOUT_S)

  def close(self) -> None:
    """Waits for the last save and ends the threads."""
    self.wait()
    self._thread.shutdown()
    self._saver.close()

  def _commit(self, saving: pathlib.Path, final: pathlib.Path, record: dict[str, Any]) -> None:
    self._saver.wait_until_finished()
    files = self._sent(saving, final.name) if self._workdir.remote else None
    if jax.process_index() == 0:
      manifest.write(saving, record, files)
      self._workdir.send_manifest(saving, final.name)
      saving.rename(final)
      manifest.sync(self._directory)
      self._completed(record['step'])
      self._retain()
    elif self._workdir.remote:
      shutil.rmtree(saving)  # a part, of no use without the others

  def _sent(self, saving: pathlib.Path, step: str) -> manifest.Files:
    """Sends what this process has written; returns what all of them have sent."""
    everyone = hosts.gather(f'written/{step}', json.dumps(manifest.files_of(saving)))
    files, first = {}, {}
    for process, text in reversed([*enumerate(everyone)]):  # of equal names the first process's
      files |= (theirs := json.loads(text))
      first |= dict.fromkeys(theirs, process)
    self._workdir.send_state(saving, step, {n for n in first if first[n] == hosts.index()})
    hosts.barrier(f'sent/{step}')
    return files

  def _score(self, step: int, scores: dict[str, float]) -> None:
    if not (self._directory / str(step)).is_dir():
      return  # its save failed, and that was said
    manifest.write_scores(self._directory / str(step), scores)
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
    steps = _steps(self._directory)
    found = {step: manifest.read_scores(self._directory / str(step)) or {} for step in steps}
    scores = {step: each.get(self._best.metric) for step, each in found.items()}
    sign = 1.0 if self._best.mode == 'max' else -1.0
    ranked = sorted((sign * score, step) for step, score in scores.items() if score is not None)
    kept = {*steps[-self._keep :], *(step for _, step in ranked[-1:])}
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
      if isinstance(error, OSError):  # TimeoutError is one
        raise UserError(said) from error
      error.add_note(said)  # TensorStore has no type of its own for a full disk
      raise


def _saver(apart: bool) -> ocp.AsyncCheckpointer:
  """What writes and reads states.

  Args:
    apart: whether each process has a directory of its own. What they write is then a file for each
      part of an array, so that all files together are the state; one database would need merging.
  """
  primary = ocp.options.MultiprocessingOptions(primary_host=None if apart else 0)
  handler = ocp.PyTreeCheckpointHandler(
    use_compression=False,  # floats: 8% smaller, saved 3x slower
    use_ocdbt=not apart,
    multiprocessing_options=primary,
  )
  return ocp.AsyncCheckpointer(
    handler,
    async_options=ocp.AsyncOptions(timeout_secs=TIMEOUT_S),
    multiprocessing_options=primary,
  )


def newest_before(
  workdir: pathlib.Path | str, step: int, fetch: Fetch = lambda step: None
) -> pathlib.Path | None:
  """The newest intact checkpoint of a run from before a step; None if there is none so old.

  Raises:
    UserError: there are such checkpoints, and none is intact.
  """
  directory = pathlib.Path(workdir).absolute() / 'checkpoints'
  earlier = [directory / str(s) for s in reversed(_steps(directory)) if s < step]
  return _first_intact(earlier, fetch) if earlier else None


def read_state(
  directory: pathlib.Path, abstract: Any, reader: ocp.AsyncCheckpointer | None = None
) -> tuple[Any, dict[str, Any]]:
  """Reads a whole checkpoint that was found to be intact; changes nothing on the disk.

  Args:
    directory: of the checkpoint.
    abstract: the state as ShapeDtypeStructs with shardings.
    reader: of a run's checkpoints; by default one that reads those of a shared directory.

  Returns:
    (state, meta).

  Raises:
    UserError: it has another format, or other arrays than `abstract`.
  """
  record = manifest.read(directory)
  if record['format'] < manifest.FORMAT:
    raise UserError(
      f'{directory} has format {record["format"]}, a run is resumed from format '
      f'{manifest.FORMAT}: start in a new --workdir with config.init_from, or resume with the '
      'bertjax that wrote it'
    )
  _check_arrays(directory, record['arrays'], _describe(abstract))
  restore = ocp.args.PyTreeRestore(
    item=abstract, restore_args=ocp.checkpoint_utils.construct_restore_args(abstract)
  )
  with contextlib.nullcontext(reader) if reader else _saver(apart=False) as opened:
    return opened.restore(directory / 'state', args=restore), record['meta']


def newest(source: pathlib.Path | str, fetch: Fetch = lambda step: None) -> pathlib.Path:
  """The directory of the newest intact checkpoint of a run's workdir, or `source` if it is one.

  Args:
    source: a local directory.
    fetch: `mirror.Workdir.fetch_checkpoint` of the workdir, if it is a copy.

  Raises:
    UserError: no intact checkpoint there.
  """
  source = pathlib.Path(source).absolute()
  if (source / manifest.NAME).exists():
    return _first_intact([source], fetch)
  directory = source / 'checkpoints'
  candidates = [directory / str(step) for step in reversed(_steps(directory))]
  if not candidates:
    raise UserError(
      f'expected the workdir of a run or one of its checkpoints, got {source}: no checkpoint there'
    )
  return _first_intact(candidates, fetch)


def newest_step(workdir: pathlib.Path | str) -> int | None:
  """The step of the newest complete checkpoint of a run, intact or not; None: there is none."""
  return max(_steps(pathlib.Path(workdir, 'checkpoints')), default=None)


def choose(
  workdir: pathlib.Path | str,
  step: int | str | None,
  best: Any,
  fetch: Fetch = lambda step: None,
) -> pathlib.Path:
  """The directory of a checkpoint of a run.

  Args:
    workdir: of the run.
    step: of the checkpoint; 'best': the one with the best score; None: the newest intact one.
    best: `config.best`, which says by what.
    fetch: as of `newest`.

  Raises:
    UserError: there is no such checkpoint, or it is damaged.
  """
  if step is None:
    return newest(workdir, fetch)
  directory = pathlib.Path(workdir).absolute() / 'checkpoints'
  steps = _steps(directory)
  if step == 'best':
    found = {n: (manifest.read_scores(directory / str(n)) or {}).get(best.metric) for n in steps}
    scored = [(value, n) for n, value in found.items() if value is not None]
    if not scored:
      raise UserError(
        f'no checkpoint of {workdir} has a score {best.metric}: name a step of {steps or "none"}'
      )
    return _first_intact([directory / str((max if best.mode == 'max' else min)(scored)[1])], fetch)
  if int(step) not in steps:
    raise UserError(
      f'{workdir} has no checkpoint of step {step}: expected one of {steps or "none"}'
    )
  return _first_intact([directory / str(step)], fetch)


def as_step(text: str | None) -> int | str | None:
  """The step that a flag --step names, as `choose` takes it.

  Raises:
    UserError: neither a number nor 'best'.
  """
  if text is None or text == 'best':
    return text
  if not text.isdecimal():
    raise UserError(f"--step: expected a number or 'best', got {text!r}")
  return int(text)


def read_variables(directory: pathlib.Path, abstract: Any = None) -> Any:
  """Reads the variables alone; changes nothing on the disk.

  Args:
    directory: of a checkpoint, which `newest` or `choose` has found to be intact.
    abstract: the variables as ShapeDtypeStructs with shardings; None reads them as NumPy arrays.

  Raises:
    UserError: other arrays than `abstract`, or a newer format.
  """
  record = manifest.read(directory)
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    if abstract is None:
      tree = reader.metadata(directory / 'state').item_metadata.tree['variables']
      item = {'variables': jax.tree.map(lambda _: 0, tree)}
      arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
    else:
      item = {'variables': abstract}
      stored = {k: v for k, v in record['arrays'].items() if k.startswith('variables/')}
      _check_arrays(directory, stored, _describe(item))
      arguments = ocp.checkpoint_utils.construct_restore_args(item)
    restore = ocp.args.PyTreeRestore(item=item, restore_args=arguments, partial_restore=True)
    return reader.restore(directory / 'state', args=restore)['variables']


def variables_on(directory: pathlib.Path, device: Any) -> Any:
  """The variables of a checkpoint whole on one device, whatever mesh it was saved from.

  Args:
    directory: as of `read_variables`.
    device: of jax.
  """
  place = jax.sharding.SingleDeviceSharding(device)
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    stored = reader.metadata(directory / 'state').item_metadata.tree['variables']
  abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), stored
  )
  return read_variables(directory, abstract)


def _steps(directory: pathlib.Path) -> list[int]:
  """Steps with a complete checkpoint, oldest first."""
  if not directory.is_dir():
    return []
  return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def _first_intact(
  candidates: Sequence[pathlib.Path], fetch: Fetch = lambda step: None
) -> pathlib.Path:
  """The first checkpoint that matches its manifest; process 0 looks, the others follow."""
  chosen, problems = len(candidates), []
  if jax.process_index() == 0:
    for index, directory in enumerate(candidates):
      try:
        fetch(directory.name)
        manifest.verify(directory)
      except manifest.Damaged as damage:
        logging.warning('Checkpoint %s is damaged: %s', directory, damage)
        problems.append(f'{directory}: {damage}')
      else:
        chosen = index
        break
  if jax.process_count() > 1:
    chosen = int(multihost_utils.broadcast_one_to_all(np.int32(chosen)))
  if chosen == len(candidates):
    raise UserError(
      f'none of {len(candidates)} checkpoints is intact, and starting over would hide it. Restore '
      'one from a backup, or start in a new --workdir. ' + '; '.join(problems)
    )
  if jax.process_index() != 0:
    fetch(candidates[chosen].name)
  if chosen:
    logging.warning('Falling back to checkpoint %s', candidates[chosen])
  return candidates[chosen]


def _describe(tree: Any) -> dict[str, str]:
  """Path -> dtype and shape of every leaf, as in 'float32[2, 64]'."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator='/')
  return {name(path): f'{x.dtype}{list(x.shape)}' for path, x in leaves}


def _check_arrays(
  directory: pathlib.Path, stored: Mapping[str, str], expected: Mapping[str, str]
) -> None:
  """Orbax would pad, cut or cast an array that differs; this refuses it."""
  differing = [k for k in sorted({*stored, *expected}) if stored.get(k) != expected.get(k)]
  if differing:
    shown = '; '.join(
      f'{k}: expected {expected.get(k, "none")}, got {stored.get(k, "none")}' for k in differing[:5]
    )
    raise UserError(
      f'{directory} holds other arrays than this config makes, {len(differing)} in all: {shown}. '
      'Use the config that it was trained with, or start in a new --workdir with config.init_from'
    )
