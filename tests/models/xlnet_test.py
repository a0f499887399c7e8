"""XLNet's properties beside transformers' numbers: a row forgets, streams draw apart."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
from mutation import mutation
from xlnet_cases import LENGTH, ROWS, config, make_batch

from bertjax.kernels.dropout import noise_from_key
from bertjax.models import xlnet
from bertjax.objectives import plm


def system(**model):
  """The objective and random variables of the config."""
  objective = plm.make(config(**model))
  return objective, cases.variables(objective.init, make_batch())


@mutation('batch, before(model, carry, batch, start))', 'batch, carry)')
def test_a_row_that_starts_anew_forgets():
  objective, variables = system()
  batch, later = make_batch(0), make_batch(1)
  batch['example_BT'] = np.ones_like(batch['example_BT'])  # padding is not remembered
  predict = jax.jit(objective.predict)
  memory = predict(variables, objective.carry(batch), batch)['carry']
  later['start_B'] = np.array([1, 0, 0, 1], np.int32)
  got = predict(variables, memory, later)['logits_BPV']
  fresh = predict(variables, objective.carry(batch), later)['logits_BPV']
  changed = np.abs(np.asarray(got - fresh)[..., : cases.VOCAB]).max((1, 2)) > 0
  np.testing.assert_array_equal(changed, [False, True, True, False])


def test_shared_query_biases_are_one_for_all_layers():
  objective, _ = system()
  _, tied = system(untie_r=False)
  assert {'u', 'w', 'z'} <= set(tied['params']) and 'u' not in tied['params']['layers']
  assert tied['params']['u'].shape == (8, 8)
  _, untied = system()
  assert untied['params']['layers']['u'].shape == (2, 8, 8)
  many = jax.tree.map(lambda x: x, tied['params'])
  layers = dict(many['layers'], **{k: np.stack([many.pop(k)] * 2) for k in 'uwz'})
  batch = make_batch()
  carry, apart = objective.carry(batch), dict(params=dict(many, layers=layers))
  want = jax.jit(plm.make(config(untie_r=False)).predict)(tied, carry, batch)
  got = jax.jit(objective.predict)(apart, carry, batch)
  np.testing.assert_allclose(got['last_BTD'], want['last_BTD'], atol=1e-6)


@mutation("dropout_lib.fork(noise, 'query')", 'noise')
def test_dropout_is_drawn_apart_for_the_two_streams():
  _, variables = system(dropout=0.0, attention_dropout=0.5, mem_len=0)
  batch = make_batch()
  # Without content at the slots both streams ask the same, so only the draws tell them apart.
  batch['token_BT'] = np.full_like(batch['token_BT'], 9)
  variables['params']['mask'] = variables['params']['word'][9]
  batch['order_q_BT'] = np.ones_like(batch['order_q_BT'])
  batch['order_k_BT'] = np.zeros_like(batch['order_k_BT'])
  net = xlnet.make(config(dropout=0.0, attention_dropout=0.5, mem_len=0).model)
  run = jax.jit(lambda v, noise: net.apply(v, batch, (), noise, True)['hidden_LBXD'][0])
  still = run(variables, None)
  used, row = batch['weight_BP'] > 0, np.arange(ROWS)[:, None]
  at_slots = lambda x: (
    np.asarray(x[:, :LENGTH])[row, batch['target_pos_BP']][used],
    x[:, LENGTH:][used],
  )
  np.testing.assert_allclose(*at_slots(still), atol=1e-5)
  drawn = run(variables, noise_from_key(jax.random.key(0), jnp.arange(ROWS)))
  content, query = at_slots(drawn)
  assert np.abs(content - query).max() > 1e-2
