"""Masked diffusion's noise: coins of each row's own t, weights, and how t is spread."""

import dataclasses

import jax
import numpy as np
import pytest
import systems
from masking import corrupted, rows_of
from mutation import mutation
from toy_store import MASK, SPECIAL, random_store, recipe

from bertjax import sharding
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader, recipes
from bertjax.examples.noise import diffusion
from bertjax.examples.seqio_tasks import row_stream
from bertjax.kernels.cross_entropy import Scores
from bertjax.objectives import mlm
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch

RECIPE = recipe(recipes.ROBERTA_PLAN, recipes.DIFFUSION_MASK)
ROWS = 4000


def times(rows, seed=0):
  return diffusion.times(np.arange(rows), seed, 1e-3)


@mutation('coin_n < t_B[row_n]', 'coin_n > t_B[row_n]')
@mutation('limit) / t_B', 'limit) * t_B')
@mutation('row_E, rows.length_E', 'row_E, None', file='bertjax/examples/noise/diffusion.py')
def test_a_row_hides_each_token_by_its_t_and_weighs_it_by_one_over_t():
  lengths = [64, 20] * (ROWS // 2)
  row_E = np.arange(ROWS) // 2
  batch = corrupted(RECIPE, random_store(3), lengths, row_E, 84)
  used_BP, t_B = batch['weight_BP'] > 0, times(ROWS // 2)
  share_B = used_BP.sum(1) / 84
  assert abs((share_B - t_B) / np.sqrt(t_B * (1 - t_B) / 84 + 1e-9)).mean() < 1.0
  np.testing.assert_allclose(
    batch['weight_BP'].max(1)[used_BP.any(1)], 1 / t_B[used_BP.any(1)], 1e-6
  )
  shown_BP = np.take_along_axis(batch['token_BT'], batch['target_pos_BP'], 1)
  assert (shown_BP[used_BP] == MASK).all() and batch['dropped_B'].sum() == 0
  hit_T = np.bincount(batch['target_pos_BP'][used_BP], minlength=84) / (ROWS // 2)
  assert abs(hit_T - 0.5).max() < 0.06  # [CLS] and [SEP] too
  assert (batch['divisor_B'] == 84).all()
  # Each token has the weight 1 in the mean; special ones are left out where words are scored.
  assert abs(batch['weight_BP'].sum() / batch['divisor_B'].sum() - 1) < 0.02
  special_BP = np.isin(batch['target_BP'], [SPECIAL['cls'], SPECIAL['sep']])
  np.testing.assert_array_equal(batch['masked_BP'] > 0, used_BP & ~special_BP)


@mutation('number_B.astype(np.uint64) * counter_rng.GOLDEN', 'counter_rng.fold(offset, number_B)')
def test_the_loss_of_a_batch_varies_no_more_than_in_the_strata_of_mdlm():
  """512 rows of 1,024 tokens that each cost 3 + 5 t: the standard deviation is .065 where each row
  draws its own t, .0115 in strata and .0124 with one offset for all rows."""
  batches, rows, tokens, rng = 1000, 512, 1024, np.random.default_rng(0)
  strata_BR = (rng.random((batches, rows)) + np.arange(rows)) / rows
  ours_BR = times(batches * rows).reshape(batches, rows)

  def deviation(t_BR):
    hidden_BR = rng.binomial(tokens, t_BR)
    return ((3 + 5 * t_BR) * hidden_BR / t_BR / tokens).mean(1).std()

  assert deviation(ours_BR) < 1.15 * deviation(1e-3 + (1 - 1e-3) * strata_BR) < 0.014
  assert deviation(rng.uniform(1e-3, 1, (batches, rows))) > 0.055
  assert ours_BR.min() >= 1e-3 and ours_BR.max() <= 1
  assert abs(times(8, seed=1) - times(8)).min() > 0


@mutation('row_n if place_n is None else place_n, *self', 'row_n, *self')
@mutation('shuffle=False, place_n=place_n', 'shuffle=False')
def test_an_evaluation_spreads_t_over_the_rows_that_it_takes(monkeypatch):
  """Rows so far apart in the text that their golden sections all but stand still."""
  rows, stride, found, drawn = 64, 89, [], diffusion.times
  examples = examples_lib.examples_in_memory(random_store(1700), RECIPE, 16, 7)
  column = {name: x_E[: rows * stride] for name, x_E in examples.column.items()}
  examples = dataclasses.replace(examples, column=column)
  assert examples.rows == rows * stride
  monkeypatch.setattr(diffusion, 'times', lambda *at: found.append(drawn(*at)) or found[-1])
  assert len(list(loader.eval_batches(examples, 24, rows))) == 3
  assert np.diff([0, *np.sort(np.concatenate(found)), 1]).max() < 3 / rows


@mutation(
  'taken_n = row_n if place_n is None else place_n',
  'taken_n = row_n',
  file='bertjax/examples/seqio_tasks/row_stream.py',
)
def test_an_evaluation_of_a_stream_takes_rows_over_which_t_is_spread():
  rows = 64
  t_B = times(89 * rows)
  row = dict(example_BT=np.ones((len(t_B), 1), np.int32), divisor_B=t_B)
  fixed = row_stream.Fixed(random_store(3), row | dict(dropped_B=np.zeros(len(t_B), np.int32)))
  found = [batch['divisor_B'] for batch in loader.eval_batches(fixed, 24, rows)]
  assert np.diff([0, *np.sort(np.concatenate(found)[:rows]), 1]).max() < 3 / rows


@mutation('hidden_B / np.clip(hidden_B, 1, limit)', '1.0')
@mutation('np.where(hidden_n, mask, rows.token_n)', "batch['token_BT']")
def test_fewer_slots_weigh_as_all_that_is_hidden():
  few = recipe(recipes.ROBERTA_PLAN, recipes.DIFFUSION_MASK | dict(predicted=10))
  all_, some = (corrupted(c, random_store(3), [64] * ROWS, capacity=64) for c in (RECIPE, few))
  np.testing.assert_array_equal(all_['token_BT'], some['token_BT'])
  used_BP = some['weight_BP'] > 0
  assert used_BP.shape[1] == 10 and some['dropped_B'].sum() == 0
  np.testing.assert_allclose(some['weight_BP'].sum(1), all_['weight_BP'].sum(1), rtol=1e-5)
  full_B = used_BP.all(1)
  hit_T = np.bincount(some['target_pos_BP'][full_B].ravel(), minlength=64) / full_B.sum()
  assert abs(hit_T - 10 / 64).max() < 0.04  # any of them


@mutation('least + (1 - least) * (1 - u_B)', '(1 - u_B) ** 2')
def test_the_loss_of_a_perfect_model_is_the_likelihood():
  """Two equal tokens, uniform over V words: -log p of the row is ln V. One that is hidden alone is
  known, both cost ln V each."""
  words, rng = 50, np.random.default_rng(0)
  first_n = 5 + rng.integers(0, words, ROWS)
  rows, store = rows_of(np.stack([first_n, first_n], 1))
  batch = diffusion.corrupt(rows, diffusion.Options(), store)
  nll_BP = np.where((batch['weight_BP'] > 0).all(1, keepdims=True), np.log(words), 0.0)
  loss = (batch['weight_BP'] * nll_BP).sum() / batch['divisor_B'].sum()
  assert loss == pytest.approx(np.log(words) / 2, rel=0.02)  # per token


@mutation("terms['mlm'] = terms['mlm']._replace(weight=jnp.sum(batch['divisor_B']))", 'pass')
def test_the_loss_is_divided_by_all_tokens():
  scores = Scores(
    np.zeros((1, 2, 3), np.float32), np.eye(3, dtype=np.float32), np.zeros(3, np.float32), 3
  )
  batch = dict(
    target_BP=np.array([[1, 0]]),
    weight_BP=np.float32([[4.0, 0.0]]),
    masked_BP=np.float32([[1.0, 0.0]]),
    divisor_B=np.float32([6.0]),
  )
  terms = mlm.masked_terms(scores, batch, 0.0)
  assert float(terms['mlm'].weight) == 6 and float(terms['mlm_masked'].weight) == 4
  assert float(terms['mlm'].total) == pytest.approx(4 * np.log(3))


@pytest.mark.full
@pytest.mark.parametrize('predicted, slots', [(0, 32), (5, 5)])
def test_a_step_costs_what_masked_language_modelling_with_as_many_slots_costs(predicted, slots):
  ours = recipes.DIFFUSION_MASK | dict(predicted=predicted)
  masks = ours, recipes.ROBERTA_MASK | dict(max_targets=slots)
  costs = []
  for mask in masks:
    config = systems.tiny('diffusion')
    config.data.mask = dict(mask)
    config = own_step.sized(config, 8, 32)
    mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
    lowered, *_ = own_step.lower(config, synthetic_batch(config), mesh)
    costs.append(lowered.cost_analysis())
  for key in ('flops', 'bytes accessed'):
    assert costs[0][key] == pytest.approx(costs[1][key], rel=0.001)
