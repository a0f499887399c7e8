"""Adaptive inputs and softmax against the formula in float64."""

import contextlib

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from slow_imports import torch

from bertjax.kernels import adaptive_softmax
from bertjax.kernels.cross_entropy import Scores, cross_entropy
from bertjax.models.layers.adaptive import AdaptiveWords
from bertjax.objectives import lm

VOCAB, WIDTH, CUTOFFS = 150, 16, (20, 50)


def words(div_val: int):
  """The module and random parameters of it."""
  module = AdaptiveWords(
    VOCAB, WIDTH, CUTOFFS, div_val, jax.nn.initializers.normal(0.02), 0.01
  )  # fmt: skip
  both = lambda m, token, h: (m.embed(token), m.scores(h))
  args = (jnp.zeros((2, 3), jnp.int32), jnp.zeros((2, 3, WIDTH)))
  init = lambda key: module.init(key, *args, method=both)
  return module, cases.variables(init, std=0.5)


@pytest.mark.parametrize('div_val', [1, 4])
@mutation('self.head.vocab_size - 1 - cluster', 'self.bounds[0] + cluster')
@mutation('tables[i], self.biases[i], self._size', 'tables[i], 0 * self.biases[i], self._size')
@mutation(
  'nll_BP, right_BP, _ = cross_entropy(scores.head, head_BP)',
  'nll_BP, right_BP, _ = cross_entropy(scores.head, head_BP)\n'
  '  nll_BP = jnp.where(head_BP == target_BP, nll_BP, jax.lax.stop_gradient(nll_BP))',
)
def test_loss_and_every_gradient_equal_the_formula_in_float64(div_val):
  module, variables = words(div_val)
  rng = np.random.default_rng(0)
  h_BPD = rng.normal(size=(2, 9, WIDTH)).astype(np.float32)
  target_BP = rng.integers(0, VOCAB, (2, 9))
  target_BP[0, :6] = (0, 19, 20, 49, 50, 149)
  weight_BP = rng.normal(size=(2, 9))  # differ, so that every place counts by itself

  def ours(params, h_BPD):
    scores = module.apply(dict(params=params), h_BPD, method='scores')
    nll_BP, _ = adaptive_softmax.adaptive_cross_entropy(scores, jnp.asarray(target_BP))
    return jnp.sum(weight_BP.astype(np.float32) * nll_BP)

  double = lambda x: torch.tensor(np.asarray(x, np.float64), requires_grad=True)
  params, h = {k: double(v) for k, v in variables['params'].items()}, double(h_BPD)
  total = 0.0
  for place in np.ndindex(2, 9):
    total = total + weight_BP[place] * formula(params, h[place], int(target_BP[place]))
  total.backward()

  step = jax.jit(jax.value_and_grad(ours, (0, 1)))
  loss, (grads, h_grad) = step(variables['params'], h_BPD)
  np.testing.assert_allclose(loss, total.item(), rtol=1e-5)
  for name, found, theirs in (('h', h_grad, h), *((k, grads[k], params[k]) for k in grads)):
    if name == 'projection_0':  # of the inputs alone: the head has its own
      assert theirs.grad is None and not np.any(found)
      continue
    expected = theirs.grad.numpy()
    scale = np.abs(expected).max()
    assert scale > 0, name
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * scale, err_msg=name)


def formula(params, h_D, target: int):
  """-log p of a word, as proj_adaptive_softmax.py has it: cluster i is the head's entry -i."""
  project = lambda name: params[name] @ h_D if name in params else h_D
  words, biases = params['word_0'][:20], params['bias_0'][:20]
  table = torch.cat([words, params['cluster']])
  head = table @ project('head_projection') + torch.cat([biases, params['cluster_bias']])
  head = torch.log_softmax(head, 0)
  bounds = (0, *CUTOFFS, VOCAB)
  i = int(np.searchsorted(CUTOFFS, target, 'right'))
  if not i:
    return -head[target]
  size = bounds[i + 1] - bounds[i]
  tail = params[f'word_{i}'][:size] @ project(f'projection_{i}') + params[f'bias_{i}'][:size]
  return -head[-i] - torch.log_softmax(tail, 0)[target - bounds[i]]


@mutation('right_BP *= tail_right_BP', 'right_BP *= 1.0')
def test_right_are_the_targets_that_score_best_on_each_level():
  module, variables = words(div_val=1)
  h_BPD = np.random.default_rng(0).normal(size=(1, 40, WIDTH)).astype(np.float32)
  scores = module.apply(variables, h_BPD, method='scores')
  log_BPV = np.asarray(adaptive_softmax.log_probabilities(scores))
  head_BPV = np.asarray(adaptive_softmax.logits(scores.head))[..., :22]
  best_BP = head_BPV.argmax(-1)
  for cluster, first, last in ((0, 20, 50), (1, 50, 150)):
    inner_BP = first + log_BPV[..., first:last].argmax(-1)
    best_BP = np.where(head_BPV.argmax(-1) == scores.entry(cluster), inner_BP, best_BP)
  assert (best_BP >= 50).any() and (best_BP < 20).any()
  assert np.all(adaptive_softmax.adaptive_cross_entropy(scores, best_BP)[1] == 1)
  assert not np.any(adaptive_softmax.adaptive_cross_entropy(scores, (best_BP + 1) % VOCAB)[1])


SIZE = 100  # words of a cluster


def one_cluster(positions: int, seed: int = 0):
  """Scores, targets below SIZE, and cotangents, for [8, positions / 8] positions."""
  rng = np.random.default_rng(seed)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  scores = Scores(normal(8, positions // 8, WIDTH), normal(128, WIDTH), normal(128), SIZE)
  target_BP = jnp.asarray(rng.integers(0, SIZE, (8, positions // 8)), jnp.int32)
  return scores, target_BP, normal(*target_BP.shape)


def gradients(of, scores, target_BP, weight_BP, inside_BP):
  """Loss at every position, whether it is right, and gradients of hidden states, table, bias."""

  @jax.jit
  def run(hidden, table, bias):
    found = Scores(hidden, table, bias, SIZE)
    total = lambda *args: jnp.sum(weight_BP * of(Scores(*args, SIZE), target_BP, inside_BP)[0])
    return of(found, target_BP, inside_BP), jax.grad(total, (0, 1, 2))(hidden, table, bias)

  return run(scores.hidden_BPE, scores.table_VE, scores.bias_V)


def everywhere(scores, target_BP, inside_BP):
  """`inside_cross_entropy`, computed at every position."""
  nll_BP, right_BP, _ = cross_entropy(scores, target_BP)
  return jnp.where(inside_BP, nll_BP, 0.0), jnp.where(inside_BP, right_BP, 1.0)


@pytest.mark.parametrize('share, on_mesh', [(0.01, False), (1.0, False), (0.0, True), (0.3, True)])
@mutation('(jnp.sum(inside_n) + group - 1) // group', 'jnp.sum(inside_n) // group')
def test_a_cluster_is_scored_where_its_words_are(share, on_mesh):
  scores, target_BP, weight_BP = one_cluster(520)
  inside_BP = jnp.asarray(np.random.default_rng(1).random(target_BP.shape) < share)
  args = scores, target_BP, weight_BP, inside_BP
  expected = gradients(everywhere, *args)
  axes = (jax.sharding.AxisType.Auto,) * 3
  mesh = jax.make_mesh((2, 2, 2), ('data', 'fsdp', 'tensor'), axes)
  with jax.set_mesh(mesh) if on_mesh else contextlib.nullcontext():
    found = gradients(adaptive_softmax.inside_cross_entropy, *args)
  for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize('count, groups', [(0, 0), (32, 1), (33, 2), (520, 17)])
@mutation('(jnp.sum(inside_n) + group - 1) // group', 'jnp.int32(len(order_m) // group)')
def test_a_cluster_costs_as_many_groups_as_its_words_fill(count, groups, monkeypatch):
  scores, target_BP, weight_BP = one_cluster(520)
  assert adaptive_softmax.group_size(520, 128) == 32
  assert adaptive_softmax.group_size(64, 128) == 8
  most = adaptive_softmax.CHUNK_LOGITS // 160_000
  assert most - 8 < adaptive_softmax.group_size(2**20, 160_000) <= most
  inside_BP = (jnp.arange(520) < count).reshape(target_BP.shape)
  seen, plain = [], adaptive_softmax.flat_logits

  def counting(*args):
    jax.debug.callback(lambda: seen.append(1))
    return plain(*args)

  monkeypatch.setattr(adaptive_softmax, 'flat_logits', counting)
  args = scores, target_BP, weight_BP, inside_BP
  jax.block_until_ready(gradients(adaptive_softmax.inside_cross_entropy, *args))
  jax.effects_barrier()
  assert len(seen) == 3 * groups  # the losses, and forward and backward of the gradient


@pytest.mark.parametrize('div_val', [1, 4])
@mutation('(token_BT >= self.bounds[i])', '(token_BT > self.bounds[i] - (i == 0))')
def test_inputs_are_looked_up_in_their_cluster(div_val):
  module, variables = words(div_val)
  params = variables['params']
  token_BT = np.array([[0, 19, 20], [49, 50, 149]])
  found = module.apply(variables, token_BT, method='embed')
  for token, vector in zip(token_BT.ravel(), found.reshape(-1, WIDTH), strict=True):
    i = int(np.searchsorted(CUTOFFS, token, 'right'))
    expected = params[f'word_{i}'][token - (0, *CUTOFFS)[i]]
    if div_val > 1:
      expected = expected @ params[f'projection_{i}']
    np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-6)


@mutation('if i else True', 'if i > 99 else True')
def test_flops_count_the_words_of_a_cluster_where_they_are():
  objective = lm.make(cases.config('transformer_xl', cutoffs=(40, 100), div_val=2))
  target_BP = np.zeros((2, 8), np.int32)
  batch = dict(example_BT=np.ones((2, 8)), weight_BP=np.ones((2, 8)), target_BP=target_BP)
  before = objective.flops(batch)
  target_BP[0, :3], target_BP[1, :5] = 99, 100  # the last word of one cluster, the next one's first
  added = 6 * (3 * 32 * 60 + 5 * 16 * (cases.VOCAB - 100))
  assert objective.flops(batch) - before == added
