"""Finds the checkpoints of a run and reads them; changes nothing on the disk."""

import contextlib
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bertjax import sharding
from bertjax.checkpoint import finite, manifest
from bertjax.errors import UserError, warn
from bertjax.machine import remote
from bertjax.types import FIT

Fetch = Callable[[str], None]  # makes the checkpoint of a step complete here


def read_state(
  directory: pathlib.Path, abstract: Any, reader: ocp.AsyncCheckpointer | None = None
) -> tuple[Any, dict[str, Any]]:
  """Reads (state, meta) of an intact checkpoint with the shardings of `abstract`,
  ShapeDtypeStructs; `reader` is of a run's checkpoints, None reads those of a shared directory.
  UserError: another format, other arrays than `abstract`, or they are not finite."""
  record = manifest.read(directory)
  if record['format'] < manifest.FORMAT:
    raise UserError(
      f'{directory} has format {record["format"]}, a run is resumed from format '
      f'{manifest.FORMAT}: start in a new --workdir with config.init_from, or resume with the '
      'bertjax that wrote it'
    )
  _check_arrays(directory, record['arrays'], describe(abstract))
  restore = ocp.args.PyTreeRestore(
    item=abstract,
    restore_args=ocp.checkpoint_utils.construct_restore_args(abstract),
    partial_restore=True,
  )
  with contextlib.nullcontext(reader) if reader else ocp.PyTreeCheckpointer() as opened:
    state = opened.restore(directory / 'state', args=restore)
  finite.require(state, directory)
  return state, record['meta']


def newest(source: pathlib.Path | str, fetch: Fetch = lambda step: None) -> pathlib.Path:
  """Returns the directory of the newest intact checkpoint of a local workdir, or `source` if it is
  one; `fetch` is `mirror.Workdir.fetch_checkpoint` of a copy. UserError: none is intact."""
  source = pathlib.Path(source).absolute()
  if (source / manifest.NAME).exists():
    return first_intact([source], fetch)
  directory = source / 'checkpoints'
  candidates = [directory / str(step) for step in reversed(steps_in(directory))]
  if not candidates:
    raise UserError(
      f'expected the workdir of a run or one of its checkpoints, got {source}: no checkpoint there'
    )
  return first_intact(candidates, fetch)


def newest_step(workdir: pathlib.Path | str) -> int | None:
  """Returns the step of the newest complete checkpoint of a run, intact or not, also of a URL; or
  None."""
  if not remote.is_remote(workdir):
    return max(steps_in(pathlib.Path(workdir, 'checkpoints')), default=None)
  there = f'{workdir}/checkpoints'
  steps = sorted(int(name) for name in remote.names(there) if name.isdecimal())
  # The manifest is sent last.
  whole = lambda step: remote.path(f'{there}/{step}/{manifest.NAME}').exists()
  return next(filter(whole, reversed(steps)), None)


def best_step(directory: pathlib.Path, best: Any) -> int | None:
  """Returns the step in `WORKDIR/checkpoints` with the best score by `config.best`, of equal ones
  the latest; None where none has that score."""
  sign = 1.0 if best.mode == 'max' else -1.0
  found = {n: manifest.read_scores(directory / str(n)) or {} for n in steps_in(directory)}
  scores = ((scores.get(best.metric, math.nan), step) for step, scores in found.items())
  scored = [(sign * score, step) for score, step in scores if not math.isnan(score)]
  return max(scored)[1] if scored else None


def choose(
  workdir: pathlib.Path | str, step: int | str | None, best: Any, fetch: Fetch = lambda step: None
) -> pathlib.Path:
  """Returns the directory of a run's checkpoint of a step, with 'best' of the best by
  `config.best`, with None of the newest intact one. UserError: there is none, or it is damaged."""
  step = as_step(step) if isinstance(step, str) else step
  if step is None:
    return newest(workdir, fetch)
  directory = pathlib.Path(workdir).absolute() / 'checkpoints'
  steps = steps_in(directory)
  if step == 'best':
    step = best_step(directory, best)
    if step is None:
      raise UserError(
        f'no checkpoint of {workdir} has a score {best.metric}: name a step of {steps or "none"}'
      )
  elif step not in steps:
    raise UserError(
      f'{workdir} has no checkpoint of step {step}: expected one of {steps or "none"}'
    )
  return first_intact([directory / str(step)], fetch)


def as_step(text: str | None) -> int | str | None:
  """Returns what a flag --step names, for `choose`. UserError: neither a number nor 'best'."""
  if text is None or text == 'best':
    return text
  if not text.isdecimal():
    raise UserError(f"--step: expected a number or 'best', got {text!r}")
  return int(text)


def read_variables(directory: pathlib.Path, abstract: Any = None) -> Any:
  """Reads the variables alone of a checkpoint that was found intact: as `abstract`,
  ShapeDtypeStructs with shardings, or as NumPy arrays. UserError: other arrays than `abstract`, a
  newer format, or they are not finite."""
  record = manifest.read(directory)
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    if abstract is None:
      tree = reader.metadata(directory / 'state').item_metadata.tree['variables']
      item = {'variables': jax.tree.map(lambda _: 0, tree)}
      arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item)
    else:
      item = {'variables': abstract}
      expected, own = describe(item), f'variables/params/{FIT}/'
      # What training alone has is asked for by training alone.
      wanted = lambda k: k.startswith('variables/') and (k in expected or not k.startswith(own))
      stored = {k: v for k, v in record['arrays'].items() if wanted(k)}
      _check_arrays(directory, stored, expected)
      arguments = ocp.checkpoint_utils.construct_restore_args(item)
    restore = ocp.args.PyTreeRestore(item=item, restore_args=arguments, partial_restore=True)
    found = reader.restore(directory / 'state', args=restore)['variables']
  finite.require(found, directory, ': take an earlier checkpoint (--step) or another model')
  return found


def is_step(name: str) -> bool:
  """Returns whether a checkpoint has this name; only `20` is that of step 20."""
  return name.isdecimal() and name == str(int(name))


def steps_in(directory: pathlib.Path) -> list[int]:
  """Steps with a complete checkpoint, oldest first."""
  names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
  return sorted(int(name) for name in names if is_step(name))


def first_intact(
  candidates: Sequence[pathlib.Path], fetch: Fetch = lambda step: None, known: Sequence[str] = ()
) -> pathlib.Path:
  """Finds the first checkpoint that matches its manifest; process 0 looks. `known` are
  problems with earlier ones."""
  chosen, problems = len(candidates), [*known]
  if jax.process_index() == 0:
    for index, directory in enumerate(candidates):
      try:
        fetch(directory.name)
        manifest.verify(directory)
      except manifest.Damaged as damage:
        warn('Checkpoint %s is damaged: %s', directory, damage)
        problems.append(f'{directory}: {damage}')
      else:
        chosen = index
        break
  if jax.process_count() > 1:
    chosen = int(multihost_utils.broadcast_one_to_all(np.int32(chosen)))
  if chosen == len(candidates):
    raise UserError(
      f'no checkpoint is intact, of {len(problems)}, and starting over would hide it. Restore one '
      'from a backup, or start in a new --workdir. ' + '; '.join(problems)
    )
  if jax.process_index() != 0:
    fetch(candidates[chosen].name)
  if chosen or known:
    warn('Falling back to checkpoint %s', candidates[chosen])
  return candidates[chosen]


def describe(tree: Any) -> dict[str, str]:
  """Path -> dtype and shape of every leaf, as in 'float32[2, 64]'."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {sharding.leaf_path(path): f'{x.dtype}{list(x.shape)}' for path, x in leaves}


def _check_arrays(
  directory: pathlib.Path, stored: Mapping[str, str], expected: Mapping[str, str]
) -> None:
  """Refuses arrays that differ, which orbax would pad, cut or cast."""
  differing = [k for k in sorted({*stored, *expected}) if stored.get(k) != expected.get(k)]
  if differing:
    shown = '; '.join(
      f'{k}: expected {expected.get(k, "none")}, got {stored.get(k, "none")}' for k in differing[:5]
    )
    words = any(name.endswith('embeddings/word') for name in differing)
    hint = 'Its words are others in number: was its store or vocabulary another one? '
    raise UserError(
      f'{directory} holds other arrays than this config makes, {len(differing)} in all: {shown}. '
      f'{hint if words else ""}Use the config, and the version of '
      'bertjax, that it was trained with, or start in a new --workdir with config.init_from'
    )
