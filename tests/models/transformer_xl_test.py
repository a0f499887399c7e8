"""Transformer-XL: what it computes, how far it remembers, what it refuses."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import written_texts
from flax.core import meta
from mutation import mutation
from tiers import in_tiers

from bertjax.errors import UserError
from bertjax.models import transformer_xl
from bertjax.models.layers.heads import all_scores
from bertjax.models.layers.positions import sinusoids
from bertjax.objectives import lm

ROWS = 2


def make(length: int, **fields):
  """(model, objective, random variables) without dropout, for batches of so many columns."""
  c = cases.config('transformer_xl', dropout=0.0, attention_dropout=0.0, **fields)
  c.length = length
  model, objective = transformer_xl.make(c.model), lm.make(c)
  return model, objective, cases.variables(objective.init, batch(np.zeros((ROWS, length), int)))


def batch(token_BT, start: int = 0):
  """A batch of next tokens whose targets do not matter."""
  token_BT = np.asarray(token_BT, np.int32)
  ones_BT = np.ones_like(token_BT)
  return dict(
    token_BT=token_BT, example_BT=ones_BT, target_BP=token_BT,
    weight_BP=ones_BT.astype(np.float32), start_B=np.full(len(token_BT), start, np.int32),
  )  # fmt: skip


def text(columns: int, seed: int = 0):
  return np.random.default_rng(seed).integers(0, cases.VOCAB, (ROWS, columns))


def stream(objective, variables, token_BT, length: int):
  """The last layer's output over a text in segments, [B, columns, D]."""
  segments = np.asarray(token_BT).reshape(ROWS, -1, length).swapaxes(0, 1)
  first = batch(segments[0], 1)

  @jax.jit
  def run(token_KBT):
    def step(memory, token_BT):
      out = objective.predict(variables, memory, dict(first, token_BT=token_BT, start_B=zero_B))
      return out['carry'], out['last_BTD']

    zero_B = jnp.zeros(ROWS, jnp.int32)
    return jax.lax.scan(step, objective.carry(first), token_KBT)[1]

  return np.asarray(run(segments)).swapaxes(0, 1).reshape(ROWS, np.shape(token_BT)[1], -1)


@pytest.mark.parametrize('same_length, reach', [(False, 2 * 3), (True, 2 * (3 - 1))])
@mutation('window = self.mem_len if self', 'window = self.mem_len + 1 if self')
@mutation('both[:, both.shape[1] - length :]', 'both[:, :length]')
def test_memory_reaches_back_exactly_layers_times_its_length(same_length, reach):
  """With segments of one token; same_length counts the token itself among the mem_len."""
  _, objective, variables = make(1, mem_len=3, same_length=same_length)
  token_BT, other_BT = text(reach + 3), text(reach + 3)
  other_BT[:, 0] = (other_BT[:, 0] + 1) % cases.VOCAB
  one, two = (stream(objective, variables, x, 1) for x in (token_BT, other_BT))
  differs = np.abs(one - two).max((0, 2)) > 0
  assert differs[: reach + 1].all() and not differs[reach + 1 :].any()


@mutation('jnp.where((start_B == 0)[:, None], carry.example_BM, 0)', 'carry.example_BM')
def test_a_start_makes_a_row_new_and_leaves_the_other():
  _, objective, variables = make(4, mem_len=4)
  first, second = batch(text(4), 1), batch(text(4, 1))
  fresh = objective.carry(first)
  predict = jax.jit(objective.predict)
  memory = predict(variables, fresh, first)['carry']
  run = lambda held, start: np.asarray(
    predict(variables, held, dict(second, start_B=np.array(start)))['last_BTD']
  )
  found = run(memory, [1, 0])
  np.testing.assert_array_equal(found[0], run(fresh, [0, 0])[0])
  np.testing.assert_array_equal(found[1], run(memory, [0, 0])[1])
  assert np.abs(found[0] - run(memory, [0, 0])[0]).max() > 1e-3


def formula(model, params, token_BT):
  """The last layer's output where positions are added to states, query by query, in float64."""
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  length = token_BT.shape[1]
  x_BTD = params['word'][token_BT] * model.width**0.5
  if model.attention == 'absolute':
    x_BTD = x_BTD + sinusoids(np.arange(length - 1, -1, -1), model.width, model.clamp_len)

  def norm(x, p):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + model.norm_eps)
    return centred / deviation * p['scale'] + p['bias']

  for layer in range(model.layers):
    p = jax.tree.map(lambda x, layer=layer: x[layer], params['layers'])
    if model.attention == 'deeper':
      x_BTD = x_BTD + p['positions'][-length:]
    normed_BTD = norm(x_BTD, p['attention_norm'])
    q_BTNH, k_BSNH, v_BSNH = (
      np.tensordot(normed_BTD, p['attention'][name]['kernel'], 1)
      for name in ('query', 'key', 'value')
    )
    y_BTNH = np.zeros_like(q_BTNH)
    for t in range(length):
      score_BSN = (q_BTNH[:, t, None] * k_BSNH[:, : t + 1]).sum(-1) * model.head_size**-0.5
      weight_BSN = np.exp(score_BSN - score_BSN.max(1, keepdims=True))
      weight_BSN /= weight_BSN.sum(1, keepdims=True)
      y_BTNH[:, t] = np.einsum('BSN,BSNH->BNH', weight_BSN, v_BSNH[:, : t + 1])
    x_BTD = x_BTD + np.tensordot(y_BTNH, p['attention']['out']['kernel'], 2)
    up, down = p['ffn']['up'], p['ffn']['down']
    h_BTF = np.maximum(norm(x_BTD, p['ffn_norm']) @ up['kernel'] + up['bias'], 0)
    x_BTD = x_BTD + h_BTF @ down['kernel'] + down['bias']
  return x_BTD


@pytest.mark.parametrize(
  'fields',
  [dict(attention='absolute', clamp_len=3), dict(attention='deeper', learned_positions=7)],
  ids=lambda fields: fields['attention'],
)
@mutation("embed(batch['token_BT']) * self.width**0.5", "embed(batch['token_BT'])")
@mutation('table[None, self.learned_positions - x_BTD.shape[1] :]', 'table[None, : x_BTD.shape[1]]')
def test_positions_that_are_added_equal_the_formula(fields):
  """Distances are compared with the original's numbers, in transformer_xl_golden_test.py."""
  model, objective, variables = make(5, mem_len=0, pre_norm=True, **fields)
  given = batch(text(5), 1)
  out = jax.jit(objective.predict)(variables, objective.carry(given), given)
  expected = formula(model, variables['params'], given['token_BT'])
  np.testing.assert_allclose(out['last_BTD'], expected, rtol=0, atol=2e-5)


def test_distances_beyond_the_learned_ones_have_the_last_of_them():
  _, short, variables = make(5, mem_len=6, attention='shaw', learned_positions=5)
  _, long, _ = make(5, mem_len=6, attention='shaw', learned_positions=11)
  layers = dict(variables['params']['layers'])
  for name in ('positions', 'position_bias'):
    width = [(0, 6 * (axis == 1)) for axis in range(layers[name].ndim)]
    layers[name] = jnp.pad(layers[name], width, mode='edge')
  repeated = dict(params=dict(variables['params'], layers=layers))
  found, wanted = (stream(*x, text(15), 5) for x in ((short, variables), (long, repeated)))
  np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_initial_values_are_those_of_the_original():
  c = cases.config('transformer_xl', attention='shaw', learned_positions=40)
  init = jax.jit(lm.make(c).init)
  params = meta.unbox(init(jax.random.key(0), batch(text(32))))['params']
  deviation = lambda x: round(float(np.std(x)), 2)
  layers = params['layers']
  assert deviation(params['word']) == deviation(layers['ffn']['up']['kernel']) == 0.02
  assert deviation(layers['positions']) == 0.02 and not layers['position_bias'].any()
  scale = np.concatenate([layers[f'{name}_norm']['scale'].ravel() for name in ('attention', 'ffn')])
  assert abs(scale.mean() - 1) < 0.01 and 0.015 < scale.std() < 0.025


@mutation('self.clone(mem_len=columns + room)', 'self.clone(mem_len=4)')
@mutation('room).carry(rows)', "room).carry(rows, 'zeros')")
@pytest.mark.parametrize('cutoffs', in_tiers([(), (50, 120)], [()]))
def test_a_text_token_by_token_is_the_whole_text(cutoffs):
  """Whatever stands before a short prompt; nothing falls out of the memory."""
  model, _, variables = make(10, mem_len=0, cutoffs=cutoffs)
  token_BT = text(10)
  score = lambda v: all_scores(model.apply(v, batch(token_BT))['word'])
  whole_BTV = np.asarray(jax.jit(score)(variables))[..., : cases.VOCAB]
  written_texts.check_token_by_token(model, variables, token_BT, whole_BTV, [6, 4], dict(atol=2e-5))


def test_a_text_that_goes_on_needs_distances():
  model, _, variables = make(8, mem_len=0, attention='absolute')
  given = {key: x for key, x in batch(text(4)).items() if key in ('token_BT', 'example_BT')}
  with pytest.raises(UserError, match="attention='absolute' names tokens by their place in a row"):
    model.apply(variables, given, 4, method='start')
