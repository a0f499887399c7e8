"""The run of a workdir: its store, its config, and what is said of it before the first step; what
is left of it where it takes none."""

import contextlib
import math
import os
import pathlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax

from bertjax.checkpoint import resume
from bertjax.config import presets, timeline
from bertjax.errors import UserError
from bertjax.examples import readers
from bertjax.machine import copies, hosts, mirror, pool, remote
from bertjax.metrics import tracking
from bertjax.metrics.progress import Progress
from bertjax.sources import init_from
from bertjax.train import pace, report, resolve, setup
from bertjax.train.watch import digests


def open_run(
  config: Any,
  place: mirror.Workdir,
  progress: Progress,
  given: Collection[str] | None = None,
  overrides: Iterable[str] | None = None,
) -> tuple[setup.Run, init_from.Source | None]:
  """Returns the run over the store (made first if the config gives text), and what it is to begin
  with, if that was opened; arguments as of `resolve.begin`."""
  spec, source, path = _opened(config, place, progress.note, given, overrides)
  reader = readers.of(spec.config.data)
  progress.note(reader.says([phase.config for phase in spec.timeline.parts], path))
  plans = str(pathlib.Path(place.path, 'plans'))
  # Their locks would see to it on most file systems: of all processes one builds the plans.
  run = hosts.first_then_all('plans', lambda: setup.make_run(spec, path, fallback=plans))
  if spec.config.minutes and not spec.facts.steps:
    steps = pace.measure(run, progress.note)
    spec = resolve.resolve(spec.given, spec.facts._replace(steps=steps))
    run = setup.make_run(spec, path, fallback=plans)
  digests.check_data(run)
  shown = None
  for phase in run.parts:
    stats = ', '.join(f'{k} {v:,.6g}' for k, v in phase.examples.stats.items())
    progress.note(f'Phase {phase.name!r}: {stats}')
    if phase.rules != shown:
      shown = phase.rules
      progress.note(f'Parameters of phase {phase.name!r} by the rules of the optimizer\n{shown}')
    if pairs := report.pairs(phase):
      progress.note(pairs)
    if not any(s.evaluation.names for s in phase.evals):
      progress.note(f'Phase {phase.name!r} has no held-out rows to be evaluated on')
  progress.note(f'Mesh {dict(run.devices.mesh.shape)} of {jax.devices()[0].device_kind}')
  model = run.config.model
  dtype = model.dtype if 'dtype' in model else ''  # a model of the user's own may have none
  for warning in presets.warnings(run.config.preset, dtype, jax.devices()[0].platform, os.environ):
    progress.note(warning)
  return run, source


def _opened(
  config: Any,
  place: mirror.Workdir,
  say: copies.Say,
  given: Collection[str] | None = None,
  overrides: Iterable[str] | None = None,
) -> tuple[resolve.RunSpec, init_from.Source | None, str]:
  """Returns what `resolve.begin` does, and what `ensure` of the reader does; checks what each phase
  reads."""
  digests.check_start(config)
  tracking.check(config.trackers)
  workdir = place.path
  spec, source = resolve.begin(config, workdir, given, overrides)
  for note in spec.said:
    say(note)
  data, seed = spec.config.data, spec.config.seed
  reader = readers.of(data)
  if hosts.index() == 0:  # the others may have no vocabulary yet, where it came with a model
    for phase in spec.timeline.parts:
      with timeline.named(phase):
        readers.of(phase.config.data).check(phase.config)
  if remote.is_remote(data.store):
    say(f'The store {data.store} is copied once to each host')
  elif hosts.index() == 0:
    reader.ensure(data, seed, workdir)
    place.send_store()
  if hosts.count() > 1:
    hosts.barrier('store', math.inf)  # as long as process 0 lives
    place.fetch_store()
  return spec, source, reader.ensure(data, seed, workdir)


def check(runs: Mapping[str, tuple[Any, pathlib.Path]]) -> None:
  """Opens what runs are to be trained and judged on, name -> (config, workdir), as they will
  themselves. Raises UserError, which begins with the name, for what cannot work."""
  given = {name: (c.copy_and_resolve_references(), w) for name, (c, w) in runs.items()}
  if given:
    pool.apart(_check, given)


def _check(runs: Mapping[str, tuple[Any, pathlib.Path]]) -> None:
  for name, (config, workdir) in runs.items():
    try:
      with nothing_left(config.data, workdir):
        spec, _, path = _opened(config, mirror.Workdir(str(workdir)), lambda line: None)
        setup.make_run(spec, path, fallback=str(workdir / 'plans'))
    except UserError as error:
      raise UserError(f'{name}: {error}') from error


@contextlib.contextmanager
def nothing_left(data: Any, workdir: pathlib.Path) -> Iterator[None]:
  """Removes the files of a run that fails before its first step. What took a while to make, a store
  or a trained vocabulary, stays for the next start."""
  opened = ['checkpoints', 'metrics.jsonl']
  if not data.train_vocab.type:
    opened.append(resume.VOCAB)
  ours = [path for name in opened if not (path := workdir / name).exists()]
  try:
    yield
  except UserError:
    if resume.stored(workdir) is None and not (workdir / 'spikes').exists() and hosts.index() == 0:
      for path in ours:
        if path.is_dir():
          shutil.rmtree(path)
        else:
          path.unlink(missing_ok=True)
    raise
