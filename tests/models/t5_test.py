"""T5 beside transformers: hidden states, logits, losses, gradients and texts, from golden files."""

import json

import cases
import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
from ml_collections import ConfigDict
from mutation import mutation
from tiers import in_tiers

from bertjax.formats import tables
from bertjax.formats.families import t5 as family
from bertjax.kernels.cross_entropy import logits
from bertjax.models import t5
from bertjax.models.layers import decoding
from bertjax.tools.preflight.compiled_step import kernels


@pytest.fixture(scope='module', params=in_tiers(['1_0', '1_1'], ['1_0']))
def case(request, shared):
  theirs = np.load(shared / 'golden' / 'family' / f't5_v{request.param}.npz')
  config, gated = json.loads(str(theirs['config']))['config'], request.param == '1_1'
  model = t5.T5(
    vocab_size=config['vocab_size'], layers=config['num_layers'], width=config['d_model'],
    heads=config['num_heads'], head_size=config['d_kv'], ffn=config['d_ff'], gated=gated,
    activation='gelu_tanh' if gated else 'relu', tied=not gated, norm_eps=1e-6, dropout=0.0,
    remat='none', dtype='float32',
  )  # fmt: skip
  batch = dict(
    token_BT=theirs['input_ids'], example_BT=theirs['attention_mask'].astype(np.int32),
    out_token_BU=theirs['decoder_input_ids'],
    out_example_BU=np.ones_like(theirs['decoder_input_ids']),
    position_BT=np.zeros_like(theirs['input_ids']),
    out_position_BU=np.zeros_like(theirs['decoder_input_ids']),
  )  # fmt: skip
  return theirs, model, jax.tree.map(jnp.asarray, batch)


def parameters_of(theirs, prefix, model):
  """The parameters of transformers' class, or their gradients, as ours."""
  names = 'vocab_size layers width heads head_size ffn gated tied'.split()
  config = ConfigDict({name: getattr(model, name) for name in names})
  state = {k.removeprefix(prefix): x for k, x in theirs.items() if k.startswith(prefix)}
  return tables.to_ours(state, family.layout(config).rows, config)


@mutation('factor = self.width**-0.5 if self.tied else 1.0', 'factor = 1.0')
@mutation('h_BPD * self.factor', 'h_BPD')
@mutation('(BUCKETS, heads), init)[bucket_R].T', '(BUCKETS, heads), init)[bucket_R[::-1]].T')
@mutation('FURTHEST, not causal)', 'FURTHEST, True)')
@mutation('relative or Relative(), scale=self.scale)', 'relative or Relative(), scale=None)')
@mutation('self.dropped(norm(x_BTD), fork', 'self.dropped(x_BTD, fork')
def test_t5_is_that_of_transformers(case):
  theirs, model, batch = case
  params = jax.tree.map(jnp.asarray, parameters_of(theirs, 'param/', model))
  shapes = nn.meta.unbox(jax.eval_shape(model.init, jax.random.key(0), batch))['params']
  chex.assert_trees_all_equal_shapes(params, shapes)
  target_BU = theirs['labels']  # -100 where there is none
  (found, out), gradient = parity.word_gradients(
    model, params, batch, np.maximum(target_BU, 0), np.float32(target_BU >= 0)
  )
  real = np.asarray(batch['example_BT']) > 0
  np.testing.assert_allclose(out['last_BTD'][real], theirs['encoder_last'][real], atol=2e-5)
  scores = logits(out['word'])[..., : model.vocab_size]
  np.testing.assert_allclose(scores, theirs['logits'], atol=1e-4, rtol=1e-5)
  np.testing.assert_allclose(found, theirs['loss'], rtol=1e-6)
  wanted = parameters_of(theirs, 'grad/', model)
  chex.assert_trees_all_close(jax.tree.map(np.asarray, gradient), wanted, atol=1e-4, rtol=1e-4)


@mutation('(mine_BU, theirs_BT)', '((mine_BU > 0).astype(int), (theirs_BT > 0).astype(int))')
def test_texts_that_share_a_row_do_not_see_each_other(case):
  _, model, batch = case
  apart, number_B1 = {key: x[:2] for key, x in batch.items()}, jnp.array([[1], [2]])
  ours = {key: x * number_B1 if 'example' in key else x for key, x in apart.items()}
  packed = {key: x.reshape(1, -1) for key, x in ours.items()}
  # Theirs are so large that float32 does not say the fifth figure of some outputs.
  variables = cases.variables(model.init, apart)
  one, two = (jax.jit(model.apply)(variables, each)['out_last_BUD'] for each in (packed, apart))
  np.testing.assert_allclose(one.reshape(two.shape), two, atol=1e-5)


@mutation('distance_S = place - jnp.arange(columns)', 'distance_S = jnp.arange(columns)')
@mutation('x[state.from_n]', 'x')
def test_texts_are_those_of_transformers(case):
  theirs, model, batch = case
  params = jax.tree.map(jnp.asarray, parameters_of(theirs, 'param/', model))
  variables = model.for_writing(dict(params=params))
  new = theirs['generate/greedy'].shape[1] - 1
  reads = {key: batch[key] for key in ('token_BT', 'example_BT')}
  reads['out_token_BU'] = jnp.zeros((len(batch['token_BT']), 1), jnp.int32)
  start, text = jax.jit(lambda reads: model.apply(variables, reads, new, method='start'))(reads)
  step = lambda token_B, text: model.apply(variables, token_B, text, method='step')
  end, own = int(theirs['generate/eos_case_id']), slice(0, model.vocab_size)
  wanted = theirs['generate/eos_case_greedy'][:, 1:]
  found = decoding.write(
    start[:, own], text, lambda t, c: (step(t, c)[0][:, own], step(t, c)[1]), new, end,
    decoding.Sampling(), None,
  ).token_BKN[:, 0]  # fmt: skip
  np.testing.assert_array_equal(found[:, : wanted.shape[1]], wanted)
  for name, beams in {
    'eos_case_beam4_lp06': decoding.Beams(4, 0.6, 'transformers'),
    'eos_case_beam4_early': decoding.Beams(4, 1.0, 'transformers', True),
  }.items():
    found = decoding.search(start, text, step, new, end, beams)
    scores = theirs[f'generate/{name}_score'].reshape(len(start), -1)
    ours = np.asarray(found.score_BK)[:, : scores.shape[1]]
    np.testing.assert_allclose(ours, scores, rtol=2e-5, err_msg=name)
    tokens = theirs[f'generate/{name}'].reshape(*scores.shape, -1)[..., 1:]
    for row, beam in np.ndindex(scores.shape):
      own = np.asarray(found.token_BKN)[row, beam].tolist()
      own = own[: own.index(end) + 1] if end in own else own
      assert own == tokens[row, beam][: len(own)].tolist(), name


@pytest.mark.full
@mutation('  if size > 256:', '  if size > 256 or keys != x.q_BTNH.shape[1]:')
def test_a_tpu_computes_all_three_attentions_with_its_kernel():
  c = cases.config('t5')
  model, row_BT, row_BU = t5.MODEL.make(c.model), jnp.ones((2, 32), int), jnp.ones((2, 16), int)
  names = ('token', 'example', 'position')
  batch = {f'{n}_BT': row_BT for n in names} | {f'out_{n}_BU': row_BU for n in names}
  variables = jax.eval_shape(model.init, jax.random.key(0), batch)
  with kernels('tpu', 'TPU v5 lite'):  # a kernel that is asked for by name refuses what it lacks
    traced = jax.jit(lambda v: model.apply(v, batch)['out_last_BUD']).trace(variables)
    text = traced.lower(lowering_platforms=('tpu',)).as_text()
  assert text.count('kernel_name = "relative_attention"') == 3  # in loops over the layers
