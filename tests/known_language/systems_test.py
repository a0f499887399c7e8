"""Systems come near the least loss that there is on a language where that is known.

The quick form trains one small model for each in some seconds and asks for a part of the gap
between a model that sees nothing and the optimum; the study trains longer, with an arm without
attention, and asks for `Task.shares`.
"""

import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import pytest
from compiling import optimized
from mutation import mutation
from processes import ROOT
from tiers import in_tiers

from bertjax.train import evaluation, first_state, setup
from tests.known_language import arms
from tests.known_language import language as known_language
from tests.known_language.systems import SYSTEMS, config_of, shares_of

LANGUAGE = known_language.make()
SMALL = {
  'batch_size': 32, 'evals.held_out.examples': 128, 'optimizer.schedule.peak': 4e-3,
  'optimizer.schedule.warmup_steps': 30,
}  # fmt: skip
LABELS = ('next', 'order', 'fake')


class Quick(NamedTuple):
  """A quick run of a system, and the shares of the gap that its losses are to close."""

  steps: int
  tokens: float
  labels: float = 0.0
  fields: dict[str, Any] = {}  # of the run, beside the system's


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
    if not phase.takes(phase.template):
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


# So high a peak keeps ERNIE's dialogues where they are.
GENTLE = {'optimizer.schedule.peak': 2e-3}
# Its first rows have no memory, unlike all but the first of training: others are to outweigh them.
LONG = {'evals.held_out.examples': 256}
QUICK = dict(
  bert=Quick(500, 0.6, 0.25),
  roberta=Quick(250, 0.5),
  albert=Quick(400, 0.6, 0.6),
  diffusion=Quick(400, 0.4),
  spanbert=Quick(250, 0.5),
  ernie=Quick(400, 0.5, 0.25),
  ernie_dialogues=Quick(800, 0.5, 0.25, GENTLE),
  electra=Quick(400, 0.4, fields=GENTLE),
  electra_generator=Quick(250, 0.3),
  deberta_v3_generator=Quick(250, 0.3),
  xlm=Quick(600, 0.5),
  xlm_e=Quick(700, 0.4, fields=GENTLE),
  transformer_xl=Quick(200, 0.7, fields=LONG),
  elmo=Quick(200, 0.5, fields={'optimizer.schedule.peak': 0.2} | LONG),
  gpt=Quick(200, 0.5),
  xlnet=Quick(150, 0.65),
)


@pytest.mark.parametrize('name', in_tiers(QUICK, set(QUICK) - {'transformer_xl'}))
@mutation('right_BP, weight_BP, scale, plus)', 'right_BP, weight_BP, 0.0, plus)', case='bert')
@mutation('nll_BG, right_BG, batch', '0 * nll_BG, right_BG, batch', case='bert')
@mutation(
  'cross_entropy(scores, target_BP)',
  'cross_entropy(scores, jnp.roll(target_BP, 1, 1))',
  file='bertjax/objectives/mlm.py',
  case='xlm',
)
@mutation('batch, 0.0, gradient_scale)', 'batch, 0.0, 0.0)', case='spanbert')
@mutation('- label_BT * logit_BT', '- 0.23 * logit_BT', case='electra')
@mutation('real_BT, scale, plus)', 'real_BT, 0.0, plus)', case='xlm_e')
@mutation('batch, plus, generator_scale)', 'batch, plus, 0.0)', case='electra_generator')
@mutation('name, nll_BP, right_BP', 'name, 0 * nll_BP, right_BP', case='transformer_xl')
@mutation("word'], batch['target_BP']", "word'], jnp.roll(batch['target_BP'], 1, 1)", case='xlnet')
def test_a_system_comes_near_the_optimum(name, store_of):
  """A loss below the optimum has seen its target."""
  quick = QUICK[name]
  for loss, f in learned(name, quick, store_of(SYSTEMS[name].text)).items():
    said = f'{name} {loss}: {f.optimum:.3f} {f.reached:.3f} {f.blind:.3f}, closed {f.closed:.1%}'
    assert f.closed >= (quick.labels if loss in LABELS else quick.tokens), said
    assert f.reached > f.optimum - 0.03, said


@pytest.mark.full
def test_the_study_closes_the_gaps_and_prints_them(tmp_path):
  """All systems, each for one to three minutes; what falls short of `Task.shares` closes at least
  `Task.short`: see docs/learning.md."""
  arguments = ['-m', 'tests.known_language', f'--workdir={tmp_path}']
  quiet = dict(os.environ, XLA_FLAGS='', JAX_PLATFORMS='cpu')
  done = subprocess.run(
    [sys.executable, *arguments], cwd=ROOT, env=quiet, check=True, capture_output=True, text=True
  )
  losses = sum(len(task.shares) for system in SYSTEMS.values() for task in system.tasks.values())
  rows = [line for line in done.stdout.splitlines() if line.startswith('| ') and '%' in line]
  assert len(rows) == losses, done.stdout
  for row in rows:
    system, loss, *_, closed, asked = (cell.strip() for cell in row.strip('|').split('|'))
    _, floor = shares_of(system, loss)
    assert float(closed.rstrip('%')) >= 100 * floor, (row, asked, done.stdout)
