"""BERT, RoBERTa, XLM-R, ERNIE and ALBERT against PyTorch `transformers` (eager attention, float32,
evaluation mode)."""

import cases
import jax
import numpy as np
import pytest
import torch_models
from mutation import mutation
from parity import HIDDEN, LENGTHS, LOGITS, close, compare
from slow_imports import torch

from bertjax.objectives import mlm

mutation('(query_BT1 == key_B1S) & (query_BT1 > 0)', '(query_BT1 > 0) & (key_B1S > -1)')
mutation('return biased_BTNH * x.scale', 'return biased_BTNH')
mutation("activation='gelu_tanh'", "activation='gelu_erf'", file='configs/bert.py')
mutation('norm_eps=1e-5', 'norm_eps=1e-12', file='configs/roberta.py')
mutation('position_offset=-1', 'position_offset=0')


ODD = dict(layers=3, width=36, heads=3, ffn=52, positions=45, types=3)
# Our family -> class of transformers, activation and norm as its original has them.
CLASSES = dict(
  bert=('BertForPreTraining', 'gelu_new', 1e-12), roberta=('RobertaForMaskedLM', 'gelu', 1e-5),
  ernie=('ErnieForPreTraining', 'relu', 1e-5), albert=('AlbertForPreTraining', 'gelu_new', 1e-12),
  xlm_r=('XLMRobertaForMaskedLM', 'gelu', 1e-5),
)  # fmt: skip
ROWS, ODD_ROWS = [[n] for n in LENGTHS], [[17], [45], [], [9]]  # of 45 positions, and of padding
STD = dict(plain=0.02, large=0.1, norm=0.02)


def row(family, kind, rows=ROWS, *, full=True, **fields):
  """`kind` names what the weights stress. 'plain': the usual scale. 'large' amplifies small errors.
  'norm': rows of variance ~1e-4 enter the first norm, where eps 1e-12 and 1e-5 differ by 5%."""
  return pytest.param(family, kind, rows, fields, marks=[pytest.mark.full] * full)


@pytest.mark.parametrize(
  'family, kind, rows, fields',
  [
    row('bert', 'norm', full=False),
    row('ernie', 'plain', full=False),
    row('albert', 'plain', full=False, layers=3, groups=2, inner_groups=2),
    row('roberta', 'large', ODD_ROWS, full=False, **ODD | dict(positions=47)),  # 2 stand before
    row('roberta', 'large'),
    row('roberta', 'norm'),
    row('xlm_r', 'large'),
    row('ernie', 'norm'),
    row('albert', 'norm'),
    row('albert', 'large', inner_groups=2),
    row('bert', 'large', ODD_ROWS, **ODD),
    row('ernie', 'large', ODD_ROWS, **ODD),
    row('albert', 'large', ODD_ROWS, **ODD, embedding_width=20),
  ],
)
@mutation("[jnp.minimum(batch['type_BT'], self.types - 1)]", "[jnp.minimum(batch['type_BT'], 1)]")
@mutation(
  'return [row.theirs.format(group=group, inner=inner) for group, inner in numbers]',
  'return [row.theirs.format(group=g, inner=i) for g, i in sorted(numbers, key=lambda n: n[1])]',
)
def test_equals_transformers(family, kind, rows, fields):
  c = cases.config(family, **fields)
  name, activation, eps = CLASSES[family]
  own = dict(hidden_act=activation, layer_norm_eps=eps)
  model = torch_models.like(c.model, name, STD[kind], **own)
  with torch.no_grad():
    for path, parameter in model.named_parameters():
      if kind == 'norm' and 'embeddings' in path and 'LayerNorm' not in path:
        parameter.mul_(0.3)
  label = c.model.labels[0][0] if c.model.labels else 'next'
  batch = cases.batch(rows, max(map(sum, rows)), types=c.model.types, label=label)
  compare(c, torch_models.state_of(model), batch, model)


def test_packed_rows_equal_unpacked_rows():
  c = cases.config('bert')
  apart = cases.batch([[17], [12]], 32, types=c.model.types)
  packed = cases.batch([[17, 12]], 32, types=c.model.types)  # the same draws, in one row
  objective = mlm.make(c)
  variables = cases.variables(objective.init, apart)
  predict = jax.jit(objective.predict)
  two, one = predict(variables, (), apart), predict(variables, (), packed)
  close(one['last_BTD'][0, :17], np.asarray(two['last_BTD'])[0, :17], HIDDEN, 'first example')
  close(one['last_BTD'][0, 17:29], np.asarray(two['last_BTD'])[1, :12], HIDDEN, 'second example')
  real = slice(0, cases.VOCAB)
  flat = np.asarray(two['logits_BPV'])[..., real].reshape(1, -1, cases.VOCAB)
  used = apart['weight_BP'].reshape(-1) > 0
  close(np.asarray(one['logits_BPV'])[0, used, real], flat[0, used], LOGITS, 'logits')
  next_2C = np.asarray(two['label_BGC']['next'])[:, 0]
  close(one['label_BGC']['next'][0], next_2C, LOGITS, 'next-sentence logits')
