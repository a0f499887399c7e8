"""ELECTRA's step against PyTorch `transformers`: its two classes, trained jointly on what our
generator drew (eager attention, float32, evaluation mode)."""

import functools

import cases
import jax
import numpy as np
import pytest
import state_dicts
import torch_models
from ml_collections import ConfigDict
from mutation import mutation
from parity import (
  HIDDEN,
  LENGTH,
  LENGTHS,
  LOGITS,
  LOSS,
  close,
  close_gradients,
  gradients_of,
  loss_of,
)
from slow_imports import rivals, torch

from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.dropout import noise_from_key
from bertjax.models import electra
from bertjax.objectives import rtd
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.train.step import with_rows

mutation('> 0, fake_BT != original_BT', "> 0, fake_BT != batch['token_BT']")
mutation(
  "real_BT, replaced_BT = batch['example_BT'] > 0,",
  "real_BT, replaced_BT = (batch['example_BT'] > 0) & (batch['position_BT'] > 0),",
)


def small_net(c):
  """`config.model` of the generator by itself, and what takes its parameters."""
  part = electra.beside(c.model)['generator']
  return ConfigDict(part.model(c.model)), part.select


def torch_pair(c):
  """(generator, discriminator) with random weights; one embedding module if tied."""
  own = dict(hidden_act='gelu', pad_token_id=0)
  judge = torch_models.like(c.model, 'ElectraForPreTraining', **own)
  made, _ = small_net(c)
  generator = torch_models.like(made, 'ElectraForMaskedLM', seed=1, **own)
  if c.model.tied_embeddings:
    generator.electra.embeddings = judge.electra.embeddings
    generator.generator_lm_head.weight = judge.electra.embeddings.word_embeddings.weight
  return generator, judge


def ours_of(generator, judge, c) -> dict:
  """State dicts of the two, of weights or of gradients, as our parameters."""
  judged = state_dicts.from_huggingface(judge, c.model)
  generated = state_dicts.from_huggingface(generator, small_net(c)[0])
  return state_dicts.electra(judged, generated, c.model)


def torch_step(generator, judge, batch, fake_BT, weight):
  """Outputs of both and the gradients of mlm + weight * rtd."""
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  real_BT = batch['example_BT'] > 0
  labels_BT = np.full(real_BT.shape, -100)
  original_BT = np.array(batch['token_BT'])
  for b, p in zip(*np.nonzero(batch['weight_BP']), strict=True):
    labels_BT[b, batch['target_pos_BP'][b, p]] = batch['target_BP'][b, p]
  original_BT = np.where(labels_BT >= 0, labels_BT, original_BT)
  common = dict(attention_mask=tensor(real_BT), token_type_ids=tensor(batch['type_BT']))
  made = generator(tensor(batch['token_BT']), labels=tensor(labels_BT), **common)
  judged = judge(
    tensor(fake_BT), labels=tensor(fake_BT != original_BT), output_hidden_states=True, **common
  )
  (made.loss + weight * judged.loss).backward()
  return made, judged, original_BT


def fakes(c, params, batch):
  """What the objective makes of the batch, by its parts."""
  model = electra.make(c.model)
  noise = noise_from_key(jax.random.key(0), with_rows(batch)['row_B'])

  def drawn(params):
    scores = model.apply(dict(params=params), batch, None, method=model.generate)[:3]
    id_BP = rtd.draw(Scores(*scores, c.model.vocab_size), batch, noise, 1.0)
    return rtd.replace(batch['token_BT'], id_BP, batch)

  return np.asarray(jax.jit(drawn)(params))


def compare(c, generator, judge, batch):
  params = ours_of(torch_models.state_of(generator), torch_models.state_of(judge), c)
  fake_BT = fakes(c, params, batch)
  made, judged, original_BT = torch_step(generator, judge, batch, fake_BT, 50.0)
  (loss, ours), grads = gradients_of(rtd.make(c), batch)(params)
  means = {name: term.total / term.weight for name, term in ours.terms.items()}
  real_BT = batch['example_BT'] > 0
  read = jax.jit(functools.partial(electra.make(c.model).apply, method='read'))
  out = read(dict(params=params), dict(batch, token_BT=fake_BT))
  for layer, theirs in enumerate(judged.hidden_states[1:]):
    ours = np.asarray(out['hidden_LBTD'][layer])
    close(ours[real_BT], theirs.detach().numpy()[real_BT], HIDDEN, f'hidden state {layer}')
  close(
    np.asarray(out['rtd_BT'])[real_BT], judged.logits.detach().numpy()[real_BT], LOGITS, 'logits'
  )
  predicted = jax.jit(rtd.make(c).predict)(dict(params=params), (), batch)
  made_BPV = predicted['logits_BPV'][..., : cases.VOCAB]
  rows = np.arange(len(real_BT))[:, None]
  theirs_BPV = made.logits.detach().numpy()[rows, batch['target_pos_BP']]
  some_B = real_BT.any(1)  # others are padding alone
  close(np.asarray(made_BPV)[some_B], theirs_BPV[some_B], LOGITS, 'words')
  assert abs(float(means['rtd']) - judged.loss.item()) <= LOSS * judged.loss.item()
  assert abs(float(means['mlm']) - made.loss.item()) <= LOSS * made.loss.item()
  theirs = made.loss.item() + 50 * judged.loss.item()
  assert abs(float(loss) - theirs) <= LOSS * theirs

  of = lambda model: {k: p.grad.numpy() for k, p in model.named_parameters()}
  close_gradients(grads, ours_of(of(generator), of(judge), c))
  return fake_BT, original_BT


def make_case(**fields):
  c = cases.config('electra', **fields)
  batch = cases.batch([[n] for n in LENGTHS], LENGTH)
  return (c, *torch_pair(c), batch)


FULL = pytest.mark.full
# 3 heads of 12 and of 4.
ODD = dict(
  layers=3, width=36, heads=3, ffn=52, positions=45, types=3, embedding_width=20,
  generator_width=1 / 3, generator_head=4,
)  # fmt: skip


@pytest.mark.parametrize(
  'fields',
  [
    pytest.param({}, id='projected'),
    pytest.param(dict(embedding_width=64, generator_width=0.5), id='base', marks=FULL),
    pytest.param(dict(tied_embeddings=False, generator_width=0.5), id='untied', marks=FULL),
    pytest.param(ODD, id='odd', marks=FULL),
  ],
)
@mutation("[jnp.minimum(batch['type_BT'], self.types - 1)]", "[jnp.minimum(batch['type_BT'], 1)]")
def test_the_joint_step_equals_transformers(fields):
  c, *pair, batch = make_case(**fields)
  if fields is ODD:  # all positions are used, and a row is padding alone
    batch = cases.batch([[17], [45], [], [9]], 45, types=3)
  fake_BT, original_BT = compare(c, *pair, batch)
  assert (fake_BT != original_BT).sum() >= 10


def test_generator_and_discriminator_are_written_for_their_classes():
  c, *pair, _ = make_case()
  wanted = [torch_models.state_of(model) for model in pair]
  params, (made, select) = ours_of(*wanted, c), small_net(c)
  found = [
    state_dicts.to_huggingface(select(params), made),
    state_dicts.to_huggingface(params, c.model),
  ]
  jax.tree.map(np.testing.assert_array_equal, found, wanted)


@mutation('judged = self.judge(fake,', 'judged = self.judge(input_ids,')
def test_the_rival_of_the_bench_has_our_model_and_our_loss(monkeypatch):
  c = cases.config('electra', dropout=0.0, attention_dropout=0.0).copy_and_resolve_references()
  c.batch_size, c.length = 4, 32
  batch = synthetic_batch(c)
  again_BP = np.diff(batch['target_pos_BP'], axis=1, prepend=-1) == 0
  batch['weight_BP'][again_BP] = 0  # the rival has one target at a position
  assert batch['target_BP'].shape == (4, 4)  # int(.155 * 32), ELECTRA's slots
  rival = rivals.make(c)
  inputs = rivals.inputs_of(c, batch)
  nets = (torch_models.state_of(net) for net in (rival.generator, rival.judge))
  params = ours_of(*nets, c)
  loss, _ = loss_of(rtd.make(c), batch)(params)
  fake_BT = fakes(c, params, batch)
  drawn = fake_BT[inputs['labels'].numpy() >= 0].reshape(-1, 1)
  monkeypatch.setattr('torch.multinomial', lambda p, n: torch.tensor(drawn, dtype=torch.long))
  with torch.no_grad():
    theirs = rival(**inputs).loss.item()
  assert abs(float(loss) - theirs) <= LOSS * theirs
