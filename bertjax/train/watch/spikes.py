"""Steps that went wrong: a loss or gradients that are not finite, or far above the usual.

Each is recorded in WORKDIR/spikes/STEP.json:

step, why            number of the step, from 1, and what was wrong with it
phase, batch, rows   which batch of which phase it was, the first and the last row of it
loss, grad_norm, lr  of the step; terms: each weighted mean of the objective
usual                loss and grad_norm -> mean and standard deviation over the steps before
skipped              whether the state was left as it was
layers               layer -> norms of parameters, gradients and updates; null where the step was
                     compiled without them: config.skip_nonfinite or config.spike add them
text                 of each row, as the model saw it

What a step is judged by is part of the checkpoints, so a run that was killed records, skips and
stops where an uninterrupted one does.
"""

import itertools
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from bertjax.checkpoint import finite, resume
from bertjax.errors import writing
from bertjax.examples import loader, readers
from bertjax.machine import durable, hosts
from bertjax.train import layer_norms, setup
from bertjax.train.watch import Step, Watcher
from bertjax.types import Batch
from bertjax.vocab.vocabulary import Vocabulary

FOLDER = 'spikes'
STEPS = 100  # about so many are remembered
FEWEST = 20  # before a step can be a spike


class Usual:
  """Mean and variance of a figure over the last steps, older ones counting less and less."""

  def __init__(self, saved: Mapping[str, float] | None = None):
    """Takes what `state` returned."""
    self._count, self._mean, self._variance = (
      (saved['count'], saved['mean'], saved['variance']) if saved else (0, 0.0, 0.0)
    )

  def above(self, value: float, deviations: float) -> bool:
    """Returns whether a value lies more than so many standard deviations above the mean."""
    return self._count >= FEWEST and value > self._mean + deviations * self.deviation

  @property
  def deviation(self) -> float:
    """The standard deviation."""
    return self._variance**0.5

  def add(self, value: float) -> None:
    """Takes in a step."""
    self._count += 1
    share = 1 / min(self._count, STEPS)
    difference = value - self._mean
    self._mean += share * difference
    self._variance = (1 - share) * (self._variance + share * difference**2)

  def state(self) -> dict[str, float]:
    """For a checkpoint, as JSON."""
    return dict(count=self._count, mean=self._mean, variance=self._variance)


class Spikes(Watcher):
  """Judges every step of a run, after the next one has begun, so that no device waits for it.

  Attributes:
    last: the step that was taken last; None before the first.
    loss: of the step that was judged last; None if its batch was left out.
  """

  def __init__(
    self,
    workdir: pathlib.Path | str,
    run: setup.Run,
    saved: Mapping[str, Any] | None,
    say: Callable[[str], None],
    latest: Callable[[], pathlib.Path | None],
  ):
    """Goes on from the entry of `saved`; `say` shows a line, `latest` gives the newest
    checkpoint."""
    self._workdir, self._run, self._say, self._latest = workdir, run, say, latest
    saved = saved or dict(skipped=0, usual={})
    self._skipped: int = saved['skipped']
    self._usual = {name: Usual(saved['usual'].get(name)) for name in ('loss', 'grad_norm')}
    self._judged = 0
    self.last: Step | None = None
    self.loss: float | None = None

  def after(self, step: Step) -> None:
    """Judges the step before this one, as `judge`."""
    self.judge()
    self.last = step

  def judge(self) -> None:
    """Judges the last step, once. Raises NotFinite if it is not, and the run may not skip another
    one."""
    step, bound = self.last, self._run.config.spike
    if step is None or step.done <= self._judged:
      return
    self._judged, self.loss = step.done, None
    if step.found is None:
      return
    figures = {key: float(step.found[key]) for key in ('loss', 'grad_norm')}
    self.loss = figures['loss']
    if not good(step.found):
      self._skip_or_stop(step)
      return
    high = [k for k, v in figures.items() if bound and self._usual[k].above(v, bound)]
    if high:
      why = f'{" and ".join(high)} more than {bound:g} standard deviations above the mean'
      path = self._record(step, why, False)
      shown = ', '.join(f'{k} {v:.4g}' for k, v in figures.items())
      self._say(f'Step {step.done}: a spike, {shown}: {path}')
    for name, value in figures.items():
      self._usual[name].add(value)

  def saved(self, step: Step, state: Any) -> dict[str, Any]:
    """Judges the last step, and the state that its update has made."""
    self.judge()
    try:
      finite.require(state, f'the state after step {step.done}')
    except finite.NotFinite as error:
      if step.found is None:
        raise
      self._skip_or_stop(step, f'; {error}')
    usual = {name: figure.state() for name, figure in self._usual.items()}
    return dict(spikes=dict(skipped=self._skipped, usual=usual))

  def _skip_or_stop(self, step: Step, spoiled: str = '') -> None:
    limit, done, found = self._run.config.skip_nonfinite, step.done, step.found
    skipped = bool(found.get('skipped', False))
    path = self._record(step, 'not finite', skipped)
    phase, index, rows = where(self._run, done)
    said = (
      f'the loss of step {done} is {float(found["loss"])}, the norm of its gradients '
      f'{float(found["grad_norm"])} (phase {phase!r}, batch {index}, rows {rows[0]} to {rows[1]})'
    )
    if skipped and not spoiled and self._skipped < limit:
      self._skipped += 1
      self._say(f'Step {done} was skipped, {self._skipped} of at most {limit}: {said}: {path}')
      return
    many = f'; {self._skipped} such steps were skipped, as many as may be' if self._skipped else ''
    begun = pathlib.Path(self._workdir, resume.NAME).exists()
    raise finite.NotFinite(
      f'{said}{spoiled}{many}; the last good checkpoint is {self._latest()}, the batch is in '
      f'{path}. Lower the learning rate{" with --override" * begun}, leave the step out with '
      f'--config.skip_steps={done}, or let the run skip such steps with --config.skip_nonfinite=N'
      + begun
      * f'. `python -m bertjax.replay --workdir={self._workdir} --step={done}` shows it, and '
      'whether its parameters were spoiled before: then leave out the step before'
    )

  def _record(self, step: Step, why: str, skipped: bool) -> pathlib.Path:
    """Writes the file of a step, on process 0; returns its path. A full disk is said, no more."""
    path = pathlib.Path(self._workdir, FOLDER, f'{step.done}.json')
    if jax.process_index() != 0:
      return path
    usual = {name: dict(u.state(), deviation=u.deviation) for name, u in self._usual.items()}
    body = dict(step=step.done, why=why, skipped=skipped, usual=usual)
    body |= describe(self._run, step.done, step.found, step.batch)
    try:
      with writing('a spike', path):
        path.parent.mkdir(exist_ok=True)
        durable.write_json(path, body)
    except OSError as error:
      self._say(f'Step {step.done} was not recorded: {error}')
    return path


def good(found: Mapping[str, Any] | None) -> bool:
  """Returns whether a step is finite: loss and gradients, and updates if it could skip them."""
  if found is None:
    return True
  if 'skipped' in found:
    return not bool(found['skipped'])
  return math.isfinite(float(found['loss'])) and math.isfinite(float(found['grad_norm']))


def where(run: setup.Run, done: int) -> tuple[str, int, tuple[int, int]]:
  """(phase, number of its batch, first and last row of it) of a step, counted from 1."""
  phase, index = run.at(done)
  name, index, rows = phase.place(index)
  return name, index, (index * rows, (index + 1) * rows - 1)


def describe(run: setup.Run, done: int, found: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
  """Describes a step that was taken: phase, batch, figures, norms and text, as JSON values."""
  name, index, rows = where(run, done)
  phase, number = run.at(done)
  if hosts.count() > 1 and readers.of(run.config.data).repeats:
    batch, _ = phase.batches.at(number)
  figures = {key: float(found[key]) for key in ('loss', 'grad_norm', 'lr')}
  terms = phase.objective.finish(
    {k: (np.float64(total), np.float64(weight)) for k, (total, weight) in found['sums'].items()}
  )
  layers = layer_norms.by_layer(found['norms']) if 'norms' in found else None
  place = dict(phase=name, batch=index, rows=rows)
  text = texts(batch, run.vocabulary)
  return place | figures | dict(terms=terms, layers=layers, text=text)


def texts(batch: Batch, vocabulary: Vocabulary | None) -> list[str]:
  """Returns the text of each row without its padding, special tokens by their names; the ids where
  the vocabulary is not known."""
  kept = [
    ids[example > 0].tolist()
    for arrays in zip(loader.each(batch, 'token_BT'), loader.each(batch, 'example_BT'), strict=True)
    for ids, example in zip(*map(np.asarray, arrays), strict=True)
  ]
  if vocabulary is None:
    return [' '.join(map(str, ids)) for ids in kept]
  special = set(vocabulary.special.values())
  found = []
  for ids in kept:
    parts = []
    for named, group in itertools.groupby(ids, special.__contains__):
      together = list(group)
      parts += [vocabulary.pieces[i] for i in together] if named else [vocabulary.decode(together)]
    found.append(' '.join(parts))
  return found
