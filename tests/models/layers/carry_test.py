"""A model's own state goes through the lm objective, the step and a run as a memory does."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.objectives import lm
from bertjax.train import setup
from bertjax.train.step import accumulate, with_rows
from bertjax.types import Context

ROWS, LENGTH = 4, 6
MODEL = dict(
  name='tests.support.toy_lstm', family='none', size='test', vocab_size=cases.VOCAB, layers=2,
  width=16,
)  # fmt: skip


def config():
  c = cases.config('transformer_xl')
  c.model = MODEL
  return c


@pytest.fixture(scope='module')
def toy():
  """(objective, variables, a text of two segments)."""
  objective = lm.make(config())
  token_BT = np.random.default_rng(0).integers(0, cases.VOCAB, (ROWS, 2 * LENGTH + 1), np.int32)
  shapes = jax.eval_shape(objective.init, jax.random.key(0), batch(token_BT, 0, 1))
  return objective, cases.random_params(meta.unbox(shapes), 0.3), token_BT


def batch(token_BT, first: int, count: int = LENGTH, start_B=(0,) * ROWS):
  """So many columns, each with the next one as its target."""
  part_BT, target_BT = token_BT[:, first:][:, :count], token_BT[:, first + 1 :][:, :count]
  return dict(
    token_BT=part_BT, example_BT=np.ones_like(part_BT), target_BP=target_BT,
    weight_BP=np.ones(part_BT.shape, np.float32), start_B=np.array(start_B, np.int32),
  )  # fmt: skip


def test_segments_equal_one_pass_and_a_start_makes_its_row_new(toy):
  objective, variables, token_BT = toy
  run = jax.jit(objective.predict)
  fresh = objective.carry(batch(token_BT, 0))
  whole = run(variables, fresh, batch(token_BT, 0, 2 * LENGTH))['last_BTD']
  one = run(variables, fresh, batch(token_BT, 0))
  two = run(variables, one['carry'], batch(token_BT, LENGTH))
  found_BTD = np.concatenate([one['last_BTD'], two['last_BTD']], 1)
  np.testing.assert_allclose(found_BTD, whole, atol=1e-6)
  anew = run(variables, one['carry'], batch(token_BT, LENGTH, start_B=(0, 1, 0, 0)))['last_BTD']
  alone = run(variables, fresh, batch(token_BT, LENGTH))['last_BTD']
  np.testing.assert_array_equal(anew[1], alone[1])
  np.testing.assert_array_equal(anew[2:], two['last_BTD'][2:])
  assert np.abs(anew[1] - two['last_BTD'][1]).max() > 1e-3


@mutation("Out(terms | out.get('penalties', {}), out['carry'])", 'Out(terms, carry)')
def test_microbatches_hand_on_the_same_state(toy):
  objective, variables, token_BT = toy
  ctx = Context(jax.random.key(0), jnp.int32(0), train=True)
  rows, carry = with_rows(batch(token_BT, 0)), objective.carry(batch(token_BT, 0))
  both = [
    jax.jit(lambda v, c, n=n: accumulate(objective, v, c, rows, ctx, n)[1:])(variables, carry)
    for n in (1, 2)
  ]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *both)
  want, found = objective.predict(variables, carry, batch(token_BT, 0))['carry'], both[1][2].carry
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, want)


def test_a_run_has_the_state_of_its_model(rich_store):
  c = config()
  c.model.vocab_size = 0
  c.evals.held_out.model = ConfigDict()
  del c.evals.memory
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  (carry,) = run.abstract.carry.values()
  assert {leaf.shape for leaf in jax.tree.leaves(carry)} == {(c.batch_size, c.model.width)}
