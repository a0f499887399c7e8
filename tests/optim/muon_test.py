"""What Muon takes for a matrix: kernels with heads, layers of a stack, and what it refuses."""

import jax
import numpy as np
import pytest
import systems
from mutation import mutation
from optimizer_cases import LAYERS, MATRICES, config, nest, stack, tensors

from bertjax import sharding
from bertjax.checkpoint import checkpoints
from bertjax.config import defaults
from bertjax.optim import optimizer
from bertjax.train import first_state, setup

D, N, H, F = 12, 2, 4, 20
SHAPES = dict(query=(D, N, H), out=(N, H, D), up=(D, F))
AXES = dict(query=('embed', 'heads', 'head'), out=('heads', 'head', 'embed'), up=('embed', 'ffn'))
FLAT = dict(query=(D, N * H), out=(N * H, D), up=(D, F))
LAYER_PATH = 'encoder/layers/{}/kernel'.format


def draws(seed):
  """name -> [layers, ...], the layers of very different sizes."""
  rng = np.random.default_rng(seed)
  sizes = 10.0 ** np.arange(LAYERS)
  draw = lambda shape: rng.normal(size=(LAYERS, *shape)) * sizes.reshape(-1, *(1,) * len(shape))
  return {name: draw(shape) for name, shape in SHAPES.items()}


def one_step(given, axes, *each):
  """The parameters after one step of the optimizer, of each (parameters, gradients) of a shape."""
  tx, schedule = optimizer.make(given, each[0][0], axes)
  update = jax.jit(tx.update)
  for params, grads in each:
    updates, _ = update(grads, tx.init(params), params, rate=schedule(0))
    yield jax.tree.map(np.add, params, jax.device_get(updates))


def whole(rules=MATRICES, **changes):
  return config('muon', matrices=rules, decay=(('.*', 1.0),), **changes)


@mutation('inputs = 2 if axes[:2] == HEADS else 1', 'inputs = len(axes) - 1')
@mutation('for axes in numbers', '* shape[0] ** (axes[0] == 1) for axes in numbers')
@pytest.mark.parametrize('update_rms', [0.0, 0.2])
@jax.enable_x64(True)  # float32 does not say the fifth figure of a product's small entries
def test_a_stack_of_kernels_with_heads_is_a_matrix_per_layer(update_rms):
  """Against every layer alone, as the matrix that its product sees."""
  params, grads = draws(0), draws(1)
  place = lambda tree: dict(encoder=dict(layers={k: dict(kernel=v) for k, v in tree.items()}))
  axes = place({name: ('layers', *names) for name, names in AXES.items()})
  given = whole(update_rms=update_rms)
  (found,) = one_step(given, axes, (place(params), place(grads)))
  axes = nest({LAYER_PATH(0): ('embed', 'ffn')})
  for name, shape in FLAT.items():
    alone = lambda x: nest({LAYER_PATH(0): x.reshape(shape)})  # noqa: B023
    layers = zip(params[name], grads[name], strict=True)
    expected = one_step(given, axes, *((alone(p), alone(g)) for p, g in layers))
    stacked = found['encoder']['layers'][name]['kernel']
    for ours, theirs in zip(stacked, expected, strict=True):
      theirs = theirs['encoder']['layers']['0']['kernel']
      np.testing.assert_allclose(ours.reshape(shape), theirs, rtol=1e-9, err_msg=name)


@mutation('math.sqrt(max(inputs, outputs))', 'math.sqrt(min(inputs, outputs))')
@pytest.mark.parametrize('shape', [(40, 160), (160, 40)])
@pytest.mark.parametrize('update_rms', [0.0, 0.2])
def test_singular_values_and_entries_have_the_size_asked_for(shape, update_rms):
  """.68 and 1.21 bound what five steps make of anything between .003 and 1."""
  path, axes = LAYER_PATH(0), nest({LAYER_PATH(0): ('embed', 'ffn')})
  grad = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  given = whole(update_rms=update_rms, schedule=dict(name='constant', peak=1.0))
  (moved,) = one_step(given, axes, (nest({path: np.zeros_like(grad)}), nest({path: grad})))
  step = moved['encoder']['layers']['0']['kernel']
  factor = 0.2 * max(shape) ** 0.5 if update_rms else max(1, shape[1] / shape[0]) ** 0.5
  values = np.linalg.svd(step, compute_uv=False) / factor
  assert values.min() > 0.68 and values.max() < 1.21
  if update_rms:
    assert 0.68 * 0.2 < np.sqrt(np.mean(step**2)) < 1.21 * 0.2
  assert np.sum(step * grad) < 0


@pytest.mark.parametrize(
  'rules, message',
  [
    ((('.*', 1.0),), "matrices takes embeddings/norm/scale with the logical axes .'embed',.: exp"),
    ((('.*/layers/[01]/.*kernel', 1.0), ('.*', 0.0)), 'takes some layers of .*dense/kernel and n'),
    ((('.*kernel', 1.0),), 'matrices covers every parameter but'),
  ],
)
def test_what_is_no_matrix_is_refused(rules, message):
  flat = stack(tensors(0))
  names = {k: ('layers',) * ('layers' in k) + ('embed', 'ffn')[: v.ndim - ('layers' in k)]
           for k, v in flat.items()}  # fmt: skip
  with pytest.raises(ValueError, match=message):
    optimizer.make(config('muon', matrices=rules), nest(flat), nest(names))


def test_the_state_is_a_momentum_for_a_matrix_and_two_moments_for_all_else():
  flat = {LAYER_PATH(0): np.ones((4, 6), np.float32), 'head/kernel': np.ones((4, 6), np.float32)}
  axes = nest(dict.fromkeys(flat, ('embed', 'ffn')))
  state = optimizer.make(whole(), nest(flat), axes)[0].init(nest(flat))
  sizes = sorted(x.size for x in jax.tree.leaves(state))
  assert sizes == [1, 1, 3, 24, 24, 24]  # two counters, Newton-Schulz's coefficients


def run_of(name, store):
  """A run of a system whose optimizer is Muon."""
  c = systems.tiny(name, total_steps=2)
  schedule, c.phases = c.optimizer.schedule, {}
  c.optimizer = defaults.muon()
  c.optimizer.schedule = schedule
  return setup.make_run(c, store, jax.devices()[:1])


@mutation("r'(.*/)?(layers|shared)/.*kernel', 1.0", "r'(.*/)?(layers|shared|mlm)/.*kernel', 1.0")
@pytest.mark.parametrize(
  'name, kernels, prefix',
  [('bert', 6, 'encoder/layers'), ('albert', 6, 'encoder/shared'), ('xlnet', 7, 'layers')],
)
def test_the_recipe_takes_the_kernels_of_the_layers_and_no_others(
  name, kernels, prefix, rich_store
):
  state = run_of(name, rich_store).abstract.opt_state
  momentum = state[2][0].inner_states['muon'].inner_state[0].mu
  leaves = jax.tree_util.tree_leaves_with_path(momentum)
  paths = [sharding.leaf_path(path) for path, _ in leaves]
  assert len(paths) == kernels
  assert all(path.startswith(prefix) and path.endswith('kernel') for path in paths)


@pytest.mark.full
def test_a_step_and_the_state_of_a_checkpoint(rich_store, tmp_path):
  run = run_of('bert', rich_store)
  first, phase = first_state.initial_state(run), run.phases[0]
  phase.compile(run.abstract)
  state, _ = phase.train(first, phase.next_batch(0)[0])
  kept = checkpoints.Checkpoints(tmp_path, 1, run.config.best)
  kept.save(1, state, {}, wait=True)
  _, restored, _ = kept.restore(run.abstract)
  kept.close()
  jax.tree.map(np.testing.assert_array_equal, restored, state)
