"""A system's run on a known language, its arm without attention, and the least losses of both."""

import pathlib
from typing import Any, NamedTuple

from bertjax.data import ensure_store
from bertjax.data.text import known_language
from bertjax.data.text.known_language import Language
from bertjax.evals.held_out import rows
from bertjax.metrics import curves
from bertjax.studies.known_language.systems import TEXTS, System, config_of
from bertjax.train import loop, setup
from configs import common


class Found(NamedTuple):
  """A loss in nats, held out.

  Attributes:
    optimum: the least one that any model can have on these rows.
    blind: the least one of a model whose tokens see themselves alone.
    curve: step -> that of the run.
    alone: that of the arm without attention at its end; None where it was not run.
    share: how much of the gap is to be closed.
  """

  optimum: float
  blind: float
  curve: dict[int, float]
  alone: float | None
  share: float

  @property
  def reached(self) -> float:
    """The loss at the end of the run."""
    return self.curve[max(self.curve)]

  @property
  def closed(self) -> float:
    """The share of the gap that the run has closed, from its arm without attention if it has one,
    else from what such an arm cannot go below."""
    start = self.blind if self.alone is None else self.alone
    return (start - self.reached) / (start - self.optimum)


def ensure_text(folder: pathlib.Path, language: Language, documents: int) -> None:
  """Writes the text of a language to folder/text and makes a store of each kind in folder/NAME."""
  if not (folder / 'text').exists():
    known_language.write(folder / 'text', language, documents)
  for name, flags in TEXTS.items():
    data = common.data()
    data.update({k: v for k, v in flags.items() if k != 'input'})
    data.input = flags['input'].format(folder / 'text')
    data.heldout = flags['input'].format(folder / 'text' / 'heldout')
    data.vocab, data.split = str(folder / 'text' / name / 'vocab.txt'), 'lines'
    ensure_store.ensure_store(data, 0, str(folder / name))


def compare(
  system: System, language: Language, store: str, workdir: pathlib.Path, seed: int = 0,
  steps: int = 0, with_alone: bool = True,
) -> dict[str, Found]:  # fmt: skip
  """Trains a system, and its arm without attention, and compares each of its losses.

  Args:
    system: which.
    language: that of the store.
    store: of the system's text.
    workdir: of the runs; those that are there are not repeated.
    seed: of the runs.
    steps: in place of the system's, if not 0.
    with_alone: whether to train the arm without attention, where the system has one.

  Returns:
    `phase/term`, or `term` of the phase main -> what was found.
  """
  config = config_of(system, store, seed, steps)
  run = setup.make_run(config, store)
  series = _series(config, workdir / f'seed{seed}')
  blind_series = None
  if with_alone and system.alone is not None:
    blind = config_of(system, store, seed, steps, alone=True)
    blind_series = _series(blind, workdir / f'seed{seed}-alone')
  found = {}
  for phase in run.phases:
    task = system.tasks[phase.name]
    options = rows.options_of(phase.subject, 'held_out', 'config.evals')
    held_out: Any = rows.hold_out(phase.subject, options)
    mask, size = phase.config.data.mask, run.store.vocabulary_size
    least = [
      task.loss(language, held_out.batches(), task.readings, mask, size, alone)
      for alone in (False, True)
    ]
    for term, share in task.shares.items():
      name = term if len(run.phases) == 1 else f'{phase.name}/{term}'
      optimum, bound = (sums[term][0] / sums[term][1] for sums in least)
      alone = None if blind_series is None else list(blind_series[name].values())[-1]
      found[name] = Found(optimum, bound, series[name], alone, share)
  return found


def _series(config, workdir: pathlib.Path) -> dict[str, dict[int, float]]:
  """Score -> step -> value of a run, which is made if it is not there."""
  if not (workdir / 'metrics.jsonl').exists():
    loop.run(config, str(workdir))
  found: dict[str, dict[int, float]] = {}
  for row in curves.read(workdir):
    for name, value in row.items():
      if name.startswith('eval/'):
        found.setdefault(name.removeprefix('eval/'), {})[int(row['step'])] = value
  return found
