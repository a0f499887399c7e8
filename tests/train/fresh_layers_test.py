"""The last layers of a warm start, made anew; heads that were for other classes."""

import jax
import numpy as np
import pytest
from mutation import mutation
from systems import tiny

from bertjax.errors import UserError
from bertjax.sources import init_from, runs
from bertjax.train import first_state, fresh_layers, setup

LAYERS = 4


class Source:
  """A run whose parameters are those of the seed, and 1 more each."""

  def __init__(self, store, workdir):
    self.workdir, self.store = workdir, store
    run = setup.make_run(self.config(), store, jax.devices()[:1])
    self.fresh = jax.device_get(first_state.initial_state(run).variables['params'])
    self.params = jax.tree.map(lambda x: x + 1, self.fresh)
    runs.write_run(workdir, run.config, self.params, run.vocabulary, {})

  def config(self, **more):
    return tiny('bert', **{'model.layers': LAYERS} | more)

  def begin(self, devices=1, **more):
    """The parameters that a run begins with, and what it says."""
    c = self.config(init_from=str(self.workdir), **more)
    run, said = setup.make_run(c, self.store, jax.devices()[:devices]), []
    state = first_state.initial_state(run, said.append)
    return jax.device_get(state.variables['params']), said


@pytest.fixture(scope='module')
def source(rich_store, tmp_path_factory):
  return Source(rich_store, tmp_path_factory.mktemp('source'))


@pytest.mark.parametrize('devices', [1, 4])
@mutation(
  'jnp.concatenate([old[:-count], new[-count:]])',
  'jnp.concatenate([new[:count], old[count:]])',
  case='1',
)
@mutation('if _has(name, POOLER):', 'if False:', case='1')
@mutation(
  'fresh_layers.kept(made, loaded, config.fresh_layers)',
  'fresh_layers.kept(made, loaded, 0)',
  case='4',
)
def test_the_last_layers_and_the_pooler_are_those_of_the_seed(source, devices):
  found, said = source.begin(devices, fresh_layers=2, **{'mesh.fsdp': devices})
  assert said[-1] == 'Made anew: the last 2 layers and the pooler (config.fresh_layers=2)'
  for path, value in _flat(found).items():
    fresh, loaded = _flat(source.fresh)[path], _flat(source.params)[path]
    if path.startswith('encoder/layers/'):
      np.testing.assert_array_equal(value[:-2], loaded[:-2], err_msg=path)
      np.testing.assert_array_equal(value[-2:], fresh[-2:], err_msg=path)
    else:
      expected = fresh if path.startswith('pooler/') else loaded
      np.testing.assert_array_equal(value, expected, err_msg=path)


@mutation('other_classes or shapes(params[key]) != shapes(mine.get(key))', 'False')
def test_a_head_for_other_classes_is_made_anew_and_the_encoder_is_taken(source):
  """RTE after MNLI: two classes behind three."""
  c = source.config(init_from=str(source.workdir))
  c.model.labels = (('next', 3),)
  load = init_from.loader(c, None)
  other = np.full((64, 3), 7.0, np.float32)
  ours = dict(source.fresh, next=dict(source.fresh['next'], kernel=other))
  new, said = load(dict(params=jax.device_put(ours)))
  assert 'has them for other classes: next' in said[-1]
  np.testing.assert_array_equal(new['params']['next']['kernel'], other)
  jax.tree.map(np.testing.assert_array_equal, new['params']['encoder'], source.params['encoder'])


@mutation("h.kind in ('text', 'token', 'answers')", "h.kind in ('text', 'token')")
def test_another_form_of_the_head_of_answers_is_made_anew_and_none_is_left_out(source):
  c = source.config(init_from=str(source.workdir), **{'model.answers': 'electra'})
  theirs = dict(source.params, answers=dict(end_hidden=dict(kernel=np.ones((128, 64)))))
  opened = init_from.open_source(str(source.workdir))._replace(params=lambda: theirs)
  ours = dict(source.fresh, answers=dict(end_hidden=dict(kernel=np.full((128, 16), 7.0))))
  new, said = init_from.loader(c, None, opened)(dict(params=jax.device_put(ours)))
  assert 'has them for other classes: answers' in said[-1]
  np.testing.assert_array_equal(new['params']['answers']['end_hidden']['kernel'], 7.0)
  c.model.answers = 'none'
  new, said = init_from.loader(c, None, opened)(dict(params=jax.device_put(source.fresh)))
  assert 'Left out' in said[-1] and 'answers' in said[-1] and 'answers' not in new['params']


SHAPES = dict(encoder=dict(layers=dict(kernel=np.zeros((3, 2)))))


@pytest.mark.parametrize(
  ('count', 'begins', 'params', 'said'),
  [
    (1, (), SHAPES, 'expected config.init_from'),
    (4, 'runs/bert', SHAPES, 'expected at most 3, the number of layers, got 4'),
    (1, 'runs/albert', dict(encoder=dict(shared=dict(kernel=np.zeros(2)))), 'share them'),
  ],
)
@mutation(
  'if count > min(stacks):',
  'if count > 9:',
  case='4-runs/bert-params1-expected at most 3, the number of layers, got 4',
)
def test_what_cannot_be_is_refused(count, begins, params, said):
  fresh_layers.check(0, begins, params)
  with pytest.raises(UserError, match=said):
    fresh_layers.check(count, begins, params)


def _flat(tree):
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {'/'.join(key.key for key in path): np.asarray(x) for path, x in leaves}
