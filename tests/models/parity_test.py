"""BERT, RoBERTa, ERNIE and ALBERT against PyTorch `transformers` (eager attention, float32,
evaluation mode)."""

import cases
import jax
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation
from parity import HIDDEN, LENGTH, LENGTHS, LOGITS, close, compare
from slow_imports import torch, transformers

from bertjax.objectives import mlm

mutation('(query_BT1 == key_B1S) & (query_BT1 > 0)', '(query_BT1 > 0) & (key_B1S > -1)')
mutation('biased_BTNH * scale, x, preferred', 'biased_BTNH, x, preferred')
mutation("activation='gelu_tanh'", "activation='gelu_erf'", file='configs/bert.py')
mutation('norm_eps=1e-5', 'norm_eps=1e-12', file='configs/roberta.py')
mutation('position_offset=-1', 'position_offset=0')


ODD = dict(layers=3, width=36, heads=3, ffn=52, positions=45, types=3)
# Name -> (family, fields of the model).
CASES = {
  'bert': ('bert', {}),
  'roberta': ('roberta', {}),
  'ernie': ('ernie', {}),
  'odd roberta': ('roberta', ODD | dict(positions=47)),  # two stand before the first
  'odd bert': ('bert', ODD),
  'odd ernie': ('ernie', ODD),
  'odd albert': ('albert', ODD | dict(embedding_width=20)),
  'albert': ('albert', {}),
  'albert in groups': ('albert', dict(layers=4, groups=2)),
  'albert in inner groups': ('albert', dict(inner_groups=2)),
  'albert in both': ('albert', dict(layers=3, groups=2, inner_groups=2)),
}


def torch_model(c):
  m = c.model
  common = dict(
    vocab_size=m.vocab_size, hidden_size=m.width, num_hidden_layers=m.layers,
    num_attention_heads=m.heads, intermediate_size=m.ffn, max_position_embeddings=m.positions,
    type_vocab_size=m.types, layer_norm_eps=m.norm_eps, attn_implementation='eager',
  )  # fmt: skip
  if m.position_offset:
    hf = transformers.RobertaConfig(hidden_act='gelu', pad_token_id=1, **common)
    return transformers.RobertaForMaskedLM(hf).eval()
  if m.family == 'albert':
    hf = transformers.AlbertConfig(
      embedding_size=m.embedding_width, num_hidden_groups=m.groups, inner_group_num=m.inner_groups,
      hidden_act='gelu_new', pad_token_id=0, **common,
    )  # fmt: skip
    return transformers.AlbertForPreTraining(hf).eval()
  if m.family == 'ernie':
    hf = transformers.ErnieConfig(hidden_act='relu', pad_token_id=0, use_task_id=False, **common)
    return transformers.ErnieForPreTraining(hf).eval()
  hf = transformers.BertConfig(hidden_act='gelu_new', pad_token_id=0, **common)
  return transformers.BertForPreTraining(hf).eval()


def make_case(case: str, kind: str):
  """(config, state dict, batch, torch model); kind names what the weights stress."""
  torch.manual_seed(0)
  family, fields = CASES[case]
  c = cases.config(family, **fields)
  model = torch_model(c)
  # 'plain': the usual scale. 'large' amplifies small errors. 'norm': rows of variance ~1e-4 enter
  # the first norm, where eps 1e-12 and 1e-5 differ by 5% in scale.
  std = {'plain': 0.02, 'large': 0.1, 'norm': 0.02}[kind]
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      is_scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.normal_(1.0 if is_scale else 0.0, std)
      if kind == 'norm' and 'embeddings' in name and 'LayerNorm' not in name:
        parameter.mul_(0.3)
  state = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
  label = c.model.labels[0][0] if c.model.labels else 'next'
  batch = cases.batch([[n] for n in LENGTHS], LENGTH, types=c.model.types, label=label)
  return c, state, batch, model


EACH = [
  (case, kind) for case in ('bert', 'roberta', 'ernie') for kind in ('plain', 'large', 'norm')
]
QUICK = {('bert', 'norm'), ('roberta', 'large'), ('ernie', 'plain')}


@pytest.mark.parametrize(
  'case, kind', [pytest.param(*x, marks=() if x in QUICK else pytest.mark.full) for x in EACH]
)
def test_equals_transformers(case, kind):
  compare(*make_case(case, kind))


@pytest.mark.parametrize(
  'case, kind',
  [
    pytest.param('albert', 'large', marks=pytest.mark.full),
    pytest.param('albert', 'norm', marks=pytest.mark.full),
    pytest.param('albert in groups', 'large', marks=pytest.mark.full),
    pytest.param('albert in inner groups', 'large', marks=pytest.mark.full),
    ('albert in both', 'plain'),
  ],
)
@mutation(
  'return [row.theirs.format(group=group, inner=inner) for group, inner in numbers]',
  'return [row.theirs.format(group=g, inner=i) for g, i in sorted(numbers, key=lambda n: n[1])]',
)
def test_shared_layers_equal_transformers(case, kind):
  compare(*make_case(case, kind))


@mutation("[jnp.minimum(batch['type_BT'], self.types - 1)]", "[jnp.minimum(batch['type_BT'], 1)]")
@pytest.mark.parametrize(
  'family',
  [
    'roberta',
    *(pytest.param(name, marks=pytest.mark.full) for name in ('bert', 'ernie', 'albert')),
  ],
)
def test_odd_shapes_equal_transformers(family):
  """3 segments, 3 heads of 12, 45 positions, all of them used, and a row of padding alone."""
  c, state, batch, model = make_case(f'odd {family}', 'large')
  label = c.model.labels[0][0] if c.model.labels else 'next'
  batch = cases.batch([[17], [45], [], [9]], 45, types=3, label=label)
  compare(c, state, batch, model)


@pytest.mark.parametrize('family', ['bert', 'roberta'])
def test_packed_rows_equal_unpacked_rows(family):
  c = cases.config(family)
  apart = cases.batch([[17], [12]], 32, types=c.model.types)
  packed = cases.batch([[17, 12]], 32, types=c.model.types)  # the same draws, in one row
  objective = mlm.make(c)
  shapes = meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), apart))
  variables = cases.random_params(shapes, 0.1)
  predict = jax.jit(objective.predict, static_argnames='hidden')
  two = predict(variables, (), apart, hidden=True)
  one = predict(variables, (), packed, hidden=True)
  close(one['last_BTD'][0, :17], np.asarray(two['last_BTD'])[0, :17], HIDDEN, 'first example')
  close(one['last_BTD'][0, 17:29], np.asarray(two['last_BTD'])[1, :12], HIDDEN, 'second example')
  real = slice(0, cases.VOCAB)
  flat = np.asarray(two['logits_BPV'])[..., real].reshape(1, -1, cases.VOCAB)
  used = apart['weight_BP'].reshape(-1) > 0
  close(np.asarray(one['logits_BPV'])[0, used, real], flat[0, used], LOGITS, 'logits')
  if c.model.labels:
    close(
      one['label_BGC']['next'][0],
      np.asarray(two['label_BGC']['next'])[:, 0],
      LOGITS,
      'next-sentence logits',
    )
