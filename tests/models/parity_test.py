"""BERT, RoBERTa, ERNIE and ALBERT against PyTorch `transformers` (eager attention, float32,
evaluation mode)."""

import cases
import jax
import numpy as np
import pytest
import torch
import transformers
from flax.core import meta

from bertjax.convert import huggingface
from bertjax.objectives import mlm
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

LENGTHS, LENGTH = (17, 32, 9), 32
# Hidden states and logits: absolute. Loss: relative. A gradient: of the leaf's largest entry.
HIDDEN, LOGITS, LOSS, GRADIENT = 2e-5, 1e-4, 1e-5, 2e-5


# Name -> (family, fields of the model).
CASES = {
  'bert': ('bert', {}),
  'roberta': ('roberta', {}),
  'ernie': ('ernie', {}),
  'albert': ('albert', {}),
  'albert in groups': ('albert', dict(layers=4, groups=2)),
  'albert in inner groups': ('albert', dict(inner_groups=2)),
  'albert in both': ('albert', dict(layers=3, groups=2, inner_groups=2)),
}
# What the class calls our label: (its argument, its output).
LABELS = {
  'next': ('next_sentence_label', 'seq_relationship_logits'),
  'order': ('sentence_order_label', 'sop_logits'),
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


def torch_run(model, batch, pad: int, label: str | None):
  """Hidden states, logits, loss and gradients of the torch model on our batch."""
  token = np.where(batch['example_BT'] > 0, batch['token_BT'], pad)
  labels = np.full(token.shape, -100)
  for b, p in zip(*np.nonzero(batch['weight_BP']), strict=True):
    labels[b, batch['target_pos_BP'][b, p]] = batch['target_BP'][b, p]
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  keys = dict(labels=tensor(labels))
  argument, label_logits = LABELS.get(label, (None, None))
  if label:
    keys[argument] = tensor(batch[f'{label}_BG'][:, 0])
  out = model(
    tensor(token), attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']), output_hidden_states=True, **keys,
  )  # fmt: skip
  out.loss.backward()
  grads = {k: p.grad.numpy() for k, p in model.named_parameters()}
  logits = out.prediction_logits if label else out.logits
  result = dict(
    hidden=np.stack([h.detach().numpy() for h in out.hidden_states[1:]]),
    logits=logits.detach().numpy(),
    loss=out.loss.item(),
  )
  if label:
    result[label] = out[label_logits].detach().numpy()
  return result, grads


def our_run(c, params, batch):
  """The same of ours, with the logits of the predicted slots."""
  objective = mlm.make(c)

  def loss_fn(params):
    ctx = Context(jax.random.key(0), np.int32(0), train=False)
    terms = objective.loss(dict(params=params), (), with_rows(batch), ctx).terms
    return trained_loss(terms, {name: term.weight for name, term in terms.items()})

  loss, grads = jax.jit(jax.value_and_grad(loss_fn))(params)
  out = jax.jit(objective.predict, static_argnames='hidden')(
    dict(params=params), (), batch, hidden=True
  )
  return out, float(loss), grads


def close(ours, theirs, tolerance: float, what: str) -> None:
  worst = float(np.abs(np.asarray(ours) - theirs).max())
  assert worst <= tolerance, f'{what} is off by {worst:.2e}, allowed {tolerance:.0e}'


def compare(c, state, batch, model) -> None:
  params = huggingface.from_huggingface(state, c.model)
  label = c.model.labels[0][0] if c.model.labels else None
  pad = 1 if c.model.position_offset else 0
  theirs, their_grads = torch_run(model, batch, pad, label)
  ours, loss, grads = our_run(c, params, batch)

  real_BT = batch['example_BT'] > 0
  assert len(ours['hidden_LBTD']) == c.model.layers * c.model.inner_groups
  for layer in range(len(ours['hidden_LBTD'])):
    h_BTD, t_BTD = np.asarray(ours['hidden_LBTD'][layer]), theirs['hidden'][layer]
    close(h_BTD[real_BT], t_BTD[real_BT], HIDDEN, f'hidden state {layer}')
  rows = np.arange(len(real_BT))[:, None]
  at_targets = theirs['logits'][rows, batch['target_pos_BP']]
  close(ours['logits_BPV'][..., : cases.VOCAB], at_targets, LOGITS, 'logits')
  assert np.all(np.isneginf(ours['logits_BPV'][..., cases.VOCAB :]))
  if label:
    close(ours['label_BGC'][label][:, 0], theirs[label], LOGITS, f'logits of {label}')
  assert abs(loss - theirs['loss']) <= LOSS * theirs['loss']

  expected = huggingface.from_huggingface(their_grads, c.model)
  assert jax.tree.structure(expected) == jax.tree.structure(grads)
  for path, want in jax.tree_util.tree_flatten_with_path(expected)[0]:
    name, got = jax.tree_util.keystr(path), grads
    for key in path:
      got = got[key.key]
    signal = float(np.abs(want).max())
    # The softmax does not see the key bias: both gradients are rounding errors of zero.
    if "['key']['bias']" in name:
      (stack,) = expected['encoder'].values()
      signal = float(np.abs(stack['attention']['query']['bias']).max())
    assert signal > 0, f'{name} gets no gradient'
    worst = float(np.abs(np.asarray(got) - want).max()) / signal
    assert worst <= GRADIENT, f'gradient of {name} is off by {worst:.2e} of its signal'


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


@pytest.mark.parametrize('kind', ['plain', 'large', 'norm'])
@pytest.mark.parametrize('case', ['bert', 'roberta', 'ernie'])
def test_equals_transformers(case, kind):
  compare(*make_case(case, kind))


@pytest.mark.parametrize(
  'case, kind',
  [
    ('albert', 'large'),
    pytest.param('albert', 'norm', marks=pytest.mark.full),
    pytest.param('albert in groups', 'large', marks=pytest.mark.full),
    pytest.param('albert in inner groups', 'large', marks=pytest.mark.full),
    ('albert in both', 'plain'),
  ],
)
def test_shared_layers_equal_transformers(case, kind):
  compare(*make_case(case, kind))


# Each of these must be caught, or the tolerances prove nothing. The type ids of RoBERTa are a
# constant row, so only BERT has that fault.
@pytest.mark.parametrize(
  'family, kind, fault',
  [
    ('bert', 'large', dict(activation='gelu_erf')),
    ('roberta', 'large', dict(activation='gelu_tanh')),
    ('bert', 'norm', dict(norm_eps=1e-5)),
    ('roberta', 'norm', dict(norm_eps=1e-12)),
    ('bert', 'plain', dict(attend='self')),
  ],
)
def test_a_wrong_model_is_caught(family, kind, fault):
  c, state, batch, model = make_case(family, kind)
  c.model.update(fault)
  with pytest.raises(AssertionError, match='is off by'):
    compare(c, state, batch, model)


def test_a_wrong_segment_is_caught():
  c, state, batch, model = make_case('bert', 'plain')
  name = 'bert.embeddings.token_type_embeddings.weight'
  with pytest.raises(AssertionError, match='is off by'):
    compare(c, state | {name: state[name][::-1]}, batch, model)


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
