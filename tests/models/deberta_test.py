"""DeBERTa against PyTorch `transformers` (float32): the encoder by its classes, the generator's
decoder by its layers, and the discriminator's head and word table by their formulas."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import parity
import pytest
import state_dicts
import torch_models
from adopting import begun
from flax.core import meta
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import torch
from torch_models import state_of

from bertjax import models
from bertjax.errors import UserError
from bertjax.export import exporting
from bertjax.formats import directory
from bertjax.kernels.cross_entropy import logits
from bertjax.models import deberta_v3
from bertjax.objectives import rtd
from bertjax.train.step import with_rows

# Heads of 12; rows are longer than the 8 buckets of one distance each.
ODD = dict(layers=4, width=36, heads=3, ffn=52, buckets=16, generator_head=12, init_std=0.1)


FULL = pytest.mark.full


def pair(**model):
  return cases.config('deberta_v3', **(ODD | model))


def encoder(**model):
  """One net, which predicts words."""
  c = pair()
  c.model = ConfigDict(dict(deberta_v3.MODEL.encoder.model(c.model), words=True) | model)
  c.objective = ConfigDict(dict(name='mlm', plus=0.0))
  return c


@pytest.mark.parametrize(
  'model', [{}, pytest.param(dict(layers=3, remat='full'), marks=pytest.mark.full)], ids=str
)
@mutation('np.where(np.abs(distance) <= half, distance, shared)', 'distance')
@mutation('in (attention.key, attention.query)', 'in (attention.query, attention.key)')
@mutation('return (3 * head_size) ** -0.5', 'return head_size**-0.5')
@mutation('Context(mask, table_RD=norm(table_KD))', 'Context(mask, table_RD=table_KD)')
def test_the_encoder_is_that_of_transformers(model):
  """Hidden states, logits, loss and every leaf's gradient."""
  c = encoder(**model)
  theirs = torch_models.like(c.model, 'DebertaV2ForMaskedLM')
  batch = cases.batch([[n] for n in parity.LENGTHS], parity.LENGTH, types=1)
  parity.compare(c, state_of(theirs), batch, theirs)


@mutation('p_RNH=p_RNH[bucket_R], far', 'far')
def test_what_a_layer_attends_with_is_theirs():
  c = encoder(words=False)
  theirs = torch_models.like(c.model, 'DebertaV2Model')
  params = state_dicts.from_huggingface(state_of(theirs), c.model)
  batch, model = cases.batch([[32]], 32, types=1), models.build(c.model)
  tensor = torch.tensor(batch['token_BT']).long()
  wanted = theirs(tensor, output_attentions=True).attentions[2].detach().numpy()
  variables = dict(params=params)
  out = model.apply(variables, batch, hidden=True)
  found = model.apply(variables, out, batch, 2, method='attends')
  np.testing.assert_allclose(found, wanted, atol=1e-5)


def their_generator(c, batch):
  """The generator of a pair as transformers' layers make it: all but the last as they are, then the
  last one twice, from the states with absolute positions added to the states (Microsoft's
  masked_language_model.py). Returns it, its positions and its logits."""
  wanted = encoder(layers=c.model.layers // 2)
  net = torch_models.like(wanted.model, 'DebertaV2ForMaskedLM')
  torch.manual_seed(1)
  positions = torch.nn.Parameter(torch.randn(c.model.positions, c.model.width) * 0.3)
  body, real = net.deberta.encoder, torch.tensor(batch['example_BT'] > 0)
  x = net.deberta.embeddings(torch.tensor(batch['token_BT']).long(), mask=real)
  mask, table = body.get_attention_mask(real), body.get_rel_embedding()
  places = body.get_rel_pos(x)
  run = lambda layer, x, query=None: layer(
    x, mask, query_states=query, relative_pos=places, rel_embeddings=table
  )[0]
  for layer in body.layer[:-1]:
    x = run(layer, x)
  query = x + positions[None, : x.shape[1]]
  for _ in range(2):
    query = run(body.layer[-1], x, query)
  head = net.lm_predictions.lm_head(query, net.deberta.embeddings.word_embeddings)
  return net, positions, head


def pair_of(c, generator, positions, judge, head):
  """Parameters of a pair, by state dicts of its nets and parameters of the judge's head."""
  named = lambda state, **model: state_dicts.from_huggingface(state, encoder(**model).model)
  made = named(generator, layers=c.model.layers // 2)
  judged = named(judge, words=False)
  params = dict(
    word=made['embeddings']['word'],
    embeddings=dict(norm=judged['embeddings']['norm']),
    generator_embeddings=dict(norm=made['embeddings']['norm']),
    generator_net=dict(made['encoder'], absolute=positions),
    discriminator=judged['encoder'],
    mlm=made['mlm'],
    rtd=head,
  )
  own = judged['embeddings']['word']
  if not c.model.tied_embeddings:
    params['own_word'] = own
  elif c.model.disentangled:
    params['difference'] = own - params['word']
  return params


@mutation('place[position_BT]', '0 * place[position_BT]')
@mutation('PASSES = 2', 'PASSES = 1')
@mutation('seen = context._replace(other_BSD=x_BTD)', 'seen = context')
@mutation('x_BTD = x_BTD + gather_positions(x_BTD, first_BT)', 'x_BTD = 2 * x_BTD')
def test_both_nets_are_those_of_the_original():
  """Logits of the generator at its targets, and of the discriminator at every token."""
  c, batch = pair(), cases.batch([[17], [32]], 32, types=1)
  generator, positions, wanted = their_generator(c, batch)
  judge = torch_models.like(encoder(words=False).model, 'DebertaV2Model', seed=3)
  torch.manual_seed(5)
  width = c.model.width
  norm, dense, out = (
    torch.nn.LayerNorm(width, 1e-7),
    torch.nn.Linear(width, width),
    torch.nn.Linear(width, 1),
  )
  transposed = lambda layer: dict(
    kernel=layer.weight.detach().numpy().T, bias=layer.bias.detach().numpy()
  )
  ones = dict(scale=norm.weight.detach().numpy(), bias=norm.bias.detach().numpy())
  head = dict(norm=ones, dense=transposed(dense), out=transposed(out))
  params = pair_of(c, state_of(generator), positions.detach().numpy(), state_of(judge), head)
  model, variables = models.build(c.model), dict(params=params)
  shapes = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), batch))['params']
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda x: x.shape, shapes)

  scores = jax.jit(lambda v, b: model.apply(v, b, None, method='generate'))(variables, batch)
  used_BP = batch['weight_BP'] > 0
  row_BP = np.broadcast_to(np.arange(2)[:, None], used_BP.shape)
  there = wanted.detach().numpy()[row_BP, batch['target_pos_BP']][used_BP]
  here = np.asarray(logits(scores))[used_BP][:, : cases.VOCAB]
  np.testing.assert_allclose(here, there, atol=parity.LOGITS)

  real_BT = batch['example_BT'] > 0
  h = judge(torch.tensor(batch['token_BT']).long(), attention_mask=torch.tensor(real_BT))[0]
  there = out(torch.nn.functional.gelu(dense(norm(h[:, :1] + h))))[..., 0].detach().numpy()
  found = jax.jit(lambda v, b: model.apply(v, b, None, method='discriminate'))(variables, batch)
  np.testing.assert_allclose(
    np.asarray(found['rtd_BT'])[real_BT], there[real_BT], atol=parity.LOGITS
  )


@pytest.mark.parametrize('of_hub', [False, True], ids=['a directory', 'the file of the hub'])
@mutation('difference=own_VE - found', 'difference=0 * found', case='a directory')
@mutation("tables = dict(params['generator_emb", "tables = dict(params['emb", case='a directory')
@mutation("params['encoder']['absolute'] = state[PLACES]", 'pass',
          file='bertjax/formats/directory.py', case='the file of the hub')  # fmt: skip
def test_a_pair_of_transformers_begins_a_run(of_hub, tmp_path):
  """The generator lies in a directory of its own, or in the hub's file, which has the decoder."""
  c = pair(decoder=of_hub)
  judge = torch_models.like(encoder(words=False).model, 'DebertaV2Model', seed=3)
  made = torch_models.like(encoder(layers=2).model, 'DebertaV2ForMaskedLM')
  judge.save_pretrained(tmp_path / 'hf')
  place_TE = torch.randn(c.model.positions, c.model.width)
  if of_hub:
    state = {**made.state_dict(), directory.PLACES: place_TE}
    torch.save(state, tmp_path / 'hf' / directory.GENERATOR)
  else:
    made.save_pretrained(tmp_path / 'hf' / directory.APART)
  c.init_from = f'hf:{tmp_path / "hf"}'
  batch, model = cases.batch([[17], [32]], 32, types=1), models.build(c.model)
  variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), batch))
  assert not variables['params']['difference'].any()
  new, said = begun(c, None, variables)
  assert any('has none of them: rtd' in line for line in said), said
  params, word = new['params'], lambda net: net.get_input_embeddings().weight.detach().numpy()
  vocab = slice(cases.VOCAB)
  np.testing.assert_array_equal(params['word'][vocab], word(made))
  own_VE = params['word'] + params['difference']
  np.testing.assert_allclose(own_VE[vocab], word(judge), rtol=1e-6, atol=1e-7)
  tokens, real = torch.tensor(batch['token_BT']).long(), batch['example_BT'] > 0
  wanted = judge(tokens, attention_mask=torch.tensor(real))[0].detach().numpy()
  found = model.apply(new, batch, None, method='discriminate')['last_BTD']
  np.testing.assert_allclose(found[real], wanted[real], atol=parity.HIDDEN)
  if of_hub:
    np.testing.assert_array_equal(params['generator_net']['absolute'], place_TE)
    c.model.decoder = False
    with pytest.raises(UserError, match='in the enhanced mask decoder: expected .*decoder=True'):
      begun(c, None, variables)
    return
  there = made(tokens, attention_mask=torch.tensor(real))[0].detach().numpy()
  here = np.asarray(logits(model.apply(new, batch, None, method='generate')))
  used_BP = batch['weight_BP'] > 0
  row_BP = np.broadcast_to(np.arange(2)[:, None], used_BP.shape)
  np.testing.assert_allclose(
    here[used_BP][:, vocab], there[row_BP, batch['target_pos_BP']][used_BP], atol=parity.LOGITS
  )
  written = {part.folder: part for part in exporting.parts_of(c.model)}
  assert written[''].left_out[0].endswith('with the heads replaced')
  for folder, net in {'': judge, directory.APART: made}.items():
    part = written[folder]
    found = state_dicts.to_huggingface(part.select(params), part.model)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    jax.tree.map(close, found, state_of(net))


@pytest.mark.parametrize(
  'table, gets',
  [
    ({}, dict(word='generator', difference='discriminator')),
    pytest.param(dict(disentangled=False), dict(word='generator discriminator'), marks=FULL),
    pytest.param(
      dict(tied_embeddings=False), dict(word='generator', own_word='discriminator'), marks=FULL
    ),
  ],
  ids=['gdes', 'es', 'nes'],
)
@mutation('jax.lax.stop_gradient(self.word) + self', 'self.word + self', case='gdes')
@mutation('word_VE = self.own_word', 'word_VE = self.word + 0 * self.own_word', case='nes')
def test_a_word_table_has_gradients_of_its_own_nets_alone(table, gets):
  """And every layer has those of its own net."""
  c, batch = pair(**table), cases.batch([[20], [9, 11]], 20, types=1)
  objective = rtd.make(c)
  params = cases.variables(objective.init, batch)['params']
  assert {name for name in params if name.endswith(('word', 'difference'))} == {*gets}

  @jax.jit
  @jax.jacrev
  def gradients(params):
    terms = objective.loss(dict(params=params), (), with_rows(batch), parity.STILL).terms
    return dict(generator=terms['mlm'].total, discriminator=terms['rtd'].total)

  of_net = gradients(params)
  for name, its_net in (('generator_net', 'generator'), ('discriminator', 'discriminator')):
    layers = jax.tree.leaves(of_net[its_net][name]['layers'])
    assert all(np.any(layer) for leaf in layers for layer in leaf), name
  reached = jax.tree.map(lambda x, y: np.any(x) or np.any(y), *of_net.values())
  assert jax.tree.all(reached), reached
  for net, found in of_net.items():
    for name, nets in gets.items():
      assert bool(np.any(found[name])) == (net in nets.split()), (net, name)
    ours = {'generator': 'generator_net', 'discriminator': 'discriminator'}
    for other, subtree in ours.items():
      moved = any(np.any(leaf) for leaf in jax.tree.leaves(found[subtree]))
      assert moved == (other == net), (net, subtree)
