"""Every system learns one batch by heart: all that it is asked about the batch can be learned.

Where a signal stays at its baseline for long on real text, this rules out that it cannot rise.
"""

import jax
import pytest
import systems
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.train import first_state, setup

STEPS = 400
# A generator that has learned the batch replaces a token or two in a step: where it is less than
# this share, they are told apart over so many steps.
FEW, LAST = 0.01, 50
MORE = 1000  # where the batch is asked about other replacements in each step, and so over `LAST`
PEAKS = dict(ulmfit=1e-2)
# A generator that has learned the batch replaces nothing: one that cannot learn does.
UNIFORM = {'model.generator': 'uniform', 'evals.pseudo_perplexity.rows': 0}
SYSTEMS = [*((name, {}) for name in systems.NAMES), ('electra', UNIFORM)]


def learned(config: ConfigDict, rich_store, steps: int) -> dict[str, float]:
  """What is logged of each phase's first batch in the last of so many steps on it."""
  run = setup.make_run(config, rich_store, jax.devices()[:1])
  state, scores = first_state.initial_state(run), {}
  for phase in run.phases:
    phase.compile(run.abstract)
    batch = phase.next_batch(0)[0]
    sums = []
    for _ in range(steps):
      state, metrics = phase.train(state, batch)
      sums = [*sums[1 - LAST :], metrics['sums']]
    *_, last = sums = jax.device_get(sums)
    found = phase.objective.finish(last)
    whole = phase.objective.finish(jax.tree.map(lambda *parts: sum(parts), *sums))
    aucs = [key for key in found if key.endswith('auc')]
    pooled = [key for key in aucs if steps == MORE or found[f'{key[:-3]}replaced'] < FEW]
    found |= {key: whole[key] for key in pooled}
    scores |= {f'{phase.name}/{key}': x for key, x in found.items()}
  return scores


@pytest.mark.full
@pytest.mark.parametrize('name, fields', SYSTEMS, ids=str)
@mutation(
  "out['pooled_BGD'] = read_BGD",
  "out['pooled_BGD'] = read_BGD = read_BGD * 0.0 + 1.0",
  case='albert-{}',
)
def test_one_batch_is_learned_by_heart(name, fields, rich_store):
  config = systems.tiny(name, **fields)
  still = [key for key in config.model if key.endswith('dropout') or key in ('ar', 'tar')]
  config.model.update({key: type(config.model[key])(0) for key in still})
  config.model.update({key: 0.08 for key in config.model if key == 'init_std'})
  config.optimizer.lr_scale = (('.*', 1.0),)
  schedule = dict(name='constant', peak=PEAKS.get(name, 2e-3))
  if fields == UNIFORM:  # at a constant rate the last steps undo one another
    schedule = dict(name='linear', peak=1e-3, warmup_steps=0, total_steps=MORE)
  config.optimizer.schedule = ConfigDict(schedule)
  for phase in config.phases.values():
    if 'optimizer' in phase:
      del phase.optimizer
  scores = learned(config, rich_store, MORE if fields == UNIFORM else STEPS)
  parts = [x for key, x in scores.items() if key.endswith(('accuracy', 'auc'))]
  assert parts and min(parts) > 0.95, scores
  if fields == UNIFORM:
    assert scores['main/rtd_replaced'] > 0.1 and scores['main/rtd_auc'] > 0.99
