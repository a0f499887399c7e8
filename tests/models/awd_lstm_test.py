"""AWD-LSTM beside fastai's: states and scores, and steps of training with the masks it drew."""

import json

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.formats.originals import awd_lstm_torch
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.models import awd_lstm
from bertjax.models.layers import concat_pool
from bertjax.objectives import label_model, lm
from bertjax.optim import optimizer
from bertjax.train.step import trained_loss
from bertjax.types import Context


@pytest.fixture(scope='module')
def golden(shared):
  return np.load(shared / 'golden' / 'family' / 'ulmfit_fastai.npz')


def ours(theirs, prefix):
  """The parameters of fastai's model, or their gradients, as ours."""
  state = {k.removeprefix(prefix): x for k, x in theirs.items() if k.startswith(prefix)}
  return jax.tree.map(jnp.asarray, awd_lstm_torch.params_of(state))


def encoder(theirs, prefix):
  """The parameters of the layers and the words."""
  return ours({f'0.{k.removeprefix(prefix)}': theirs[k] for k in theirs if prefix in k}, '')


def config_of(golden):
  found = json.loads(str(golden['config']))['lm']
  rates = dict(
    word_dropout='embed_p', input_dropout='input_p', weight_dropout='weight_p',
    hidden_dropout='hidden_p', dropout='output_p',
  )  # fmt: skip
  model = dict(
    name='awd_lstm', family='none', size='test', vocab_size=len(golden['lm/param/1.decoder.bias']),
    layers=found['n_layers'], width=found['emb_sz'], cells=found['n_hid'], word_bias=True,
    ar=2.0, tar=1.0, ar_of='dropped', init_std=0.1 / 3**0.5,
    **{ours: found[theirs] for ours, theirs in rates.items()},
  )  # fmt: skip
  objective = dict(name='lm', unit='word', memory='empty')
  return ConfigDict(dict(model=model, objective=objective, length=9))


def batch_of(golden, segment):
  token_BT, target_BP = (golden[f'lm/{name}_SBT'][segment] for name in ('input', 'target'))
  return dict(
    token_BT=token_BT, example_BT=np.ones_like(token_BT), target_BP=target_BP,
    weight_BP=np.ones(token_BT.shape, np.float32), row_B=np.arange(len(token_BT)),
  )  # fmt: skip


def masks_of(golden, step):
  """Path of a dropout -> what fastai multiplied by there in a step of training."""
  at = lambda name: golden[f'lm/train_adam/{step}/mask/{name}']
  gates = lambda leaf: np.moveaxis(
    leaf.reshape(4, -1, leaf.shape[-1])[np.array([0, 2, 1, 3])], -1, 0
  )
  rows = np.ones((1, 128), np.float32)
  rows[0, : len(at('embedding'))] = at('embedding')[:, 0]
  names = dict(input='input', hidden_0='hidden0', hidden_1='hidden1', output='output')
  masks = {f'{mine}_dropout': at(name)[:, 0] for mine, name in names.items()}
  masks |= {f'lstm_{n}/weight_dropout': gates(at(f'weight{n}'))[None] for n in range(3)}
  return masks | dict(word_dropout=rows)


@mutation('dropped_BTD, word_VD)', 'dropped_BTD, word_VD)._replace(bias_V=jnp.zeros(len(word_VD)))')
def test_segments_have_the_scores_and_states_of_fastai(golden):
  config = config_of(golden)
  objective, variables = lm.make(config), dict(params=ours(golden, 'lm/param/'))
  carry = objective.carry(batch_of(golden, 0))
  for segment in range(4):
    out = objective.predict(variables, carry, batch_of(golden, segment))
    carry, words = out['carry'], config.model.vocab_size
    want = golden[f'lm/eval/logits/{segment}']
    np.testing.assert_allclose(out['logits_BPV'][..., :words], want, atol=5e-7)
    np.testing.assert_allclose(out['last_BTD'], golden[f'lm/eval/last/{segment}'], atol=3e-7)
  for number, state in enumerate(carry):
    np.testing.assert_allclose(state.hidden_BP, golden[f'lm/eval/state/h{number}'][0], atol=3e-7)
    np.testing.assert_allclose(state.cell_BC, golden[f'lm/eval/state/c{number}'][0], atol=3e-7)


@mutation("dropped_BTD if self.ar_of == 'dropped' else x_BTD", 'x_BTD')
@mutation("Out(terms | out.get('penalties', {}), out['carry'])", 'Out(terms, carry)')
@mutation('word_VD * kept_V', 'word_VD + 0 * kept_V')
@mutation('self.hidden_dropout, noise, f', '0.0, None, f')
def test_three_steps_of_training_are_those_of_fastai(golden, monkeypatch):
  config = config_of(golden)
  objective, params = lm.make(config), ours(golden, 'lm/param/')
  carry, noise = (
    objective.carry(batch_of(golden, 0)),
    Context(jax.random.key(0), jnp.int32(0), True),
  )
  rates = golden['lm/lrs']
  boxed = jax.eval_shape(objective.init, jax.random.key(0), batch_of(golden, 0))
  axes = sharding.logical_axes(boxed)['params']
  groups = [(f'lstm_{number}/.*', float(rates[number])) for number in range(3)]
  tx, _ = optimizer.make(
    ConfigDict(
      dict(
        name='adamw', b1=0.8, b2=0.99, eps=1e-8, clip=0.3, decay=((r'.*', 1.0),),
        lr_scale=(*groups, ('.*', float(rates[3]))), schedule=dict(name='constant', peak=1.0),
      )  # fmt: skip
    ),
    params, axes,
  )  # fmt: skip
  state, drawn = tx.init(params), {}
  given = lambda x, rate, noise, site: x if noise is None else x * drawn[site]
  monkeypatch.setattr(dropout_lib, 'dropout', given)
  monkeypatch.setattr(dropout_lib, 'site', lambda path: '/'.join(path))

  @jax.jit
  def trained(params, carry, batch, masks):
    drawn.update(masks)

    def loss(params):
      out = objective.loss(dict(params=params), carry, batch, noise)
      weights = {name: term.weight for name, term in out.terms.items()}
      return trained_loss(out.terms, weights), out

    return jax.value_and_grad(loss, has_aux=True)(params)

  for step in range(3):
    at = lambda name, step=step: golden[f'lm/train_adam/{step}/{name}']
    batch, masks = batch_of(golden, step), masks_of(golden, step)
    (total, out), grads = trained(params, carry, batch, masks)
    means = {name: term.total / term.weight for name, term in out.terms.items()}
    for name, theirs in dict(lm='ce', ar='ar', tar='tar').items():
      scale = out.terms[name].scale
      np.testing.assert_allclose(scale * means[name], at(theirs), rtol=3e-6, err_msg=theirs)
    np.testing.assert_allclose(total, at('loss'), rtol=3e-6)
    if not step:
      want = ours(golden, 'lm/train_adam/0/grad/')
      jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=3e-7), grads, want)
    updates, state = tx.update(grads, state, params, rate=1.0)
    params, carry = jax.tree.map(jnp.add, params, updates), out.carry
  want = ours(golden, 'lm/train_adam/param_after/')
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), params, want)


def test_padding_changes_no_state_and_is_in_no_penalty(golden):
  config = config_of(golden)
  config.model.update({key: 0.0 for key in config.model if key.endswith('dropout')})
  objective, variables = lm.make(config), dict(params=ours(golden, 'lm/param/'))
  batch, ctx = batch_of(golden, 0), Context(jax.random.key(0), jnp.int32(0), True)
  cut = {key: x[:, :6] if x.ndim > 1 else x for key, x in batch.items()}
  real_BT = (np.arange(9) < 6)[None]
  padded = batch | {key: batch[key] * real_BT for key in ('example_BT', 'weight_BP')}
  loss = jax.jit(lambda x: objective.loss(variables, objective.carry(x), x, ctx))
  first, second = loss(cut), loss(padded)
  jax.tree.map(np.testing.assert_array_equal, first.carry, second.carry)
  for name, term in first.terms.items():
    np.testing.assert_allclose(term.total, second.terms[name].total, rtol=1e-6)
    assert term.weight == second.terms[name].weight


def test_units_are_dropped_for_a_row_and_words_for_a_step():
  model = awd_lstm.AWDLSTM(
    vocab_size=40, layers=2, width=8, cells=16, word_bias=False, word_dropout=0.5,
    input_dropout=0.5, weight_dropout=0.0, hidden_dropout=0.0, dropout=0.0, ar=0.0,
    tar=0.0, ar_of='whole', init_std=0.1 / 3**0.5,
  )  # fmt: skip
  batch = dict(token_BT=np.tile(np.arange(10), (4, 1)), example_BT=np.ones((4, 10), np.int32))
  variables = cases.variables(model.init, batch)
  noise = Noise(jnp.uint32(3), jnp.arange(4, dtype=jnp.uint32))
  run = jax.jit(lambda variables: model.apply(variables, batch, (), noise, True))
  found_BTD = np.asarray(run(variables)['embedded_BTD']) != 0
  word_T = found_BTD.any((0, 2))
  assert 0 < word_T.sum() < 10
  unit_BD = found_BTD[:, word_T][:, 0]
  np.testing.assert_array_equal(found_BTD, word_T[None, :, None] & unit_BD[:, None])
  assert len({tuple(row) for row in unit_BD}) > 1


# fastai's chunks and the columns that it pools, of the golden files.
CHUNKS = dict(labels=(('label', 3),), chunk=6, pooled=12, inner=7)


def classifier(golden, **fields):
  quiet = dict(head_dropout=0.0, inner_dropout=0.0)
  return awd_lstm.MODEL.make(ConfigDict(dict(config_of(golden).model) | CHUNKS | quiet | fields))


def head_of(golden, prefix='clas/param/1.layers.', norm='0', linear='1'):
  """The parameters of fastai's head; its newer version has no biases."""
  at, found = lambda name: golden[prefix + name], {}
  for n, size in enumerate((7, 3)):
    bias = at(f'{n}.{linear}.bias') if linear == 'lin' else np.zeros(size)
    found[f'norm_{n}'] = dict(scale=at(f'{n}.{norm}.weight'), bias=at(f'{n}.{norm}.bias'))
    found[f'dense_{n}'] = dict(kernel=at(f'{n}.{linear}.weight').T, bias=bias)
  return found


def classifier_params(golden):
  return encoder(golden, 'clas/param/0.module.') | dict(label=head_of(golden))


def fresh():
  return {f'norm_{n}': dict(mean=np.zeros(d), var=np.ones(d)) for n, d in enumerate((36, 7))}


@mutation('unbiased_D = var_D * rows / jnp.maximum(rows - 1, 1)', 'unbiased_D = var_D')
@mutation('mean_D = total(x_BD) / jnp.maximum(rows, 1)', 'mean_D = 0 * total(x_BD)')
def test_the_head_is_that_of_fastai(golden):
  params = head_of(golden)
  head = concat_pool.ConcatPool(3, 7, (0.0, 0.0), jax.nn.initializers.zeros)
  run = lambda weight_B: head.apply(
    dict(params=params, batch_stats=fresh()), jnp.asarray(golden['clas/pooled']), weight_B, None
  )
  logits_BC, kept = run(None)
  np.testing.assert_allclose(logits_BC, golden['clas/logits'], atol=3e-7)
  jax.tree.map(np.testing.assert_array_equal, kept, fresh())
  logits_BC, new = run(jnp.ones(4))
  np.testing.assert_allclose(logits_BC, golden['clas/logits_train_bn'], atol=2e-6)
  for number in range(2):
    for name in ('mean', 'var'):
      want = golden[f'clas/buffer_after/layers.{number}.0.running_{name}']
      np.testing.assert_allclose(new[f'norm_{number}'][name], want, rtol=1e-5, atol=1e-7)


def pooled_by(monkeypatch, model, params, batch):
  """(what a classifier gives, what its head reads, the columns that are pooled)."""
  pooled, seen = concat_pool.pooled, []
  monkeypatch.setattr(concat_pool, 'pooled', lambda *x: seen.extend((pooled(*x), x[1])) or seen[0])
  variables = dict(params=params, batch_stats=dict(label=fresh()))
  return jax.jit(lambda variables: (model.apply(variables, batch), *seen))(variables)


@mutation('self.pooled or np.iinfo(np.int32).max', 'np.iinfo(np.int32).max')
def test_texts_of_any_length_are_pooled_as_each_alone_by_fastai(golden, monkeypatch):
  """fastai's own padded batch gives some texts other features than they have alone."""
  token_BT, size_B = golden['clas/input'], golden['clas/lengths']
  tokens = [row_T[row_T != 1] for row_T in token_BT]
  right_BT = np.stack([np.pad(t, (0, 20 - len(t)), constant_values=1) for t in tokens])
  batch = dict(token_BT=right_BT, example_BT=(np.arange(20)[None] < size_B[:, None]).astype(int))
  params = classifier_params(golden)
  out, pooled_BD, _ = pooled_by(monkeypatch, classifier(golden), params, batch)
  np.testing.assert_allclose(pooled_BD, golden['clas/pooled_alone'], atol=3e-7)
  whole = size_B == 20
  want = golden['clas/logits'][whole]
  np.testing.assert_allclose(out['label_BGC']['label'][whole, 0], want, atol=3e-7)


@mutation('model.batch_statistics and config.microbatches > 1', 'False')
def test_microbatches_are_refused_where_rows_know_of_each_other(golden):
  model = dict(config_of(golden).model, **CHUNKS)
  config = ConfigDict(dict(model=model, objective=dict(name='classify'), microbatches=2))
  with pytest.raises(UserError, match='expected config.microbatches=1, got 2'):
    label_model(config)


@mutation('start_T[None] >= first_B[:, None]', 'start_T[None] > first_B[:, None]')
def test_the_first_program_pools_what_one_column_less_pools(golden, monkeypatch):
  sizes = (11, 12, 13, 18, 20, 25)
  example_BT = (np.arange(25)[None] < np.array(sizes)[:, None]).astype(int)
  batch = dict(token_BT=example_BT, example_BT=example_BT)
  model = classifier(golden, pooled=11)
  _, _, kept_BT = pooled_by(monkeypatch, model, classifier_params(golden), batch)
  assert kept_BT.sum(1).tolist() == [golden[f'old_clas/kept/{size}'] for size in sizes]


def test_padding_in_front_is_read_as_the_first_program_reads_it(golden):
  token_BT = golden['old_clas/input_TB'].T
  params = encoder(golden, 'old_clas/param/0.')
  params['label'] = head_of(golden, 'old_clas/param/1.layers.', 'bn', 'lin')
  variables = dict(params=params, batch_stats=dict(label=fresh()))
  batch = dict(token_BT=token_BT, example_BT=np.ones_like(token_BT))
  out = classifier(golden).apply(variables, batch)
  np.testing.assert_allclose(out['label_BGC']['label'][:, 0], golden['old_clas/logits'], atol=5e-7)


@mutation("turned(batch['token_BT'][..., None])[..., 0], real_BT", "batch['token_BT'], real_BT")
@mutation('(dict(hidden_LBTD=out[', '(dict(hidden_LBTD=2 * out[')
@mutation("turned(out[key]) for key in ('last_BTD', ", "out[key] for key in ('last_BTD', ")
def test_a_text_read_backward_is_as_the_text_in_the_other_order_read_forward(golden):
  size_B = np.array([5, 9, 2])
  example_BT = (np.arange(9)[None] < size_B[:, None]).astype(np.int32)
  token_BT = golden['lm/input_SBT'][0] * example_BT
  other_BT = token_BT.copy()
  for row_T, size in zip(other_BT, size_B, strict=True):
    row_T[:size] = row_T[:size][::-1]
  forward = dict(token_BT=token_BT, example_BT=example_BT)
  params = ours(golden, 'lm/param/') | dict(label=head_of(golden))
  variables = dict(params=params, batch_stats=dict(label=fresh()))
  config = config_of(golden).model
  for fields in ({}, dict(CHUNKS, head_dropout=0.0, inner_dropout=0.0)):
    found, want = (
      jax.jit(
        lambda batch, model: model.apply(variables, batch, True, method='read'), static_argnums=1
      )(batch, awd_lstm.MODEL.make(ConfigDict(dict(config, backward=backward, **fields))))
      for backward, batch in ((True, forward), (False, dict(forward, token_BT=other_BT)))
    )
    for row, size in enumerate(size_B):
      for name in ('last_BTD', 'embedded_BTD'):
        np.testing.assert_array_equal(found[name][row, :size], want[name][row, :size][::-1])
      np.testing.assert_array_equal(
        found['hidden_LBTD'][0, row, :size], want['hidden_LBTD'][0, row, :size][::-1]
      )
    if fields:
      jax.tree.map(np.testing.assert_array_equal, found['label_BGC'], want['label_BGC'])
  model = awd_lstm.MODEL.make(ConfigDict(dict(config, backward=True)))
  with pytest.raises(UserError, match='backward=True predicts the token before'):
    model.apply(variables, dict(forward, target_pos_BP=token_BT), method='word_scores')


@pytest.mark.full
@mutation('states = jax.lax.stop_gradient(states)', 'states = states')
@mutation('dropout_lib.mix(noise.seed, number)', 'noise.seed')
def test_a_piece_has_its_own_dropout_and_no_gradient_goes_before_it(golden):
  model = classifier(golden)
  token_BT = np.arange(2, 20)[None]
  batch = dict(token_BT=token_BT, example_BT=np.ones_like(token_BT))
  batch['example_weight_BG'] = np.ones((1, 1), np.float32)
  params, stats = classifier_params(golden), dict(label=fresh())

  def score(params, noise=None):
    out = model.apply(dict(params=params, batch_stats=stats), batch, noise, True)
    return jnp.sum(out['label_BGC']['label'][..., 0]), out['embedded_BTD']

  grad_VD = np.abs(jax.grad(score, has_aux=True)(params)[0]['word'])
  assert grad_VD[2:8].max() == 0 and grad_VD[8:20].max(1).min() > 0
  noise = Noise(jnp.uint32(5), jnp.zeros(1, jnp.uint32))
  dropped_TD = np.asarray(score(params, noise)[1][0]) == 0
  first, second = dropped_TD[:6].any(0) & dropped_TD[:6].all(0), dropped_TD[6:12].all(0)
  assert (first != second).any()
