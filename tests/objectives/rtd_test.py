"""Replaced-token detection: corruption, labels, denominators, metrics, who trains whom."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
from flax.core import meta
from mutation import mutation
from tiers import in_tiers

from bertjax.kernels.dropout import noise_from_key
from bertjax.models import electra
from bertjax.objectives import rtd
from bertjax.types import Context

mutation(
  "return jnp.take_along_axis(bits_BT, batch['target_pos_BP'], axis=1)",
  "return bits_BT[:, : batch['target_pos_BP'].shape[1]]",
)
mutation(
  "jnp.where(batch['weight_BP'] > 0, batch['target_pos_BP'], token_BT.shape[1])",
  "batch['target_pos_BP']",
)
mutation('below = np.cumsum(original) - original / 2', 'below = np.cumsum(original) - original')
mutation("0.0 if train == 'discriminator' else", "0.0 if train == 'none' else")
mutation('jnp.roll(left_BTD, 1, 1)', 'jnp.roll(left_BTD, 0, 1)')
mutation(', jax.nn.initializers.glorot_uniform()', ', jax.nn.initializers.normal(0.02)')


def shapes_of(c):
  batch = cases.batch([[8]], 8)
  return meta.unbox(jax.eval_shape(rtd.make(c).init, jax.random.key(0), batch))


def variables_of(c, std: float = 0.1):
  return jax.tree.map(jnp.asarray, cases.random_params(shapes_of(c), std))


def test_only_projections_and_the_last_dense_are_glorot():
  c = cases.config('electra', width=128, embedding_width=32)

  @jax.jit
  def kernels(key):
    params = meta.unbox(rtd.make(c).init(key, cases.batch([[8]], 8)))['params']
    layers = params['discriminator']['projection'], params['rtd']['out'], params['rtd']['dense']
    return [layer['kernel'] for layer in layers]

  projection, out, dense = kernels(jax.random.key(0))
  bound = np.sqrt(6 / (32 + 128))
  assert 0.95 * bound < np.abs(projection).max() <= bound
  assert 0.9 * np.sqrt(6 / 129) < np.abs(out).max() <= np.sqrt(6 / 129)
  assert abs(dense.std() - 0.0176) < 0.0005 and np.abs(dense).max() <= 0.04


def slots(token, pos, target, weight):
  batch = dict(token_BT=token, target_pos_BP=pos, target_BP=target, weight_BP=weight)
  return {k: jnp.array([v]) for k, v in batch.items()}


def test_replacements_go_to_used_slots_and_coinciding_ones_agree():
  batch = slots([2, 4, 7, 4, 3], [1, 1, 3, 0], [9, 9, 8, 0], [1.0, 1.0, 1.0, 0.0])
  fake_BT = rtd.replace(batch['token_BT'], jnp.array([[20, 20, 30, 99]]), batch)
  assert fake_BT.tolist() == [[2, 20, 7, 30, 3]]
  assert rtd.replace(batch['token_BT'], batch['target_BP'], batch).tolist() == [[2, 9, 7, 8, 3]]
  noise = noise_from_key(jax.random.key(0), jnp.arange(1))
  bits_BP = rtd.bits(batch, noise)[0]
  assert bits_BP[0] == bits_BP[1] != bits_BP[2]


def detection(logit, replaced):
  shape = (1, len(logit))
  terms = rtd.detection_terms(
    jnp.asarray(logit, jnp.float32).reshape(shape), jnp.asarray(replaced).reshape(shape),
    jnp.ones(shape, bool), 50.0, 1e-6,
  )  # fmt: skip
  return rtd.finish({k: (np.asarray(t.total), float(t.weight)) for k, t in terms.items()})


def test_metrics_of_detection_equal_those_of_the_scores():
  rng = np.random.default_rng(0)
  replaced = rng.random(20_000) < 0.07
  for spread, tolerance in ((1.5, 1e-4), (0.05, 5e-3)):  # wide and narrow next to a bin
    logit = rng.normal(spread * (replaced - 0.6), spread)
    found = detection(logit, replaced)
    order = np.argsort(np.argsort(logit))
    wins = order[replaced].sum() - replaced.sum() * (replaced.sum() - 1) / 2
    assert abs(found['rtd_auc'] - wins / replaced.sum() / (~replaced).sum()) < tolerance
    called = logit >= 0
    np.testing.assert_allclose(found['rtd_precision'], replaced[called].mean())
    np.testing.assert_allclose(found['rtd_recall'], called[replaced].mean())
    np.testing.assert_allclose(found['rtd_replaced'], replaced.mean())


CTX = Context(jax.random.key(3), jnp.int32(0), train=True)


def outcome(c, params, batch, **objective):
  """(sums of the terms, gradients) of a step with dropout."""
  c.objective.update(objective)
  (_, out), grads = parity.gradients_of(rtd.make(c), batch, ctx=CTX)(params)
  return {name: (term.total, term.weight) for name, term in out.terms.items()}, grads


@pytest.mark.parametrize('tied', in_tiers([True, False], [False]))
def test_the_discriminator_reaches_the_generator_through_shared_embeddings_only(tied):
  c = cases.config('electra', tied_embeddings=tied)
  params, batch = variables_of(c)['params'], cases.batch([[20], [32], [9]], 32)
  _, grads = outcome(c, params, batch, generator_weight=0.0)
  parts = {'generator_net', 'mlm', *(() if tied else ('generator_embeddings',))}
  for name, part in grads.items():
    moved = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(part))
    assert (moved == 0) == (name in parts), name


def test_phases_of_one_net_train_that_net_alone():
  c = cases.config('electra', tied_embeddings=False)
  params, batch = variables_of(c)['params'], cases.batch([[20], [32]], 32)
  sums, grads = outcome(c, params, batch, train='generator')
  assert 'rtd' not in sums and set(rtd.finish(jax.device_get(sums))) >= {'mlm', 'mlm_accuracy'}
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads['discriminator']))
  assert any(np.any(leaf) for leaf in jax.tree.leaves(grads['generator_net']))
  sums, grads = outcome(c, params, batch, train='discriminator')
  assert float(sums['mlm'][1]) == batch['weight_BP'].sum()  # still measured
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads['generator_net']))
  assert any(np.any(leaf) for leaf in jax.tree.leaves(grads['discriminator']))


@pytest.mark.parametrize(
  'fields, objective',
  [
    pytest.param(dict(generator='shared'), {}, id='shared'),
    pytest.param(dict(generator='uniform'), {}, id='uniform', marks=pytest.mark.full),
    pytest.param(
      dict(generator='two_tower'), dict(electric=True), id='electric', marks=pytest.mark.full
    ),
  ],
)
def test_every_arm_trains_all_it_has(fields, objective):
  c = cases.config('electra', **fields)
  params, batch = variables_of(c, 0.05)['params'], cases.batch([[20], [32], [9], [14]], 32)
  sums, grads = outcome(c, params, batch, **objective)
  for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
    assert np.abs(leaf).max() > 0, jax.tree_util.keystr(path)
  found = rtd.finish(jax.device_get(sums))
  used = batch['weight_BP'].sum() / (batch['example_BT'] > 0).sum()
  assert 0 < found['rtd_replaced'] <= used * 1.00001 and 0 < found['rtd_auc'] < 1


def test_a_tower_does_not_see_the_token_it_predicts():
  c = cases.config('electra', generator='two_tower', dropout=0.0, attention_dropout=0.0)
  model, variables = electra.make(c.model), variables_of(c)
  batch = cases.batch([[12]], 16)

  def hidden(token_BT):
    out = model.apply(variables, dict(batch, token_BT=token_BT), None, method=model.generate)
    return out.hidden_BPE[0]

  run = jax.jit(hidden)
  before = run(batch['token_BT'])
  changed = np.array(batch['token_BT'])
  changed[0, 5] = (changed[0, 5] + 1) % cases.VOCAB
  differs = np.abs(np.asarray(run(changed)) - before).max(-1)[:12] > 1e-6
  np.testing.assert_array_equal(differs, np.arange(12) != 5)


def test_text_is_neither_the_first_token_nor_the_last_of_a_segment():
  batch = dict(
    example_BT=jnp.array([[1, 1, 1, 1, 1, 2, 2, 2, 0]]),
    type_BT=jnp.array([[0, 0, 0, 1, 1, 0, 0, 0, 0]]),
    position_BT=jnp.array([[0, 1, 2, 3, 4, 0, 1, 2, 0]]),
  )
  assert rtd.text_weight(batch)[0].tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 0]
