"""A system's run on a known language, its arm without attention, and the least losses of both."""

import json
import pathlib
from typing import Any, NamedTuple

from bertjax.config import defaults
from bertjax.evals.held_out import rows
from bertjax.metrics import lines
from bertjax.store import ensure as ensure_store
from bertjax.train import loop, setup
from tests.known_language import language as known_language
from tests.known_language import optimum as optimum_lib
from tests.known_language.language import Language
from tests.known_language.systems import TEXTS, System, config_of


class Found(NamedTuple):
  """A loss in nats, held out."""

  optimum: float  # the least one that any model can have on these rows
  blind: float  # the least one of a model whose tokens see themselves alone
  curve: dict[int, float]  # step -> that of the run
  alone: float | None  # that of the arm without attention at its end; None where it was not run

  @property
  def reached(self) -> float:
    """The loss at the end of the run."""
    return last(self.curve)

  @property
  def closed(self) -> float:
    """The share of the gap that the run has closed, from its arm without attention if it has one,
    else from what such an arm cannot go below."""
    return (self.start - self.reached) / (self.start - self.optimum)

  @property
  def start(self) -> float:
    """Where the gap begins."""
    return self.blind if self.alone is None else self.alone


def ensure_text(folder: pathlib.Path, language: Language, documents: int) -> None:
  """Writes the text of a language to folder/text and makes a store of each kind in folder/NAME."""
  if not (folder / 'text').exists():
    known_language.write(folder / 'text', language, documents)
  for name, flags in TEXTS.items():
    data = defaults.base().data
    data.update({k: v for k, v in flags.items() if k != 'input'})
    data.input = flags['input'].format(folder / 'text')
    data.heldout = flags['input'].format(folder / 'text' / 'heldout')
    data.vocab, data.split = str(folder / 'text' / name / 'vocab.txt'), 'lines'
    ensure_store.ensure_store(data, 0, str(folder / name))


def least(system: System, language: Language, run: setup.Run) -> dict[str, tuple[float, float]]:
  """Returns the optimum and the blind loss (see `Found`) of each loss, on the held-out rows of a
  run: `phase/term`, or `term` of a run of one phase -> (optimum, blind)."""
  found = {}
  for phase in run.parts:
    task, mask = system.tasks[phase.name], phase.config.data.mask
    held_out: Any = rows.hold_out(*rows.main_set(phase.subject))
    given = optimum_lib.Rows(
      language, [*held_out.batches()], task.readings, mask, run.store.vocabulary_size
    )
    optimum, blind = (task.loss(given._replace(alone=alone)) for alone in (False, True))
    for term in task.shares:
      name = term if len(run.parts) == 1 else f'{phase.name}/{term}'
      found[name] = tuple(total / weight for total, weight in (optimum[term], blind[term]))
  return found


def compare(
  system: System, language: Language, store: str, workdir: pathlib.Path, seed: int
) -> dict[str, Found]:
  """Trains a system, and its arm without attention, and compares each of its losses. Returns as
  `least` names them -> what was found.

  Args:
    system: which.
    language: that of the store.
    store: of the system's text.
    workdir: of the runs and the least losses; what is there is not made again.
    seed: of the runs; the rows that judge them are the same for all.
  """
  config = config_of(system, store, seed)
  series, alone = _series(config, workdir / f'seed{seed}'), None
  if system.alone is not None:
    alone = _series(config_of(system, store, seed, alone=True), workdir / f'seed{seed}-alone')
  known = workdir / 'least.json'
  if not known.exists():
    known.write_text(json.dumps(least(system, language, setup.make_run(config, store))))
  return {
    name: Found(optimum, blind, series[name], None if alone is None else last(alone[name]))
    for name, (optimum, blind) in json.loads(known.read_text()).items()
  }


def last(curve: dict[int, float]) -> float:
  """The value at the largest step."""
  return curve[max(curve)]


def _series(config, workdir: pathlib.Path) -> dict[str, dict[int, float]]:
  """Score -> step -> value of a run, which is made, or gone on with, if it is not at its end."""
  if not any(config.total_steps in curve for curve in _scores(workdir).values()):
    loop.run(config, str(workdir))
  return _scores(workdir)


def _scores(workdir: pathlib.Path) -> dict[str, dict[int, float]]:
  found: dict[str, dict[int, float]] = {}
  for row in lines.of_run(workdir):
    for name, value in row.items():
      if name.startswith('eval/'):
        found.setdefault(name.removeprefix('eval/'), {})[int(row['step'])] = value
  return found
