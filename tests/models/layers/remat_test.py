"""What the policies of the backward pass keep: counted in a derivative, and in a model's memory."""

import cases
import chex
import jax
import jax.numpy as jnp
import pytest
from flax.core import meta
from jax.ad_checkpoint import checkpoint_name
from mutation import mutation

from bertjax.config import command_line
from bertjax.kernels import dropout, target
from bertjax.models.layers import basic, encoder, remat
from bertjax.objectives import mlm
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.train.step import accumulate, with_rows
from bertjax.types import Context


@pytest.mark.parametrize('policy, products', [('none', 4), ('light', 4), ('dots', 5), ('full', 6)])
@mutation("light=('product', 'attention')", "light=('product',)")
@mutation("dots=('product',)", "dots=('product', 'attention')")
def test_what_is_computed_again_changes_no_gradient(policy, products):
  w = jnp.full((8, 8), 0.1)

  def layer(x):
    x = checkpoint_name(x @ w, 'product')
    return jnp.tanh(checkpoint_name(jnp.exp(x) @ w, 'attention'))

  def loss(x, policy=policy):
    apply = remat.function(layer, policy, False)
    return jax.lax.scan(lambda x, _: (apply(x), None), x, length=3)[0].sum()

  x = jnp.linspace(-0.1, 0.1, 64).reshape(8, 8)
  lowered = jax.jit(jax.grad(loss)).lower(x)
  chex.assert_trees_all_close(lowered.compile()(x), jax.grad(loss)(x, 'none'), rtol=1e-5)
  text = lowered.as_text()
  assert text.count('stablehlo.dot_general') == products


@mutation(
  "return checkpoint_name(y_2d, 'product').reshape(batch + self.shape)",
  "return (checkpoint_name(y_2d - bias, 'product') + bias).reshape(batch + self.shape)",
)
def test_a_bias_is_not_added_again():
  dense = basic.Dense((6,), ('embed', 'mlp'), basic.INITS['normal'](0.1))
  x = jnp.ones((2, 3))
  params = meta.unbox(dense.init(jax.random.key(0), x))
  run = remat.function(lambda x: jnp.sin(dense.apply(params, x)), 'light', True)
  gradient = lambda x, dy: jax.vjp(run, x)[1](dy)
  assert jax.jit(gradient).lower(x, jnp.ones((2, 6))).as_text().count('stablehlo.add') == 1


@mutation(
  "return checkpoint_name(y_2d, 'product').reshape(batch + self.shape)",
  'return y_2d.reshape(batch + self.shape)',
)
def test_a_model_keeps_less_and_less(monkeypatch):
  """The memory of a gradient, by XLA's analysis, and the products that it takes."""
  monkeypatch.setattr(encoder, 'unrolled', lambda *_: False)
  c, batch = cases.config('bert'), with_rows(cases.batch([[60]] * 16, 64))
  c.model.layers, c.model.dropout, c.model.attention_dropout = 6, 0.1, 0.0
  ctx = Context(jax.random.key(0), jnp.int32(0), train=True)
  memory, products = [], []
  for policy in ('none', 'light', 'full'):
    c.model.remat = policy
    objective = mlm.make(c)
    variables = meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), batch))
    gradient = lambda v, o=objective: accumulate(o, v, (), batch, ctx, 1)[0]
    lowered = jax.jit(gradient).lower(variables)
    products.append(lowered.as_text().count('stablehlo.dot_general'))
    analysis = lowered.compile().memory_analysis()
    assert analysis is not None
    memory.append(analysis.temp_size_in_bytes)
  assert memory[0] > 1.3 * memory[1] > 1.3 * memory[2], memory
  # The scores and what they weigh: attention without a kernel is not marked.
  assert products[1] - products[0] <= 2 < products[2] - products[1], products


@pytest.mark.parametrize(
  'family, policy',
  [
    ('bert', 'light'),
    *(
      pytest.param(family, policy, marks=pytest.mark.full)
      for family in ('albert', 'modernbert', 'xlnet')
      for policy in ('none', 'light')
    ),
  ],
)
@mutation('    unroll=apart,\n', '', case='bert-light', file='bertjax/models/layers/encoder.py')
@mutation(
  '(run, self.remat, apart)(params', '(run, self.remat, False)(params', case='modernbert-light'
)
def test_layers_without_a_loop_are_the_same(family, policy, monkeypatch):
  """As on a GPU: the same loss and gradients, no array of all layers' outputs, and what is computed
  again is not merged with what was computed before."""
  c = own_step.sized(command_line.load(f'configs/{family}.py:test'), 2, 32)
  c.model.remat = policy
  batch, objective = with_rows(synthetic_batch(c)), own_step.objective_of(c)
  ctx = Context(jax.random.key(0), jnp.int32(0), train=True)
  variables = cases.variables(objective.init, batch)
  carry = objective.carry(batch)
  gradient = lambda v: accumulate(objective, v, carry, batch, ctx, 1)[:2]
  texts, results = [], []
  for apart in (False, True):
    monkeypatch.setattr(encoder, 'unrolled', lambda *_, apart=apart: apart)
    lowered = jax.jit(lambda v: gradient(v)).lower(variables)
    texts.append(lowered.as_text())
    results.append(lowered.compile()(variables))
  chex.assert_trees_all_close(*results, atol=1e-5, rtol=1e-4)
  loops = [text.count('stablehlo.while') for text in texts]
  assert loops[1] < loops[0] or family == 'modernbert'  # whose test size repeats no period
  assert ('optimization_barrier' in texts[1]) == (policy != 'none')


@mutation("trains and remat == 'none'", 'trains')
@mutation("trains and remat == 'none'", "remat == 'none'")
@mutation("trains and target.kind() == 'TPU v6 lite'", 'trains')
@mutation("trains and target.kind() == 'TPU v6 lite'", "target.kind() == 'TPU v6 lite'")
def test_where_layers_run_without_a_loop():
  noise = dropout.noise_from_key(jax.random.key(0), jnp.zeros(1, jnp.int32))
  choices = (('none', noise), ('light', noise), ('none', None))
  asked = lambda: [encoder.unrolled(*choice) for choice in choices]
  assert asked() == [True, False, False]
  for kind, expected in (
    ('NVIDIA H200', [True, True, True]),
    ('TPU v6 lite', [True, True, False]),
    ('TPU v5 lite', [False, False, False]),
  ):
    with target.compiled_for(kind):
      assert asked() == expected
