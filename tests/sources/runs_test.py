"""A run of several phases leaves with the model of the phase that it was in."""

from mutation import mutation

from bertjax.sources import runs
from configs import modernbert


@mutation('return phases.phases[last].config.model', 'return phases.phases[0].config.model')
def test_a_model_is_that_of_its_steps_phase():
  config = modernbert.get_config('base')
  total = config.total_steps
  thetas = [runs.model_at(config, step).theta for step in (0, 1, total // 2, total, total + 9)]
  assert thetas == [10_000.0, 10_000.0, 10_000.0, 160_000.0, 160_000.0]
