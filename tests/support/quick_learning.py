"""Systems on a known language, after the quick steps of the tests."""

from typing import Any, NamedTuple

import jax
from compiling import optimized

from bertjax.train import evaluation, first_state, setup
from tests.known_language import arms
from tests.known_language import language as known_language
from tests.known_language.systems import SYSTEMS, config_of

LANGUAGE = known_language.make()
SMALL = {
  'batch_size': 32, 'evals.held_out.examples': 128, 'optimizer.schedule.peak': 4e-3,
  'optimizer.schedule.warmup_steps': 30,
}  # fmt: skip
LABELS = ('next', 'order', 'fake')


class Quick(NamedTuple):
  """A quick run of a system.

  Attributes:
    steps: of the run.
    tokens, labels: the shares of the gap that its losses are to close.
    fields: of the run, beside the system's.
  """

  steps: int
  tokens: float
  labels: float = 0.0
  fields: dict[str, Any] = {}


def learned(name: str, quick: Quick, store) -> dict[str, arms.Found]:
  """What a system has learned after its quick steps."""
  system = SYSTEMS[name]
  config = config_of(system, str(store), steps=quick.steps)
  config.update_from_flattened_dict(SMALL | quick.fields)
  run = setup.make_run(config, str(store), jax.devices()[:1])
  with optimized(False):
    state = first_state.initial_state(run, lambda line: None)
  for step in range(config.total_steps):
    number, index = run.timeline.at(step)
    phase = run.phases[number]
    if not phase.compiled:
      with optimized(True):
        phase.compile(run.abstract)
    state, _ = phase.train(state, phase.next_batch(index)[0])
  done, judged = config.total_steps, [each for part in run.parts for each in part.evals]
  with optimized(False):
    scores, _ = evaluation.run_due(judged, state.variables, done, True)
  return {
    loss: arms.Found(optimum, blind, {done: scores[f'eval/{loss}']}, None)
    for loss, (optimum, blind) in arms.least(system, LANGUAGE, run).items()
  }


def check(name: str, quick: Quick, store_of) -> None:
  """Asks for the shares of a quick run; a loss below the optimum has seen its target."""
  found = learned(name, quick, store_of(SYSTEMS[name].text))
  for loss, f in found.items():
    print(f'{name} {loss}: {f.optimum:.3f} {f.reached:.3f} {f.blind:.3f}, closed {f.closed:.1%}')
  for loss, f in found.items():
    assert f.closed >= (quick.labels if loss in LABELS else quick.tokens), (loss, f)
    assert f.reached > f.optimum - 0.03, (loss, f)
