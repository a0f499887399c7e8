"""Cross-entropy over a vocabulary: meaning, and the chunked way against the plain one."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import logsumexp
from jax.sharding import NamedSharding, PartitionSpec
from mutation import mutation

from bertjax import sharding
from bertjax.kernels import cross_entropy as ce

WORDS, ROWS, WIDTH = 1000, 1024, 24


def case(dtype=jnp.float32, std: float = 0.5):
  """Scores of 2 x 9 positions, targets among them the first and the last id."""
  keys = jax.random.split(jax.random.key(0), 4)
  hidden = jax.random.normal(keys[0], (2, 9, WIDTH)).astype(dtype)
  table = std * jax.random.normal(keys[1], (ROWS, WIDTH))
  bias = jax.random.normal(keys[2], (ROWS,))
  target = jax.random.randint(keys[3], (2, 9), 0, WORDS).at[0, 0].set(0).at[1, 8].set(WORDS - 1)
  return hidden, table, bias, target


def value_and_gradients(function, hidden, table, bias, target):
  """The weighted loss with a z-loss, what it is made of, and its gradients in all three factors."""
  weight = jnp.linspace(0.0, 2.0, target.size).reshape(target.shape)

  def loss(hidden, table, bias):
    nll, right, log_z = function(ce.Scores(hidden, table, bias, WORDS), target)
    return jnp.sum(weight * nll) + jnp.sum((weight - 0.5) * log_z**2), (right, log_z)

  return jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(hidden, table, bias)


def plain(scores, target):
  """All three by autodiff of whole logits, of what the compute dtype leaves of both factors."""
  hidden, table = scores.hidden_BPE, scores.table_VE[:WORDS]
  factors = hidden.astype(jnp.float32), table.astype(hidden.dtype).astype(jnp.float32)
  logits = jnp.einsum('BPE,VE->BPV', *factors) + scores.bias_V[None, None, :WORDS]
  chosen, log_z = jnp.take_along_axis(logits, target[..., None], -1)[..., 0], logsumexp(logits, -1)
  return log_z - chosen, (chosen == logits.max(-1)).astype(jnp.float32), log_z


def chunked(chunks):
  return lambda scores, target: ce.chunked_cross_entropy(scores, target, chunks)


# None: the whole logits. Of eight tiles a block the last of three chunks overlaps.
@pytest.mark.parametrize('chunks, std', [(None, 4.0), (3, 0.1), (8, 4.0)])
@mutation('bias_K, id_K, id_K >= vocab_size,', 'bias_K, id_K, id_K < 0,')
@mutation('padding_K | part.again_K', 'padding_K', file='bertjax/kernels/cross_entropy.py')
@mutation('jnp.where(part.again_K[:, None], 0.0, part.table_KE)', 'part.table_KE')
@mutation('+= share_nK * cotangent_z_n[:, None]', '+= 0 * share_nK * cotangent_z_n[:, None]')
@mutation('(target_n[:, None] == part.id_K[None])) ', '(target_n[:, None] < 0)) ')
def test_values_and_gradients_are_those_of_a_plain_softmax(chunks, std):
  hidden, table, bias, target = case(std=std)
  best = jnp.argmax(ce.logits(ce.Scores(hidden, table, bias, WORDS)), -1)
  target = target.at[0, 3:6].set(best[0, 3:6])  # some hits
  expected = value_and_gradients(plain, hidden, table, bias, target)
  function = chunked(chunks) if chunks else ce.cross_entropy
  found = value_and_gradients(function, hidden, table, bias, target)
  (value, (right, log_z)), (want, (want_right, want_log_z)) = found[0], expected[0]
  assert float(want_right.sum()) >= 3
  np.testing.assert_array_equal(right, want_right)
  np.testing.assert_allclose(log_z, want_log_z, rtol=1e-6)
  np.testing.assert_allclose(value, want, rtol=1e-6)
  for ours, theirs in zip(found[1], expected[1], strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize('function', [ce.cross_entropy, chunked(8)])
@mutation('  low_nV = d_nV.astype(dtype)', '  low_nV = d_nV')
@mutation('low_nK = d_nK.astype(dtype)', 'low_nK = d_nK')
@mutation(
  'jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)',
  'jax.lax.dot_general(a, b, axes, preferred_element_type=a.dtype)',
  file='bertjax/kernels/cross_entropy.py',
)
def test_bfloat16_logits_are_summed_in_float32(function):
  hidden, table, bias, target = case(jnp.bfloat16)
  expected = value_and_gradients(plain, hidden, table, bias, target)
  found = value_and_gradients(function, hidden, table, bias, target)
  assert found[1][0].dtype == jnp.bfloat16
  made = jax.make_jaxpr(lambda h, t, b: value_and_gradients(function, h, t, b, target))
  products = re.findall(
    r'dot_general\[.*?\] (\w+) (\w+)', text := str(made(hidden, table, bias)), re.S
  )
  assert len(products) >= 3
  for name in {name for product in products for name in product}:
    assert f'{name}:bf16[' in text, f'{name} is a factor of a product, and not of bfloat16'
  np.testing.assert_allclose(found[0][0], expected[0][0], rtol=1e-5)
  for ours, theirs in zip(found[1], expected[1], strict=True):
    atol = 0.02 * np.abs(np.asarray(theirs, np.float32)).max()
    np.testing.assert_allclose(np.float32(ours), np.float32(theirs), atol=atol)


def test_large_outputs_are_chunked_and_need_a_quarter_of_the_memory(monkeypatch):
  hidden, table, bias, _ = case()
  hidden, target = jnp.tile(hidden[:, :1], (1, 512, 1)), jnp.zeros((2, 512), jnp.int32)
  weight = jnp.ones(target.shape)

  def temporary() -> int:
    loss = lambda h, t, b: jnp.sum(weight * ce.cross_entropy(ce.Scores(h, t, b, WORDS), target)[0])
    compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(hidden, table, bias).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  full = temporary()
  monkeypatch.setattr(ce, 'PLAIN_LOGITS', target.size * ROWS - 1)
  monkeypatch.setattr(ce, 'CHUNK_LOGITS', target.size * ROWS // 16)
  assert temporary() < full / 4


def test_a_table_sharded_over_the_vocabulary_stays_so():
  """Every device works on its own rows: the compiled program gathers no table."""
  hidden, table, bias, target = case()
  mesh = sharding.make_mesh({'data': 1, 'fsdp': 1, 'tensor': 8})
  place = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*axes)))
  table, bias = place(table, 'tensor'), place(bias, 'tensor')
  loss = lambda h, t, b: jnp.sum(ce.chunked_cross_entropy(ce.Scores(h, t, b, WORDS), target, 8)[0])
  grad = jax.jit(jax.grad(loss, (0, 1, 2)), out_shardings=(None, table.sharding, bias.sharding))
  text = grad.lower(hidden, table, bias).compile().as_text()
  assert 'all-gather' not in text and 'all-to-all' not in text


@mutation('positions * rows // mesh.ways(DIVIDE)', 'positions * rows')
def test_what_one_device_would_hold_decides(monkeypatch):
  """Eight devices share the logits that one device would have to walk over."""
  hidden, table, bias, target = case()
  chunked = []
  monkeypatch.setattr(ce, 'PLAIN_LOGITS', target.size * ROWS // 8)
  monkeypatch.setattr(ce, 'chunked_cross_entropy', lambda scores, t, n: chunked.append(n) or t)
  for sizes in ({'data': 2, 'fsdp': 2, 'tensor': 2}, {'data': 1, 'fsdp': 1, 'tensor': 1}):
    devices = jax.devices()[: sizes['data'] ** 3]
    with jax.set_mesh(sharding.make_mesh(sizes, devices)):
      jax.eval_shape(lambda h: ce.cross_entropy(ce.Scores(h, table, bias, WORDS), target), hidden)
    assert len(chunked) == (sizes['data'] == 1)
