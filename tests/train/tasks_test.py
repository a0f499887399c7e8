"""Several tasks in one run: each is trained as alone, over an encoder that all share."""

import jax
import numpy as np
import pytest
import task_files
from mutation import mutation
from tiers import in_tiers

from bertjax.data_contracts import INFER
from bertjax.errors import UserError
from bertjax.examples import loader
from bertjax.examples.labelled.common import from_config
from bertjax.train import evaluation, first_state, resolve, setup
from bertjax.train.step import with_rows
from bertjax.types import Context

NAMES = ('stars', 'points', 'names')
FILES = task_files


def make(config, workdir):
  return setup.make_run(
    config, from_config.ensure_vocabulary(config.data, str(workdir)), jax.devices()[:1]
  )


@pytest.fixture(scope='module')
def run(files, tmp_path_factory):
  return make(task_files.config(files, *NAMES), tmp_path_factory.mktemp('run'))


@pytest.fixture(scope='module')
def params(run):
  return first_state.initial_state(run).variables['params']


def phase_of(run, name):
  (found,) = [phase for phase in run.parts if phase.name == name]
  return found


def loss_and_gradient(objective, params, batch):
  """Of one batch, dropout on."""

  def loss(params):
    context = Context(jax.random.key(3), jax.numpy.int32(5), train=True)
    terms = objective.loss(dict(params=params), (), with_rows(batch), context).terms.values()
    return sum(t.scale * t.total / (t.weight + t.plus) for t in terms if t.scale)

  return jax.jit(jax.value_and_grad(loss))(params)


@mutation('tag[2:] for tag in', 'tag for tag in', file='bertjax/examples/labelled/tags.py')
@mutation('config.phases[name] if name else config', 'config', file='bertjax/train/resolve.py')
def test_each_task_may_have_the_classes_of_its_examples(files):
  config = task_files.config(files, *NAMES)
  named = {name: config.phases[name].data.task.get('classes') for name in NAMES}
  for name in ('stars', 'names'):
    config.phases[name].data.task.classes = INFER
  spec = resolve.counted(resolve.resolve(config))
  found = {phase.name: phase.config.data.task.get('classes') for phase in spec.timeline.drawn}
  assert {name: sorted(x or ()) for name, x in found.items()} == {
    name: sorted(x or ()) for name, x in named.items()
  }


@pytest.mark.parametrize('name', in_tiers(NAMES, NAMES[1:]))
@mutation("(v['params'], name)", "(v['params'], next(iter(objectives)))", case='stars')
def test_a_step_of_a_task_is_that_of_a_run_on_it_alone(files, run, params, tmp_path, name):
  single = make(task_files.alone(files, name), tmp_path).phases[0]
  own = {**{k: x for k, x in params.items() if k != 'tasks'}, **params['tasks'][name]}
  known = jax.eval_shape(single.initial_variables, 0)['params']
  own = {key: own[key] for key in known}  # tags need no pooler
  assert jax.tree.map(np.shape, own) == jax.tree.map(np.shape, known)
  phase = phase_of(run, name)
  batches = [loader.Batches(each.examples, 16).at(2)[0] for each in (single, phase)]
  for key, value in batches[0].items():
    np.testing.assert_array_equal(batches[1][key], value, err_msg=key)
  want, want_gradient = loss_and_gradient(single.objective, own, batches[0])
  got, gradient = loss_and_gradient(phase.objective, params, batches[1])
  assert float(got) == pytest.approx(float(want), rel=1e-6)
  heads = gradient.pop('tasks')
  for key, tree in want_gradient.items():
    found = heads[name][key] if key in heads[name] else gradient[key]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), found, tree)
  others = [heads[other] for other in NAMES if other != name]
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(others))
  assert all(np.any(leaf) for leaf in jax.tree.leaves(heads[name]))


@pytest.mark.full
@mutation('jax.random.fold_in(key, zlib.crc32(name.encode()))', 'jax.random.fold_in(key, 7)')
@mutation('zlib.crc32(name.encode())', 'len(found)', file='bertjax/objectives/combine/__init__.py')
def test_heads_begin_apart_and_as_without_the_other_tasks(files, params, tmp_path):
  alone = task_files.config(files, 'stars')
  other = task_files.config(files, 'stars', 'points')
  other.phases.again = other.phases.stars.copy_and_resolve_references()
  runs = [make(c, tmp_path / str(n)) for n, c in enumerate((alone, other))]
  alone, other = (first_state.initial_state(r).variables['params'] for r in runs)
  kernel = lambda params, name: np.asarray(params['tasks'][name]['label']['kernel'])
  np.testing.assert_array_equal(kernel(alone, 'stars'), kernel(params, 'stars'))
  np.testing.assert_array_equal(kernel(other, 'stars'), kernel(params, 'stars'))
  assert not np.allclose(kernel(other, 'again'), kernel(other, 'stars'))
  for key in alone.keys() - {'tasks'}:
    jax.tree.map(np.testing.assert_array_equal, alone[key], params[key])


@mutation('number or part.examples.rows for', 'number or parts[0].examples.rows for')
def test_tasks_are_drawn_by_their_examples_and_have_their_own_scores(run):
  assert [phase.name for phase in run.parts] == ['names', 'points', 'stars']
  (phase,) = run.phases
  drawn = [phase.place(index) for index in range(2000)]
  for name, size in (('names', 150), ('points', 64), ('stars', 128)):
    own = [place.index for place in drawn if place.name == name]
    assert own == list(range(len(own)))
    assert len(own) / 2000 == pytest.approx(size / 342, abs=0.04)
  assert run.config.phases.names.model.token_labels == (('tag', 5),)
  assert run.config.phases.stars.model.labels == (('label', 2),)
  assert run.config.phases.points.model.labels == (('label', 1),)
  known = evaluation.score_names(run.evals(1))
  assert set(run.config.best.mean) == {
    'eval/stars/dev/accuracy', 'eval/points/dev/spearman', 'eval/names/dev/f1'
  } < known  # fmt: skip


@mutation('not all(name in scores for name in names)', 'not any(name in scores for name in names)')
def test_the_mean_is_of_all_its_scores_or_none(run):
  scores = {'eval/stars/dev/accuracy': 0.5, 'eval/points/dev/spearman': -0.25}
  assert evaluation.mean(run.config.best, scores) == {}
  scores |= {'eval/names/dev/f1': 0.5, 'eval/names/dev/loss': 9.0}
  assert evaluation.mean(run.config.best, scores) == {'eval/mean': 0.25}


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    ({'phases.points.data.train': ''}, "in phase 'points': config.data.train names no file"),
    ({'best.mean': ('eval/stars/dev/f1', 'eval/star/dev/f1')}, 'config.best.mean: expected'),
    ({'phases.stars.data.vocab': 'other.txt'}, 'config.phases.stars.data.vocab'),
    ({'phases.stars.model.width': 64}, "phase 'stars' has other parameters"),
    ({'temperature': 0.0}, 'config.temperature: expected'),
    ({'phases.stars.epochs': 2.0}, 'the whole run has one value of it'),
    ({'phases.stars.microbatches': 2}, 'a step of several phases has one value of it'),
  ],
)
@mutation(
  'if shapes(mine) != shapes(first):',
  'if False:',
  case="changes3-phase 'stars' has other parameters",
)
def test_what_cannot_work_is_said(files, tmp_path, changes, said):
  c = task_files.config(files, 'stars', 'points')
  c.update_from_flattened_dict(changes)
  with pytest.raises(UserError) as error:
    make(c, tmp_path)
  assert said in str(error.value)
