"""Training steps of ELMo beside those of bilm-tf: losses, states, parameters and accumulators."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import systems
from mutation import mutation
from tiers import in_tiers

from bertjax import sharding
from bertjax.formats import tables
from bertjax.formats.originals import bilm as original
from bertjax.kernels import sampled_softmax
from bertjax.objectives import bilm
from bertjax.optim import optimizer
from bertjax.types import Context

# The words of this one are as large as 70: with parameters one unit in the last place away, its
# norm moves by 1e-4 in the first step, its losses by 1e-3 and 5e-2 in the second and third.
STEPS = dict(char_skip_cellclip=1)
QUICK = ('char_skip_cellclip', 'char_noskip_full', 'word_skip_full_2towers')
WAYS = ('forwards', 'backwards')
SLOW = ('char_skip_full', 'char_skip_sampled', 'char_skip_full_clipped', 'word_skip_sampled')


def config_of(config):
  """Our config of a golden's."""
  options = config['options']
  sizes = options['lstm']
  c = systems.tiny('elmo')
  c.model.update(
    layers=sizes['n_layers'], width=sizes['projection_dim'], cell=sizes['dim'],
    skips=sizes['use_skip_connections'], cell_clip=sizes['cell_clip'],
    projection_clip=sizes['proj_clip'], dropout=options['dropout'],
    vocab_size=options['n_tokens_vocab'],
  )  # fmt: skip
  if 'char_cnn' in options:
    chars = options['char_cnn']
    c.model.update(
      characters=chars['max_characters_per_token'], character_width=chars['embedding']['dim'],
      filters=tuple(map(tuple, chars['filters'])), highways=chars['n_highway'],
    )  # fmt: skip
  else:
    c.model.characters = 0
  c.objective.sampled = options['n_negative_samples_batch'] * options['sample_softmax']
  c.length = options['unroll_steps']
  c.optimizer.clip = options['all_clip_norm_val']
  c.optimizer.schedule.peak = options['learning_rate']
  return c


def ours_of(theirs, prefix, c, suffix=''):
  """The parameters of bilm-tf, or what is like them, as ours."""
  given = ((k.removeprefix(prefix), x) for k, x in theirs.items() if k.startswith(prefix))
  state = {f'{original.SCOPE}{k.removesuffix(suffix)}': x for k, x in given}
  return tables.to_ours(state, original.rows(c.model), c.model)


def batch_of(theirs, step, towers):
  """The rows of all towers."""
  rows = lambda name: np.concatenate([theirs[f'{step}/{n}/{name}'] for n in range(towers)])
  token_BT, out_token_BU = rows('token'), rows('token_reverse')
  ones = np.ones_like(token_BT)
  return dict(
    token_BT=token_BT, example_BT=ones, target_BT=rows('next'), weight_BT=ones.astype(np.float32),
    out_token_BU=out_token_BU, out_example_BU=ones, target_BU=rows('next_reverse'),
    weight_BU=ones.astype(np.float32), row_B=np.arange(len(token_BT)),
    character_BTW=theirs['chars_of_word'][token_BT],
    out_character_BUW=theirs['chars_of_word'][out_token_BU],
  )  # fmt: skip


def candidates_of(theirs, step, words):
  """Those of both directions; tries are what their expected counts come from."""
  found = []
  for way in range(2):
    at = lambda name, way=way: theirs[f'{step}/candidates/{way}/{name}']
    ids, counts = at('ids'), at('sampled_expected')
    share = np.log((ids[0] + 2.0) / (ids[0] + 1.0)) / np.log(words + 1.0)
    tries = np.float64(counts[0]) / share
    if abs(tries - len(ids)) > 1e-3:  # some came twice
      tries = np.log1p(-np.float64(counts[0])) / np.log1p(-share)
    found.append(sampled_softmax.Candidates(jnp.asarray(ids), jnp.int32(round(float(tries)))))
  return found


def states_of(theirs, step, towers, layers):
  """The states of all towers: each a pair, tower by tower."""
  each = [theirs[f'{step}/state/{n}'] for n in range(4 * layers * towers)]
  pairs = [(each[i], each[i + 1]) for i in range(0, len(each), 2)]
  ways = [pairs[tower * 2 * layers :][: 2 * layers] for tower in range(towers)]
  return [tuple(map(np.concatenate, zip(*x, strict=True))) for x in zip(*ways, strict=True)]


def unit_away(params, seed):
  """Parameters of which every one is itself or a unit in the last place further from 0."""
  rng = np.random.default_rng(seed)
  away = lambda x: np.where(rng.integers(2, size=x.shape), np.nextafter(x, 2 * x), x)
  return jax.tree.map(lambda x: jnp.asarray(away(np.asarray(x))), params)


def check_near(found, wanted, **tolerances):
  """The first of some trees is the wanted one, as far as float32 says it: the others are of
  parameters a unit in the last place away, which hardly moves any case but that of STEPS."""

  def check(wanted, first, *others):
    says = max(np.max(np.abs(other - first)) for other in others)
    beyond = np.maximum(np.abs(first - wanted) - 3 * says, 0)
    np.testing.assert_allclose(wanted + beyond, wanted, **tolerances)

  jax.tree.map(lambda *each: check(*map(np.float64, each)), wanted, *found)


@mutation('config.length if config.objective.times_length else 1', '1')
@mutation('if number and self.skips else', 'if number else', file='bertjax/models/elmo.py')
@mutation('scale_by_rss(accumulator, eps=0.0)', 'scale_by_rss(accumulator, eps=1.0)')
@mutation('* jnp.tanh(new), rules.cell_clip)', '* jnp.tanh(new), 0.0)')
@mutation('carry * changed + (1 - carry) * x_BTF', 'carry * x_BTF + (1 - carry) * changed')
@pytest.mark.parametrize('name', in_tiers([*QUICK, *SLOW], SLOW))
def test_three_steps_are_those_of_bilm_tf(golden, name, monkeypatch):
  theirs, config = golden(f'elmo_{name}')
  c, towers = config_of(config), config['n_gpus']
  objective = bilm.make(c)
  boxed = jax.eval_shape(objective.init, jax.random.key(0), batch_of(theirs, 0, towers))['params']
  axes = sharding.logical_axes(boxed)
  params = jax.tree.map(jnp.asarray, ours_of(theirs, 'param/', c))
  chex.assert_trees_all_equal_shapes(params, nn.meta.unbox(boxed))
  tx, schedule = optimizer.make(c.optimizer, params, axes)
  carry = objective.carry(batch_of(theirs, 0, towers))

  drawn = []  # by the traced step, in the order of the directions
  monkeypatch.setattr(sampled_softmax, 'draw', lambda key, count, words: drawn.pop(0))

  @jax.jit
  def step(params, state, carry, batch, number, candidates):
    drawn[:] = candidates

    def loss(params):
      ctx = Context(jax.random.key(0), number, True)
      out = objective.loss(dict(params=params), carry, batch, ctx)
      term = out.terms['bilm']
      return term.scale * term.total / term.weight, out

    (_, out), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, state = tx.update(grads, state, params, rate=schedule(number))
    return optax.apply_updates(params, updates), state, out, optax.tree.norm(grads)

  runs = [(x, tx.init(x), carry) for x in (params, *(unit_away(params, n) for n in range(4)))]
  for number in range(STEPS.get(name, 3)):
    batch = batch_of(theirs, number, towers)
    candidates = candidates_of(theirs, number, c.model.vocab_size) if c.objective.sampled else []
    stepped = [step(*run, batch, number, candidates) for run in runs]
    runs = [(params, state, out.carry) for params, state, out, _ in stepped]
    ways = [map(out.terms.get, WAYS) for *_, out, _ in stepped]
    found = [[way.total / way.weight for way in each] for each in ways]
    check_near(found, [*theirs[f'{number}/direction_losses'].mean(0)], rtol=3e-6)
    check_near([norm for *_, norm in stepped], theirs[f'{number}/grad_norm'], rtol=1e-5)
    wanted = states_of(theirs, number, towers, c.model.layers)
    found = [[tuple(state) for state in carry] for *_, carry in runs]
    check_near(found, wanted, atol=3e-6, rtol=1e-5)
  if name in STEPS:
    return
  check_near([x[0] for x in runs], ours_of(theirs, 'param_after/', c), atol=3e-6, rtol=1e-5)
  # All begin at 1, those of the rows that pad the words too.
  wanted = ours_of(theirs, 'accumulator/', c, '/Adagrad')
  wanted = jax.tree.map(lambda x: np.maximum(x, 1.0), wanted)
  found = [optax.tree.get(state, 'sum_of_squares') for _, state, _ in runs]
  check_near(found, wanted, atol=3e-6, rtol=1e-5)
