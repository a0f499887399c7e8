"""BigBird against PyTorch `transformers` with our random blocks, and its own rules."""

import cases
import jax
import numpy as np
import parity
import pytest
import torch_models
from mutation import mutation

from bertjax import models
from bertjax.export import parity as export_parity
from bertjax.export import receipt
from bertjax.formats import directory
from bertjax.models import bigbird

ODD = dict(layers=2, width=36, heads=3, ffn=52, positions=60, block=4, random_blocks=1)


def built(**fields):
  c = cases.config('bigbird', **(ODD | fields))
  return c, models.build(c.model)


@pytest.mark.parametrize('length', [44, 20])
@mutation('jnp.where((plan_BNIK >= 0)', 'jnp.where((plan_BNIK >= -1)')
@mutation('x.q_BTNH[row_B1, at], x.k_BTNH', 'x.q_BTNH[row_B1, at], 0 * x.k_BTNH')
def test_masked_words_are_those_of_transformers(length):
  """In training without dropout: hidden states, logits, loss and every gradient, by blocks and of
  rows so short that all is seen. In evaluation theirs has no random blocks."""
  c, model = built()
  quiet = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
  theirs = torch_models.like(c.model, 'BigBirdForMaskedLM', **quiet).train()
  prefers = model.prefers(length)
  assert (prefers is None) == (length == 20)
  for number, layer in enumerate(theirs.bert.encoder.layer if prefers is not None else ()):
    plan = np.asarray(bigbird.planned(prefers[number], np.array([10]), 1))[0, :, 1:-1]
    own = [random_of(plan_IK) for plan_IK in plan]
    layer.attention.self._bigbird_block_rand_mask_with_head = lambda own=own, **_: own
  state = torch_models.state_of(theirs)
  for leaf in ('weight', 'bias'):
    state[f'bert.pooler.{leaf}'] *= 0
  parity.compare(
    c, state, cases.batch([[length - 3], [length], [length - 1]], length, types=2), theirs
  )


def random_of(plan_IK):
  """The random block of each, int [I, 1]: the one that is neither an end nor a neighbour."""
  last = len(plan_IK) + 1
  own = [
    [j for j in seen if j > 0 and j < last and abs(i - j) > 1]
    for i, seen in enumerate(plan_IK.tolist(), 1)
  ]
  return np.array(own)


@mutation('self.random_blocks - 1)', 'self.random_blocks)')
@mutation(
  'most = min(n for n in (module.room, module.alike', 'most = min(n for n in (module.room',
  file='bertjax/export/parity.py',
)  # fmt: skip
def test_a_receipt_has_rows_that_see_all(tmp_path):
  """In evaluation theirs has no random blocks, and rows of more blocks than that differ."""
  c, _ = built(block=2, layers=1)
  theirs = torch_models.like(c.model, 'BigBirdForMaskedLM')
  for leaf in theirs.bert.pooler.parameters():
    leaf.data.zero_()
  theirs.save_pretrained(tmp_path)
  opened = directory.open_directory(tmp_path)
  model = directory.whole_model(opened, c.model)
  params = opened.take(model).params
  inputs = export_parity.inputs_of(model, 0)
  assert inputs.token_BT.shape == (4, 10) and models.build(model).prefers(10) is None
  found = receipt.compared(tmp_path, model, inputs, export_parity.ours(model, params, inputs))
  assert len(found['differences']) == 2 and all(each['ok'] for each in found['differences'])
  assert models.build(model).prefers(11) is not None


@mutation("counter_rng.root(self.seed, 'bigbird')", "counter_rng.root(0, 'bigbird')")
@mutation('number in (self.layers, self.heads, blocks, blocks)', 'number in (1, 1, blocks, blocks)')
def test_each_block_sees_its_own():
  """Ends, neighbours and as many others as are asked for, others for each layer, head and seed, of
  all the text alike; a longer row changes nothing."""
  plans = []
  for seed in (3, 4):
    _, model = built(layers=4, heads=6, random_blocks=2, seed=seed)
    prefers, longer = model.prefers(80), model.prefers(96)
    of = lambda prefers: [np.asarray(bigbird.planned(x, np.array([19]), 2))[0] for x in prefers]
    plan = np.stack(of(prefers))
    np.testing.assert_array_equal(plan[:, :, :19], np.stack(of(longer))[:, :, :19])
    plans.append(plan[:, :, 1:-1].reshape(24, 18, 7))
  for i, block in enumerate(np.moveaxis(plans[0], 1, 0), 1):
    for seen in block:
      found = seen[seen >= 0]
      fixed = {0, i - 1, i, i + 1, 19}
      assert fixed <= {*found} and len(found) == len({*found}) == len(fixed) + 2
  assert len({tuple(x.ravel()) for x in np.concatenate(plans)}) == 48
  random = np.bincount(np.concatenate([random_of_two(x) for x in plans[0]]))
  assert random[2:-2].min() > 24 and len(random) == 19


def random_of_two(plan_IK):
  rows = enumerate(plan_IK.tolist(), 1)
  return [j for i, seen in rows for j in seen if 0 < j < 19 and abs(i - j) > 1]


@mutation('Mask(x.example_BT[row_B1, at], x.example_BT)', 'Mask(1 + 0 * at, 1 + 0 * x.example_BT)')
def test_padding_changes_nothing():
  """43 tokens in rows of blocks that they do not fill; a text of a packed row does not see the
  other; 20 tokens see all in any row."""
  _, model = built()
  batch, *longer = (cases.batch([[23, 20], [20], [30]], n) for n in (43, 44, 60))
  variables = cases.variables(model.init, batch)
  run = jax.jit(lambda batch: model.apply(variables, batch)['last_BTD'])
  whole = np.asarray(run(batch))
  real_BT = batch['example_BT'] > 0
  for long in longer:
    np.testing.assert_allclose(whole[real_BT], np.asarray(run(long))[:, :43][real_BT], atol=1e-5)
  cut = {key: x[1:2, :20] if key.endswith('_BT') else x[1:2] for key, x in batch.items()}
  alone = np.asarray(run(cut))[0]
  assert model.prefers(20) is None
  np.testing.assert_allclose(whole[1, :20], alone, atol=1e-5)
  other = dict(batch, token_BT=np.where(batch['example_BT'] == 2, 7, batch['token_BT']))
  np.testing.assert_array_equal(np.asarray(run(other))[:1, :23], whole[:1, :23])


def test_cost_is_linear_in_the_length():
  """XLA's account of attention, forward and backward, per block between the ends."""

  def flops(blocks):
    x = jax.ShapeDtypeStruct((1, 4 * blocks, 2, 8), np.float32)
    prefers = jax.numpy.zeros((2, blocks, blocks))
    plan = bigbird.planned(prefers, np.array([blocks - 1]), 1)
    ones = jax.numpy.ones((1, 4 * blocks), np.int32)
    total = lambda q, k: bigbird._between(q, k, k, ones, plan, 4).sum()
    return jax.jit(jax.grad(total, (0, 1))).lower(x, x).cost_analysis()['flops'] / blocks

  assert flops(80) == pytest.approx(flops(20), rel=0.02)
