"""The step bench: the rivals get the same model and batch."""

import importlib
import os
import pathlib
import sys

import cases
import jax
import numpy as np
import pytest
import state_dicts
from mutation import mutation
from slow_imports import rivals, torch
from tiers import in_tiers

from bertjax import bench
from bertjax.errors import UserError
from bertjax.objectives import plm
from bertjax.tools.bench.parts import own_step, timing
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context


def make_config(family: str):
  c = cases.config(family).copy_and_resolve_references()
  c.model.update({name: 0.0 for name in ('dropout', 'attention_dropout') if name in c.model})
  c.batch_size, c.length = 8, 32  # a row for each simulated device
  return c


@pytest.mark.parametrize('family', in_tiers(['bert', 'roberta', 'gpt', 't5'], ['roberta', 't5']))
@mutation("batch['target_BU'], -100", "batch['out_token_BU'], -100", case='t5')
@mutation("batch['example_BT'] > 0, batch", "batch['token_BT'] > 0, batch", case='gpt')
def test_the_rival_has_our_model_and_our_loss(family):
  c = make_config(family)
  batch = synthetic_batch(c)
  if family == 'gpt':  # whose id 0 is a word
    batch['token_BT'][:, 5] = 0
    batch['target_BP'][:, 4] = 0
  model = rivals.make(c)
  state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
  params = state_dicts.from_huggingface(state, c.model)
  objective = own_step.objective_of(c)
  ctx = Context(jax.random.key(0), np.int32(0), train=True)
  loss = lambda params: objective.loss(dict(params=params), (), with_rows(batch), ctx).terms
  terms = jax.jit(loss)(params)
  terms.pop('z_loss', None)  # which theirs has not
  ours = trained_loss(terms, {name: term.weight for name, term in terms.items()})
  with torch.no_grad():
    theirs = model(**rivals.inputs_of(c, batch)).loss.item()
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def losses(c, objective, params, model, batch):
  """Ours and the rival's in two steps, with states."""
  ctx, carry = Context(jax.random.key(0), np.int32(0), train=True), objective.carry(batch)
  loss = jax.jit(lambda carry, batch: objective.loss(dict(params=params), carry, batch, ctx))
  for _ in range(2):
    terms, carry, _ = loss(carry, with_rows(batch))
    ours = trained_loss(terms, {name: term.weight for name, term in terms.items()})
    with torch.no_grad():
      yield ours, model(**rivals.inputs_of(c, batch)).loss.item()


@pytest.mark.full
def test_xlnets_rival_has_our_model_our_loss_and_our_memory():
  c = cases.config('xlnet', dropout=0.0, attention_dropout=0.0)
  c.batch_size, c.length = 2, 48
  c = c.copy_and_resolve_references()
  batch = synthetic_batch(c)
  assert batch['weight_BP'].shape == (2, 8) and batch['direction_B'].tolist() == [1, -1]
  model = rivals.make(c)
  state = {k: v.detach().numpy() for k, v in model.inner.state_dict().items()}
  params = jax.tree.map(jax.numpy.asarray, state_dicts.from_huggingface(state, c.model))
  # Both begin with a memory of zeros that are attended to.
  for ours, theirs in losses(c, plm.make(c), params, model, batch):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@mutation('generator.deberta.embeddings.word_embeddings = words', 'del words')
def test_debertas_rival_has_our_parameters_but_the_decoders_positions():
  c = cases.config('deberta_v3', disentangled=False, vocab_size=256)  # no padded rows
  c = own_step.sized(c, 2, 16)
  sizes = own_step.footprint(c, synthetic_batch(c))
  model = rivals.make(c)
  theirs = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
  assert sizes['parameters'] == theirs + c.model.positions * c.model.width
  assert np.isfinite(model(**rivals.inputs_of(c, synthetic_batch(c))).loss.item())


def put(to, x):
  to.data.copy_(torch.tensor(np.array(x)))


def gates(x):
  """torch's order, input, forget, new, output, in front."""
  x = np.asarray(x)
  return np.moveaxis(x[..., [0, 2, 1, 3], :], 0, -1).reshape(4 * x.shape[-1], -1)


@pytest.mark.full
@mutation('x, state = layer(*given)', 'x, state = layer(x)')
@mutation("if key.endswith('dropout')}\n  model", "if key == 'dropout'}\n  model")
def test_awd_lstms_rival_has_our_model_and_our_loss_where_nothing_is_dropped():
  c = cases.config('ulmfit')
  c.data.plan.drawn = 0
  c.model.update(ar=0.0, tar=0.0)
  c = own_step.sized(c, 4, 8)
  own_step.drop_nothing(c.model)
  batch, objective = synthetic_batch(c), own_step.objective_of(c)
  params = cases.variables(objective.init, batch, std=0.3)['params']
  model = rivals.make(c)
  put(model.words.weight, params['word'][: c.model.vocab_size])
  for number, lstm in enumerate(model.layers):
    own = params[f'lstm_{number}']
    put(lstm.weight_ih_l0, gates(own['input']))
    put(lstm.weight_hh_l0, gates(own['state']))
    put(lstm.bias_ih_l0, np.asarray(own['bias'])[[0, 2, 1, 3]].reshape(-1))
    put(lstm.bias_hh_l0, np.asarray(own['state_bias'])[[0, 2, 1, 3]].reshape(-1))
  for ours, theirs in losses(c, objective, params, model, batch):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.full
@pytest.mark.filterwarnings('ignore:LSTM with projections is not supported:UserWarning')
@mutation('x = y + dropped if number else y', 'x = y')
@mutation('c = c.clamp(-of_cell, of_cell)', 'c = c', case='0.2')
@mutation('.clamp(-of_output, of_output)', '', case='0.2')
@pytest.mark.parametrize('clip', [0.0, 0.2])
def test_elmos_rival_has_our_model_and_our_loss(clip):
  c = cases.config('elmo', dropout=0.0, cell_clip=clip, projection_clip=clip)
  c.objective.sampled = 0
  c = own_step.sized(c, 4, 8)
  batch, objective = synthetic_batch(c), own_step.objective_of(c)
  params = cases.variables(objective.init, batch, std=0.3)['params']
  model = rivals.make(c)
  # torch has no bias of its own on the forget gate.
  for number, lstm in enumerate(model.layers):
    own = params[f'{("forwards", "backwards")[number // 2]}_{number % 2}']
    bias = np.asarray(own['bias'])[[0, 2, 1, 3]] + np.eye(4)[1][:, None]
    if clip:
      both = np.concatenate([gates(own['input']), gates(own['state'])], 1)
      put(lstm.gates.weight, both.reshape(4, -1, both.shape[1])[[0, 2, 1, 3]].reshape(both.shape))
      put(lstm.gates.bias, np.asarray(own['bias']).reshape(-1))
      put(lstm.project.weight, np.asarray(own['projection']).T)
      continue
    put(lstm.weight_ih_l0, gates(own['input']))
    put(lstm.weight_hh_l0, gates(own['state']))
    put(lstm.weight_hr_l0, np.asarray(own['projection']).T)
    put(lstm.bias_ih_l0, bias.reshape(-1))
    put(lstm.bias_hh_l0, 0 * bias.reshape(-1))
  spelled, words = params['spelled'], c.model.vocab_size
  put(model.letters.weight[:261], spelled['characters'])
  for number, conv in enumerate(model.filters):
    put(conv.weight, np.transpose(spelled[f'filter_{number}'], (2, 1, 0)))
    put(conv.bias, spelled[f'filter_{number}_bias'])
  for number, linear in enumerate(model.highways):
    both = [spelled[f'{name}_{number}'] for name in ('carry', 'transform')]
    put(linear.weight, np.concatenate([np.asarray(each['kernel']).T for each in both]))
    put(linear.bias, np.concatenate([each['bias'] for each in both]))
  put(model.words.weight, np.asarray(spelled['projection']['kernel']).T)
  put(model.words.bias, spelled['projection']['bias'])
  put(model.softmax.weight, params['softmax'][:words])
  put(model.bias, params['head']['bias'][:words])
  for ours, theirs in losses(c, objective, params, model, batch):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize('family', ['bert', 'roberta'])
@mutation('(given[0][row_n, column_n],)', '(given[0][row_n, column_n * 0],)')
def test_the_logits_of_the_targets_alone_give_the_same_loss(family):
  c = make_config(family)
  model, inputs = rivals.make(c), rivals.inputs_of(c, synthetic_batch(c))
  with torch.no_grad():
    whole = model(**inputs).loss
    labels_n = rivals.gather_targets(model.get_submodule(rivals.HEADS[family]), inputs['labels'])
    out = model(**dict(inputs, labels=labels_n))
  logits = out.prediction_logits if family == 'bert' else out.logits
  assert logits.shape == (len(labels_n), c.model.vocab_size) and len(labels_n) < 8 * 32
  np.testing.assert_allclose(out.loss, whole, rtol=1e-6)


@pytest.mark.full
@pytest.mark.filterwarnings('ignore:.*torch.jit.script_method:DeprecationWarning')
def test_a_compiled_rival_learns_as_the_plain_one_does():
  c = make_config('bert')
  batch = synthetic_batch(c)
  losses = {}
  for arm in ('transformers', 'gathered', 'compiled'):
    call = rivals.make_step(c, batch, arm)
    losses[arm] = [float(call()) for _ in range(3)]
  assert losses['transformers'][2] < losses['transformers'][0]
  np.testing.assert_allclose(losses['gathered'], losses['transformers'], rtol=1e-5)
  np.testing.assert_allclose(losses['compiled'], losses['transformers'], rtol=1e-4)


def _appends(path: str):
  def call():
    with open(path, 'a') as file:
      file.write(f'{os.getpid()}\n')
    if len(pathlib.Path(path).read_text().split()) == 3:
      raise ValueError('three')

  return call


def test_an_arm_of_another_process_is_called_there_and_its_error_raised_here(tmp_path):
  path = tmp_path / 'calls'
  with timing.apart(_appends, str(path)) as call:
    call()
    call()
    first, second = path.read_text().split()
    assert first == second != str(os.getpid())
    with pytest.raises(ValueError, match='three'):
      call()


@mutation("not in ('torch', 'transformers')", "not in ('torch', 'transformer')")
def test_a_rival_that_is_not_installed_is_said_in_a_line(monkeypatch):
  name = 'bertjax.tools.bench.parts.rivals'
  monkeypatch.setitem(sys.modules, 'transformers', None)
  monkeypatch.delitem(sys.modules, name, raising=False)
  with pytest.raises(UserError, match='what transformers computes, .*: pip install torch transf'):
    with bench._rivals():
      importlib.import_module(name)
  with pytest.raises(ModuleNotFoundError, match='elsewhere'), bench._rivals():
    importlib.import_module('elsewhere')
