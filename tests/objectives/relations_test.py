"""How tokens relate in a layer of the teacher, against the formulas of the papers in PyTorch."""

import math

import cases
import jax
import numpy as np
import parity
import pytest
import taught_models
from mutation import mutation
from slow_imports import F, torch

from bertjax.errors import UserError
from bertjax.objectives import relations, teaching
from configs.distill import minilm

OTHER_HEADS = dict(relation_heads=6, layer=1)


def config(version='l6_h384', student=(), **objective):
  return taught_models.config(dict(minilm.get_config(version).objective) | objective, student)


def kl(wanted_BNTS, found_BNTS, batch):
  """The mean over heads and real queries of the divergence of probabilities."""
  part = F.kl_div(found_BNTS.clamp_min(1e-30).log(), wanted_BNTS, reduction='none').sum(-1)
  real_BT = torch.tensor(batch['example_BT'] > 0)
  return part.mean(1)[real_BT].mean()


def relation(one_BTD, other_BTD, heads, batch):
  """softmax(A B^T / sqrt(d)) over the keys that are no padding."""
  split = lambda x: torch.stack(x.chunk(heads, -1), 1)
  scores = split(one_BTD) @ split(other_BTD).mT / math.sqrt(one_BTD.shape[-1] // heads)
  padding_BS = torch.tensor(batch['example_BT'] == 0)
  return scores.masked_fill(padding_BS[:, None, None], float('-inf')).softmax(-1)


@mutation('product_BNTS / math.sqrt(one_BTNH.shape[-1])', 'product_BNTS / 1.0')
@mutation('sees_BTS[:, None], scaled_BNTS, unseen', 'sees_BTS[:, None], scaled_BNTS, scaled_BNTS')
@mutation("['example_BT'] > 0", "['example_BT'] >= 0", file='bertjax/objectives/relations.py')
@mutation('return jnp.mean(error', 'return jnp.sum(error')
@mutation("out['hidden_LBTD'][layer - 1] if layer", "out['hidden_LBTD'][layer - 2] if layer > 1")
@mutation('return product_LBTNH + bias_LNH', 'return product_LBTNH + 0.0 * bias_LNH')
def test_the_last_layers_attend_as_minilm_has_it():
  """Wang et al. 2020: the attention of transformers itself, and the values with themselves."""
  c = config()
  student, teacher = taught_models.pair(c)
  batch = cases.batch([(17,), (40,), (9,)], 40, types=3)
  ours, mine = taught_models.run(student, batch)
  with torch.no_grad():
    wanted, theirs = taught_models.run(teacher, batch)
  value = lambda kept: relation(kept['value'][-1], kept['value'][-1], 3, batch)
  loss = kl(theirs.attentions[-1], mine.attentions[-1], batch) + kl(
    value(wanted), value(ours), batch
  )
  taught_models.check(relations.make(c), c, student, teacher, loss, batch)


@mutation('teacher.layers - 1 if given.layer is None else given.layer', 'teacher.layers - 1')
@mutation('given.relation_heads or x_BTNH.shape[2], -1)', 'x_BTNH.shape[2], -1)')
def test_heads_are_cut_anew_as_minilmv2_has_it():
  """Wang et al. 2021: other heads, of a layer in the middle, and other numbers of them."""
  c = config('l6_h384,v2', dict(heads=2), **OTHER_HEADS)
  student, teacher = taught_models.pair(c)
  batch = cases.batch([(17,), (40,), (9,)], 40, types=3)
  ours, _ = taught_models.run(student, batch)
  with torch.no_grad():
    wanted, _ = taught_models.run(teacher, batch)
  with_itself = lambda kept, name, layer: relation(kept[name][layer], kept[name][layer], 6, batch)
  loss = sum(
    kl(with_itself(wanted, name, 1), with_itself(ours, name, -1), batch)
    for name in ('query', 'key', 'value')
  )
  taught_models.check(relations.make(c), c, student, teacher, loss, batch)


@mutation(
  'own_BT[:, :, None] == example_BT[:, None]',
  '(own_BT[:, :, None] > 0) == (example_BT[:, None] > 0)',
)
def test_packed_examples_do_not_relate_and_parts_are_the_whole(monkeypatch):
  apart = cases.batch([(17,), (9,)], 36)
  packed = {name: x[:1].copy() for name, x in apart.items()}
  for name in ('token_BT', 'type_BT', 'position_BT'):
    packed[name][0, 17:26] = apart[name][1, :9]
  packed['example_BT'][0, 17:26] = 2
  c = config(relations=(('query', 'key'),))
  params, theirs = taught_models.random_both(relations.make(c), apart)
  run = lambda batch: parity.loss_and_gradients(relations.make(c), params, batch, teacher=theirs)
  loss, gradients = run(apart)
  monkeypatch.setattr(teaching, 'CHUNK', 1 * 3 * 36 * 5)  # 4 of the 36 columns at a time
  again, same = run(packed)
  assert abs(again - loss) <= 1e-5 * loss
  signal = jax.tree.map(lambda x: np.abs(x).max(), gradients)
  jax.tree.map(
    lambda x, y, most: np.testing.assert_allclose(x, y, rtol=0, atol=max(3e-5 * most, 1e-6)),
    same, gradients, signal,
  )  # fmt: skip


@mutation(
  'part_V = jnp.where(wanted_V > -jnp.inf, jnp.exp(wanted_V) * (wanted_V - found_V), 0.0)',
  'part_V = jnp.exp(wanted_V) * (wanted_V - found_V)',
)
def test_an_empty_row_is_no_loss():
  c = config(relations=(('query', 'key'),))
  batch = cases.batch([(17,), ()], 20)
  params, theirs = taught_models.random_both(relations.make(c), batch)
  objective = relations.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch, teacher=theirs)
  one = {name: x[:1] for name, x in batch.items()}
  alone = parity.loss_of(objective, one, teacher=theirs)(params)[0]
  assert abs(loss - alone) <= 1e-5 * alone
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


REFUSED = dict(
  heads=(lambda c: c.model.update(heads=4), 'has 3 heads, the student 4: .*relation_heads'),
  width=(
    lambda c: c.objective.update(relation_heads=8),
    'must divide the width of the teacher, 36',
  ),
  layer=(lambda c: c.objective.update(layer=4), 'from 0 to 3, got 4'),
  words=(lambda c: c.model.update(words=True), 'no words to score'),
  labels=(
    lambda c: c.model.update(labels=(('next', 2),)),
    'labels=.. and .*, got ...next',
  ),
  none=(lambda c: c.objective.update(relations=()), 'expected pairs'),
  twice=(lambda c: c.objective.update(relations=(('key', 'key'),) * 2), 'each once'),
  sharing=(
    lambda c: c.objective.teacher.model.update(sharing='all'),
    r"config.objective.teacher.model.sharing='none', got 'all'",
  ),
  attend=(lambda c: c.model.update(attend='causal'), "config.model.attend='example', got 'causal'"),
  vocabulary=(lambda c: c.objective.teacher.model.update(vocab_size=99), 'one vocabulary'),
  length=(lambda c: setattr(c, 'length', 46), 'has room for 45: .* or name another teacher'),
  teacher=(
    lambda c: setattr(c.objective.teacher, 'model', cases.config('modernbert').model),
    "the kind AttendingModel .*got 'modernbert'",
  ),
  student=(
    lambda c: setattr(c, 'model', cases.config('modernbert').model),
    "needs config.model.name='bert'",
  ),
)


@pytest.mark.parametrize('case', REFUSED)
@mutation('if relation_heads and width % ', 'if relation_heads and width < ', case='width')
@mutation('given.layer >= teacher.layers', 'given.layer > teacher.layers', case='layer')
@mutation('teacher.require_room(config.length,', 'teacher.require_room(0,', case='length')
def test_what_cannot_be_compared_is_refused(case):
  change, said = REFUSED[case]
  c = config()
  relations.make(c)
  change(c)
  with pytest.raises(UserError, match=said):
    relations.make(c)
