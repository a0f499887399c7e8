"""XLNet against PyTorch `transformers` (eager attention, float32, evaluation mode)."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from parity_test import GRADIENT, HIDDEN, LOGITS, LOSS, close

from bertjax.convert import huggingface
from bertjax.models.layers.memory import Memory
from bertjax.objectives import plm
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

ROWS, LENGTH, MEMORY, REUSE, SLOTS = 4, 24, 10, 12, 6
LENGTHS = (17, 24, 9, 20)
ACTIVATIONS = dict(gelu_tanh='gelu_new', gelu_erf='gelu', relu='relu')


def config(**model):
  return cases.config('xlnet', **(dict(mem_len=MEMORY, reuse_len=REUSE) | model))


def make_batch(seed: int = 0, both: bool = False) -> dict[str, np.ndarray]:
  """Left-padded rows with three segments, random orders and targets; an unused slot in each."""
  rng = np.random.default_rng(seed)
  column = np.arange(LENGTH)
  real = column[None] >= LENGTH - np.array(LENGTHS)[:, None]
  order = rng.permuted(np.tile(column, (ROWS, 1)), axis=1).astype(np.int32)
  plain = rng.random((ROWS, LENGTH)) < 0.5
  batch = dict(
    token_BT=np.where(real, rng.integers(5, cases.VOCAB, (ROWS, LENGTH)), 5).astype(np.int32),
    example_BT=real.astype(np.int32),
    type_BT=np.where(real, (column > 12).astype(int) + (column > 22), 4).astype(np.int32),
    target_pos_BP=np.zeros((ROWS, SLOTS), np.int32),
    target_BP=np.zeros((ROWS, SLOTS), np.int32),
    weight_BP=np.zeros((ROWS, SLOTS), np.float32),
    start_B=np.zeros(ROWS, np.int32),
  )
  for b in range(ROWS):
    chosen = np.sort(rng.choice(np.flatnonzero(real[b]), SLOTS - 1, replace=False))
    plain[b, chosen] = False
    batch['target_pos_BP'][b, :-1] = chosen
    batch['target_BP'][b, :-1] = rng.integers(5, cases.VOCAB, SLOTS - 1)
    batch['weight_BP'][b, :-1] = 1
  target = np.zeros((ROWS, LENGTH), bool)
  np.put_along_axis(target, batch['target_pos_BP'][:, :-1], True, 1)
  batch['order_k_BT'] = np.where(plain, -1, order).astype(np.int32)
  batch['order_q_BT'] = (batch['order_k_BT'] + ~target).astype(np.int32)
  if both:
    batch['direction_B'] = np.where(np.arange(ROWS) < ROWS // 2, 1, -1).astype(np.int32)
  return batch


def torch_model(c, **fields):
  m = c.model
  hf = transformers.XLNetConfig(
    vocab_size=m.vocab_size, d_model=m.width, n_layer=m.layers, n_head=m.heads, d_inner=m.ffn,
    ff_activation=ACTIVATIONS[m.activation], layer_norm_eps=m.norm_eps, mem_len=m.mem_len,
    reuse_len=m.reuse_len, clamp_len=m.clamp_len or -1, dropout=0.0, **fields,
  )  # fmt: skip
  return transformers.XLNetLMHeadModel(hf).eval()


def torch_inputs(batch, predicts: bool = True) -> dict[str, torch.Tensor]:
  used = batch['weight_BP'] > 0
  hidden = batch['order_q_BT'][:, :, None] <= batch['order_k_BT'][:, None, :]
  mapping = np.eye(LENGTH)[batch['target_pos_BP']] * used[..., None]
  tensor = lambda x: torch.tensor(np.asarray(x))
  inputs = dict(
    input_ids=tensor(batch['token_BT']).long(),
    attention_mask=tensor(batch['example_BT']).float(),
    token_type_ids=tensor(batch['type_BT']).long(),
  )
  if predicts:
    inputs |= dict(
      perm_mask=tensor(hidden).float(),
      target_mapping=tensor(mapping).float(),
      labels=tensor(np.where(used, batch['target_BP'], -100)).long(),
    )
  return inputs


def make_case(kind: str = 'plain', both: bool = False, **model):
  """(config, state dict, two batches, torch model); kinds as in parity_test.py."""
  torch.manual_seed(0)
  c = config(**model)
  theirs = torch_model(c, bi_data=both)
  std = dict(plain=0.02, large=0.1, norm=0.02)[kind]
  with torch.no_grad():
    for name, parameter in theirs.named_parameters():
      is_scale = 'layer_norm' in name and name.endswith('weight')
      parameter.normal_(1.0 if is_scale else 0.0, std)
      if kind == 'norm' and ('word_embedding' in name or 'mask_emb' in name):
        parameter.mul_(0.3)
  state = {k: v.detach().numpy().copy() for k, v in theirs.state_dict().items()}
  return c, state, (make_batch(0, both), make_batch(1, both)), theirs


def our_gradients(c, params, memory, batch):
  objective = plm.make(c)

  def loss_fn(params):
    ctx = Context(jax.random.key(0), np.int32(0), train=False)
    out = objective.loss(dict(params=params), memory, with_rows(batch), ctx)
    return trained_loss(out.terms, {k: t.weight for k, t in out.terms.items()}), out.carry

  (loss, carry), grads = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params)
  return float(loss), carry, grads


def compare(c, state, batches, model) -> None:
  """Two batches in a row, the second with the memory that the first left."""
  params = huggingface.from_huggingface(state, c.model)
  objective = plm.make(c)
  memory, mems = objective.carry(batches[0]), None
  for batch in batches:
    predict = jax.jit(objective.predict, static_argnames='hidden')
    ours = predict(dict(params=params), memory, batch, hidden=True)
    model.zero_grad()
    inputs = torch_inputs(batch)
    theirs = model(**inputs, mems=mems, use_mems=True, output_hidden_states=True)
    theirs.loss.backward()
    real, used = batch['example_BT'] > 0, batch['weight_BP'] > 0
    # Theirs are content, query, content, query, ..., the inputs of the first layer first.
    streams = [h.detach().numpy() for h in theirs.hidden_states]
    for layer, (h_BTD, g_BPD) in enumerate(zip(streams[2::2], streams[3::2], strict=True)):
      ours_BXD = np.asarray(ours['hidden_LBXD'][layer])
      close(ours_BXD[:, :LENGTH][real], h_BTD[real], HIDDEN, f'content {layer}')
      close(ours_BXD[:, LENGTH:][used], g_BPD[used], HIDDEN, f'query {layer}')
    logits = np.asarray(ours['logits_BPV'])[..., : cases.VOCAB]
    close(logits[used], theirs.logits.detach().numpy()[used], LOGITS, 'logits')

    loss, carry, grads = our_gradients(c, params, memory, batch)
    assert abs(loss - theirs.loss.item()) <= LOSS * theirs.loss.item()
    mems = [m.detach() for m in theirs.mems]
    for layer, mem in enumerate(mems):
      kept_BM = np.asarray(carry.example_BM) > 0
      ours_BMD = np.asarray(carry.hidden_BLMD[:, layer])
      close(ours_BMD[kept_BM], mem.numpy().transpose(1, 0, 2)[kept_BM], HIDDEN, f'memory {layer}')
    # Theirs shows padding that it remembers; ours does not, so let both see all of it.
    memory = Memory(
      jnp.asarray(np.stack(mems, 1).transpose(2, 1, 0, 3)), jnp.ones((ROWS, MEMORY), int)
    )
    compare_gradients(c, model, grads)


def compare_gradients(c, model, grads) -> None:
  found = {k: p.grad.numpy() for k, p in model.named_parameters()}
  expected = huggingface.from_huggingface(found, c.model)
  assert jax.tree.structure(expected) == jax.tree.structure(grads)
  for (path, want), got in zip(
    jax.tree_util.tree_flatten_with_path(expected)[0], jax.tree.leaves(grads), strict=True
  ):
    name, signal = jax.tree_util.keystr(path), float(np.abs(want).max())
    assert signal > 0, f'{name} gets no gradient'
    worst = float(np.abs(np.asarray(got) - want).max()) / signal
    assert worst <= GRADIENT, f'gradient of {name} is off by {worst:.2e} of its signal'


@pytest.mark.parametrize(
  'kind, fields',
  [
    ('large', dict()),
    ('plain', dict(both=True)),
    pytest.param('norm', dict(), marks=pytest.mark.full),
    pytest.param('large', dict(both=True, clamp_len=7), marks=pytest.mark.full),
  ],
)
def test_equals_transformers(kind, fields):
  compare(*make_case(kind, **fields))


# Each of these must be caught, or the tolerances prove nothing.
@pytest.mark.full
@pytest.mark.parametrize(
  'kind, fault',
  [
    ('large', dict(activation='gelu_erf')),
    ('norm', dict(norm_eps=1e-5)),
    ('large', dict(clamp_len=20)),
    ('large', dict(reuse_len=REUSE - 1)),
  ],
)
def test_a_wrong_model_is_caught(kind, fault):
  c, state, batches, model = make_case(kind)
  c.model.update(fault)
  with pytest.raises(AssertionError, match='is off by'):
    compare(c, state, batches, model)


@pytest.mark.full
@pytest.mark.parametrize('name', ['r_w_bias', 'r_r_bias', 'r_s_bias', 'seg_embed'])
def test_a_wrong_term_is_caught(name):
  c, state, batches, model = make_case('large')
  key = f'transformer.layer.0.rel_attn.{name}'
  with pytest.raises(AssertionError, match='is off by'):
    compare(c, state | {key: state[key][::-1]}, batches, model)
