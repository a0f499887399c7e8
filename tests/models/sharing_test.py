"""Layers that share parameters, against a loop over layers that each hold a copy of their own; all
layers draw apart."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from tiers import in_tiers

from bertjax.kernels.dropout import Noise
from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.encoder import PARTS, Encoder

mutation(
  'whole = {**params, **mine}\n',
  'last = number + place == self.layers * self.inner_groups - 1\n'
  '          held = lambda p: jnp.where(last, jax.lax.stop_gradient(p), p)\n'
  '          whole = jax.tree.map(held, {**params, **mine})\n',
)
mutation('arange(self.layers) * self.groups // self.layers', 'arange(self.layers) % self.groups')
mutation('context, noise, None, number + place)', 'context, noise, None, jnp.int32(0))')
mutation(
  'inner = blocks[group * self.inner_groups :][: self.inner_groups]',
  'inner = [blocks[group * self.inner_groups]] * self.inner_groups',
)

FIELDS = dict(
  heads=2, ffn=32, activation='gelu_erf', norm_eps=1e-12, dropout=0.1, attention_dropout=0.1,
  initializer=jax.nn.initializers.normal(0.3),
)  # fmt: skip
EXAMPLE_BT = np.array([[1] * 7, [1] * 5 + [0] * 2], np.int32)
CONTEXT = Context(Mask(EXAMPLE_BT, EXAMPLE_BT))
NOISE = Noise(jnp.uint32(5), jnp.arange(2, dtype='uint32'))
X_BTD = np.random.default_rng(0).normal(size=(2, 7, 16)).astype(np.float32)
WEIGHT_BTD = np.random.default_rng(1).normal(size=(2, 7, 16)).astype(np.float32)

# Sharing -> (layers, groups, inner groups, the block that each application uses).
CASES = {
  'all': (3, 1, 1, [0, 0, 0]),
  # int(l / 5 * 2) of five layers is 0 0 0 1 1; each group has two blocks.
  'all in groups': (5, 2, 2, [0, 1, 0, 1, 0, 1, 2, 3, 2, 3]),
  'attention': (3, 1, 1, [0, 1, 2]),
  'ffn': (3, 1, 1, [0, 1, 2]),
}


def make_encoder(case: str, **fields) -> Encoder:
  layers, groups, inner, _ = CASES[case]
  remat = 'full' if case == 'all in groups' else 'none'  # one is enough to see that nothing changes
  return Encoder(layers, remat, FIELDS | fields, case.split()[0], groups, inner)


def random_params(encoder: Encoder):
  return cases.variables(encoder.init, X_BTD, CONTEXT, None, std=0.3)['params']


def copies(params, blocks):
  """The parameters of every application, each by itself."""
  own, common = params.get('layers', {}), params.get('shared', {})
  return [{**common, **jax.tree.map(lambda p, b=block: p[b], own)} for block in blocks]


@jax.jit
def forward(params, x_BTD, number):
  return Block(**FIELDS).apply({'params': params}, x_BTD, CONTEXT, NOISE, None, number)[0]


@jax.jit
def backward(params, x_BTD, number, cotangent_BTD):
  _, pull = jax.vjp(lambda p, x: forward(p, x, number), params, x_BTD)
  return pull(cotangent_BTD)


def loop(layers):
  """The outputs of layers one after the other, and the gradient of each one's parameters."""
  inputs, grads, cotangent_BTD = [X_BTD], [], WEIGHT_BTD
  for number, params in enumerate(layers):
    inputs.append(forward(params, inputs[-1], jnp.int32(number)))
  for number, params in reversed(list(enumerate(layers))):
    grad, cotangent_BTD = backward(params, inputs[number], jnp.int32(number), cotangent_BTD)
    grads.insert(0, grad)
  return np.stack(inputs[1:]), grads


@pytest.mark.parametrize('case', in_tiers(CASES, {*CASES} - {'all in groups', 'ffn'}))
def test_the_gradient_of_a_shared_leaf_is_the_sum_over_its_visits(case):
  """With dropout on, so the draws of the visits are those of layers of their own as well."""
  encoder, blocks = make_encoder(case), CASES[case][3]
  params = random_params(encoder)

  def loss(params):
    x_BTD, hidden_LBTD = encoder.apply({'params': params}, X_BTD, CONTEXT, NOISE, hidden=True)
    return (x_BTD * WEIGHT_BTD).sum(), hidden_LBTD

  (_, hidden_LBTD), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  apart_LBTD, per_visit = loop(copies(params, blocks))
  np.testing.assert_allclose(hidden_LBTD, apart_LBTD, atol=2e-5)

  for path, got in jax.tree_util.tree_leaves_with_path(grads):
    where, *rest = [key.key for key in path]
    visits = []
    for tree in per_visit:
      for key in rest:
        tree = tree[key]
      visits.append(np.asarray(tree))
    if where == 'shared':
      expected = np.sum(visits, 0)
    else:
      rows = [[v for v, b in zip(visits, blocks, strict=True) if b == n] for n in range(len(got))]
      expected = np.stack([np.sum(row, 0) for row in rows])
    scale = max(np.abs(visits).max(), 0.1)  # the key bias has a gradient of rounding errors
    np.testing.assert_allclose(got, expected, atol=1e-4 * scale, err_msg=f'{case}: {rest}')


@pytest.mark.parametrize(
  'case, rows',
  [
    ('all', dict(attention=0, ffn=0)),
    ('all in groups', dict(attention=4, ffn=4)),
    ('attention', dict(attention=0, ffn=3)),
    ('ffn', dict(attention=3, ffn=0)),
  ],
)
def test_what_is_shared_is_held_once(case, rows):
  """Rows of a stack under 'layers'; 0: one tensor under 'shared'."""
  params = random_params(make_encoder(case))
  alone = random_params(Encoder(1, 'none', FIELDS))['layers']
  expected = {'shared': {}, 'layers': {}}
  for part, names in PARTS.items():
    lead, where = ((rows[part],), 'layers') if rows[part] else ((), 'shared')
    for name in names:
      expected[where][name] = jax.tree.map(lambda p, lead=lead: (*lead, *p.shape[1:]), alone[name])
  assert jax.tree.map(np.shape, params) == {k: v for k, v in expected.items() if v}


@pytest.mark.parametrize(
  'sharing, rates', [('none', dict(dropout=0.0)), ('all', dict(attention_dropout=0.0))]
)
def test_layers_draw_apart(sharing, rates):
  """Each by its number, of parameters of its own or of all: layer 1 draws other than a layer 0."""
  encoder, alone = (Encoder(n, 'none', FIELDS | rates, sharing) for n in (2, 1))
  params = random_params(encoder)
  second = params if sharing == 'all' else jax.tree.map(lambda p: p[1:], params)

  @jax.jit
  def step(noise):
    """What layer 1 makes of layer 0's output: inside the stack, and at the bottom of another."""
    _, h_LBTD = encoder.apply({'params': params}, X_BTD, CONTEXT, noise, hidden=True)
    again_BTD, _ = alone.apply({'params': second}, h_LBTD[0], CONTEXT, noise)
    return h_LBTD[1], again_BTD

  np.testing.assert_allclose(*step(None), atol=1e-5)
  stacked, first = step(NOISE)
  assert np.abs(stacked - first).max() > 0.01
