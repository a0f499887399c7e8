"""What a step sends between eight devices: each gradient once, however many microbatches."""

import math

import jax
import numpy as np
import pytest
import systems
from mutation import mutation

from bertjax import sharding
from bertjax.tools.bench.parts import own_step, synthetic
from bertjax.tools.preflight.collectives import Collective, collectives

SCALARS = 64  # bytes: weights and metrics are sums over devices too


def lowered(mesh: dict[str, int], **fields):
  """(config, the step lowered for eight devices, its mesh)."""
  config = systems.tiny('bert', **{f'mesh.{axis}': ways for axis, ways in mesh.items()}, **fields)
  config = own_step.sized(config, 32, 64)
  batch = synthetic.synthetic_batch(config)
  placed = sharding.make_mesh(config.mesh, jax.devices()[:8])
  return config, own_step.lower(config, batch, placed)[0], placed


def exchanged(step) -> set[str]:
  """The dtypes of arrays that a lowered step adds up; XLA for CPUs adds in float32 in any case."""
  pieces = step.as_text().split('stablehlo.all_reduce')[1:]
  types = [piece.split('}) : (')[1].split(')')[0] for piece in pieces]
  return {each.rpartition('x')[2][:-1] for each in types if 'x' in each}


def sent(mesh: dict[str, int], **fields) -> tuple[int, list[Collective]]:
  """(bytes of the parameters in float32, what a step sends)."""
  config, step, placed = lowered(mesh, **fields)
  assert 'bf16' not in exchanged(step)
  parameters = own_step.footprint(config, synthetic.synthetic_batch(config))['parameters']
  sizes = {axis: int(ways) for axis, ways in placed.shape.items()}
  return 4 * parameters, collectives(step.compile().as_text(), sizes)


def of(found: list[Collective], kind: str, *axes: str) -> list[Collective]:
  return [c for c in found if c.kind == kind and c.axes == axes and c.bytes > SCALARS]


@mutation('if sharding.replicas() == 1:', 'if True:')
@pytest.mark.parametrize('microbatches', [1, pytest.param(4, marks=pytest.mark.full)])
def test_replicas_exchange_each_gradient_once(microbatches):
  """The word table too, which has two: of the look-up and of the output layer."""
  whole, found = sent(dict(data=8), microbatches=microbatches)
  reduced = of(found, 'all-reduce', 'data')
  assert {c.kind for c in found} == {'all-reduce'} and {c.dtype for c in reduced} == {'f32'}
  assert whole <= sum(c.bytes for c in reduced) < 1.001 * whole
  ring_minimum = 2 * whole * 7 / 8
  assert sum(c.sent_bytes for c in found) < 1.1 * ring_minimum


@pytest.mark.full
def test_replicas_of_several_devices_exchange_what_each_has():
  """Along fsdp parameters are gathered and gradients reduced at their use; along tensor only what
  passes through the layers is exchanged."""
  whole, found = sent(dict(data=4, fsdp=2), microbatches=2)
  assert sum(c.bytes for c in of(found, 'all-reduce', 'data')) < 1.1 * whole / 2
  assert not [c for c in found if c.axes == ('data', 'fsdp') and c.bytes > 0.01 * whole]
  whole, found = sent(dict(data=2, tensor=4), microbatches=2)
  assert sum(c.bytes for c in of(found, 'all-reduce', 'data')) < 1.1 * whole / 4
  assert not of(found, 'all-gather', 'tensor')


@pytest.mark.full
@mutation('init), (None, None))', "init), (axis, 'embed'))")
def test_what_fsdp_sends():
  """A parameter is gathered once in a microbatch, and the word table for both of its uses."""
  whole, found = sent(dict(data=1, fsdp=8))
  assert sum(c.bytes for c in of(found, 'all-gather', 'fsdp')) < 1.1 * whole
  assert sum(c.bytes for c in of(found, 'all-reduce', 'fsdp')) < 1.1 * whole
  assert sum(c.bytes for c in of(found, 'all-to-all', 'fsdp')) < 0.02 * whole


@pytest.mark.full
@mutation(' 1 if mesh.empty ', " 1 if mesh.empty or mesh.shape['fsdp'] * mesh.shape['tensor'] > 2 ")
def test_replicas_that_are_divided_twice_exchange_what_each_has():
  """Words and columns are divided, and no vector of a token goes to another replica."""
  whole, found = sent(dict(data=2, fsdp=2, tensor=2), microbatches=2)
  assert sum(c.bytes for c in of(found, 'all-reduce', 'data')) < 1.1 * whole / 4
  beyond = [c for c in found if 'data' in c.axes and len(c.axes) > 1]
  assert sum(c.bytes for c in beyond) < 0.001 * whole  # scalars and the like
  # The word table is gathered for the look-up and for the logits: each is one of two halves of it.
  assert sum(c.bytes for c in of(found, 'all-gather', 'fsdp')) < 1.5 * whole


@mutation('lambda grad: grad.astype(dtype), grads', "lambda grad: grad.astype('float32'), grads")
def test_gradients_are_exchanged_in_the_dtype_that_is_asked_for():
  assert exchanged(lowered(dict(data=8), reduce_dtype='bfloat16')[1]) == {'bf16'}


@pytest.mark.full
def test_gradients_of_replicas_are_those_of_one_device():
  """To the last bits of float32, and of bfloat16 where that is asked for."""
  norms = {}
  for name, mesh, fields in [
    ('one', dict(data=1), {}),
    ('many', dict(data=8), {}),
    ('low', dict(data=8), dict(reduce_dtype='bfloat16')),
  ]:
    config = own_step.sized(systems.tiny('bert', **fields), 32, 64)
    batch = synthetic.synthetic_batch(config)
    placed = sharding.make_mesh(mesh, jax.devices()[: math.prod(mesh.values())])
    step, init, layout = own_step.lower(config, batch, placed)
    with jax.set_mesh(placed):
      state = jax.jit(init, out_shardings=layout)(jax.random.key(0))
    _, metrics = step.compile()(
      state, sharding.put_batch(batch, placed), np.uint32(0), np.float32(0)
    )
    norms[name] = float(metrics['grad_norm'])
  np.testing.assert_allclose(norms['many'], norms['one'], rtol=2e-6)
  np.testing.assert_allclose(norms['low'], norms['one'], rtol=2e-3)
  assert norms['low'] != norms['many']
