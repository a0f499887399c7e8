"""The bench of distillation: a step, and what it is compared with."""

import json
import sys

import finetune_runs
import pytest
from mutation import mutation


@pytest.mark.full
@mutation(
  'bench distill: the student learns from its teacher in both arms',
  'bertjax/bench/distill.py',
  "alone.objective = ConfigDict(dict(name='classify'))",
  'pass',
)
@mutation(
  'bench distill: the teacher is as deep as the student',
  'bertjax/bench/distill.py',
  'teacher.layers = _TEACHER_LAYERS.value',
  'pass',
)
@pytest.mark.parametrize('recipe', ['kd', 'pkd'])
def test_a_step_is_the_students_and_the_teachers_forward_pass(recipe):
  command = [
    sys.executable, '-m', 'bertjax.bench', 'distill', f'--config=configs/distill/kd.py:{recipe}',
    '--config.model.layers=2', '--config.model.width=64', '--config.model.heads=2',
    '--config.model.ffn=256', '--config.model.vocab_size=500', '--teacher_layers=24',
    '--calls=5', *(['--config.objective.state_layers=(1,)'] if recipe == 'pkd' else []),
  ]  # fmt: skip
  found = json.loads(finetune_runs.run(command))
  assert min(found[arm]['median_s'] for arm in ('step', 'student', 'teacher')) > 0 < found['ratio']
  # The forward pass of a teacher of twelve times the layers is four times the student's step.
  assert found['flops']['step'] == pytest.approx(5 * found['flops']['student'], rel=0.01)
