"""What a student comes to that learns from its teacher's answers alone, where the optimum is known.

The divergence is least, 0, where the student says what the teacher says, at any temperature. A
teacher that is far from the optimum of the data tells the two apart: a student that learned the
data as well would come nearer to the optimum than its teacher.
"""

import jax
import pytest
from mutation import mutation

from bertjax.metrics import lines
from bertjax.train import loop, setup
from configs.distill import distilbert
from tests.known_language import arms
from tests.known_language import language as known_language
from tests.known_language.systems import SYSTEMS, config_of

SYSTEM = SYSTEMS['roberta']
TEACHER_STEPS, STEPS = 150, 1000


def scores(config, workdir) -> dict[str, float]:
  """The last evaluation of a run."""
  loop.run(config, str(workdir))
  return [row for row in lines.of_run(workdir) if 'eval/mlm' in row][-1]


@pytest.fixture(scope='module')
def taught(store_of, tmp_path_factory):
  """The store, the teacher's run, its loss, and the least loss and that without attention."""
  store, workdir = str(store_of(SYSTEM.text)), tmp_path_factory.mktemp('teacher')
  config = config_of(SYSTEM, store, steps=TEACHER_STEPS)
  reached = scores(config, workdir)['eval/mlm']
  run = setup.make_run(config, store, jax.devices()[:1])
  (optimum, blind), *_ = arms.least(SYSTEM, known_language.make(), run).values()
  return store, workdir, reached, optimum, blind


@pytest.mark.full
@mutation("(targets, batch, 0.0, factor['hard'])", '(targets, batch, 0.0, 1.0)')
@pytest.mark.parametrize('temperature', [1.0, 2.0])
def test_a_student_comes_to_what_its_teacher_says_and_not_to_the_data(
  taught, tmp_path, temperature, one_device
):
  store, teacher, reached, optimum, blind = taught
  config = config_of(SYSTEM, store, seed=1, steps=STEPS)
  objective = distilbert.get_config().objective
  objective.update(hard=0.0, soft=1.0, cosine=0.0, temperature=temperature, everywhere=False)
  objective.teacher.source = str(teacher)
  with config.unlocked():
    config.objective = objective
  found = scores(config, tmp_path)
  print(f'{optimum:.4f} {blind:.4f} teacher {reached:.4f} student {found}')
  assert reached - optimum > 0.2
  assert found['eval/soft'] < 0.02 * (blind - optimum)
  assert abs(found['eval/mlm'] - reached) < 0.02
