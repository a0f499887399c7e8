"""The scores with each memory are those of a run whose evaluation has it."""

import jax
import pytest
from mutation import mutation
from systems import tiny

from bertjax.train import evaluation, first_state, setup


@pytest.mark.full
@mutation('mem_len=memory, same_length=False', 'same_length=False')
def test_each_memory_scores_as_its_own_run_does(rich_store):
  more: dict = {'evals.memory.memories': (0, 16)}
  c = tiny('transformer_xl', **more)
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  variables = first_state.initial_state(run).variables
  variables = jax.tree.map(lambda x: x * (8.0 if x.ndim > 1 else 1.0), variables)
  scores, _ = evaluation.run_due(run.evals(1), variables, 1, True)
  each = [scores[f'eval/memory/memory_{memory}/lm'] for memory in (0, 16)]
  for memory, found in zip((0, 16), each, strict=True):
    c.evals.held_out.model.update(mem_len=memory, same_length=False)
    run = setup.make_run(c, rich_store, jax.devices()[:1])
    scores, _ = evaluation.run_due(run.evals(1), variables, 1, True)
    assert found == pytest.approx(scores['eval/lm'], rel=1e-6)
  assert abs(each[0] - each[1]) > 1e-3 * each[0]
