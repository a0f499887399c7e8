"""Heads of labels, and activations."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn.initializers import normal
from mutation import mutation

from bertjax.models.electra import TokenHead
from bertjax.models.layers import basic
from bertjax.models.layers.heads import label_logits


class Labels(nn.Module):
  @nn.compact
  def __call__(self, x):
    return label_logits(x, [('label', 3)], normal(0.1))['label']


@mutation("'label'), initializer, bias=bias", "'label'), initializer, bias=bias, dtype=read.dtype")
@mutation("out_initializer, name='out')", "out_initializer, dtype=dtype, name='out')")
def test_scores_have_the_digits_of_float32_where_states_have_those_of_bfloat16():
  x_BTD = jax.random.normal(jax.random.key(0), (2, 64, 16), jnp.bfloat16)
  for head in (Labels(), TokenHead('gelu_erf', normal(0.1), jnp.bfloat16)):
    variables = nn.meta.unbox(head.init(jax.random.key(1), x_BTD))
    score = head.apply(variables, x_BTD)
    assert isinstance(score, jax.Array) and score.dtype == jnp.float32
    assert np.mean(score == score.astype(jnp.bfloat16)) < 0.1


@pytest.mark.parametrize('name', ['gelu_tanh', 'gelu_erf'])
@mutation('passed + wide * slope', 'passed - wide * slope', file='bertjax/models/layers/basic.py')
def test_gelu_and_its_derivative_have_the_digits_of_bfloat16(name):
  """Against float32's own, whose tanh leaves 1e-5 at the ends."""
  x = jnp.append(jnp.linspace(-16, 16, 4001), jnp.array([-100, 0, 100]))
  x = x.astype(jnp.bfloat16)
  run = jax.vmap(jax.value_and_grad(basic.ACTIVATIONS[name]))
  for got, want in zip(run(x), run(x.astype(jnp.float32)), strict=True):
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=2**-8, atol=1e-5)
