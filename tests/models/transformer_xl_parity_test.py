"""Transformer-XL with memory against PyTorch `transformers`: XLNet's content stream with attn_type
'uni' is the same function, with u and w in every layer and the word table scaled."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation
from slow_imports import torch, transformers

from bertjax.objectives import lm
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

mutation(
  'np.arange(mask.example_k_BS.shape[1] - 1, -1, -1)',
  'np.arange(mask.example_k_BS.shape[1], 0, -1)',
)
mutation("return Out(terms | out.get('penalties', {}), out['carry'])", 'return Out(terms, carry)')

ROWS, LENGTH, SEGMENTS = 3, 6, 3
# Hidden states and logits: absolute. Loss: relative. A gradient: of the leaf's largest entry.
HIDDEN, LOGITS, LOSS, GRADIENT = 1e-5, 1e-5, 1e-6, 1e-5


def torch_model(m, params):
  """transformers' model with our parameters, and name -> torch tensor of what it lacks."""
  hf = transformers.XLNetConfig(
    vocab_size=8, d_model=m.width, n_layer=m.layers, n_head=m.heads, d_inner=m.ffn,
    ff_activation='relu', layer_norm_eps=m.norm_eps, attn_type='uni', dropout=0.0,
    mem_len=m.mem_len, clamp_len=m.clamp_len or -1, use_mems_eval=True,
  )  # fmt: skip
  model = transformers.XLNetModel(hf).eval()
  state = model.state_dict()
  for name, path, axes in layer_names(m):
    for layer in range(m.layers):
      value = leaf(params, path)
      value = value if path in ('u', 'w') else value[layer]
      state[name.format(layer)] = torch.tensor(value.transpose(axes))
  model.load_state_dict(state)
  word = torch.tensor(params['word'], requires_grad=True)
  bias = torch.tensor(params['head']['bias'], requires_grad=True)
  return model, word, bias


def layer_names(m):
  """(their name, our path, our axes in their order) of the parameters of a layer."""
  names = dict(q='query', k='key', v='value', o='out', r='position')
  rows = [
    (f'rel_attn.{k}', f'layers/attention/{v}/kernel', (2, 0, 1) if k == 'o' else (0, 1, 2))
    for k, v in names.items()
  ]
  where = 'layers/' if m.untie_r else ''
  rows += [('rel_attn.r_w_bias', f'{where}u', (0, 1)), ('rel_attn.r_r_bias', f'{where}w', (0, 1))]
  for theirs, ours in (('rel_attn', 'attention_norm'), ('ff', 'ffn_norm')):
    for weight, scale in (('weight', 'scale'), ('bias', 'bias')):
      rows += [(f'{theirs}.layer_norm.{weight}', f'layers/{ours}/{scale}', (0,))]
  for theirs, ours in (('layer_1', 'up'), ('layer_2', 'down')):
    rows += [(f'ff.{theirs}.weight', f'layers/ffn/{ours}/kernel', (1, 0))]
    rows += [(f'ff.{theirs}.bias', f'layers/ffn/{ours}/bias', (0,))]
  return [(f'layer.{{}}.{name}', path, axes) for name, path, axes in rows]


def leaf(tree, path: str):
  for key in path.split('/'):
    tree = tree[key]
  return np.asarray(tree)


def batches(seed: int = 0):
  """Consecutive stretches of one random text."""
  rng = np.random.default_rng(seed)
  text = rng.integers(0, cases.VOCAB, (ROWS, LENGTH * SEGMENTS + 1)).astype(np.int32)
  for first in range(0, LENGTH * SEGMENTS, LENGTH):
    yield dict(
      token_BT=text[:, first : first + LENGTH],
      example_BT=np.ones((ROWS, LENGTH), np.int32),
      target_BP=text[:, first + 1 : first + 1 + LENGTH],
      weight_BP=(rng.random((ROWS, LENGTH)) < 0.8).astype(np.float32),
      start_B=np.full(ROWS, int(not first), np.int32),
    )


@pytest.mark.parametrize(
  'fields', [dict(mem_len=8), dict(mem_len=4, untie_r=True, clamp_len=5, remat='full')], ids=str
)
def test_equals_transformers_with_memory(fields):
  c = cases.config('transformer_xl', dropout=0.0, attention_dropout=0.0, **fields)
  c.length, m = LENGTH, c.model
  objective, first = lm.make(c), next(batches())
  shapes = jax.eval_shape(objective.init, jax.random.key(0), first)
  variables = cases.random_params(meta.unbox(shapes), std=0.1)
  model, word, bias = torch_model(m, variables['params'])
  carry, mems = objective.carry(first), None
  ctx = Context(jax.random.key(0), jnp.int32(0), True)

  @jax.jit
  def ours(variables, carry, batch):
    def loss(params):
      out = objective.loss(dict(params=params), carry, with_rows(batch), ctx)
      return trained_loss(out.terms, {k: t.weight for k, t in out.terms.items()}), out.carry

    found = jax.value_and_grad(loss, has_aux=True)(variables['params'])
    return found, objective.predict(variables, carry, batch, True)

  for batch in batches():
    ((loss, carry), grads), out = ours(variables, carry, batch)
    model.zero_grad()
    word.grad = bias.grad = None
    embedded = word[torch.tensor(batch['token_BT'], dtype=torch.long)] * m.width**0.5
    theirs = model(inputs_embeds=embedded, mems=mems, output_hidden_states=True)
    mems = theirs.mems
    logits = (theirs.last_hidden_state @ word.T + bias)[..., : cases.VOCAB]
    target = torch.tensor(batch['target_BP'], dtype=torch.long)
    nll = torch.nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction='none')
    weight = torch.tensor(batch['weight_BP'])
    expected = (nll * weight).sum() / weight.sum()
    expected.backward()

    hidden = np.stack([h.detach().numpy() for h in theirs.hidden_states[1:]])
    np.testing.assert_allclose(out['hidden_LBTD'], hidden, rtol=0, atol=HIDDEN)
    found = out['logits_BPV'][..., : cases.VOCAB]
    np.testing.assert_allclose(found, logits.detach().numpy(), rtol=0, atol=LOGITS)
    np.testing.assert_allclose(loss, expected.item(), rtol=LOSS)
    check_gradients(grads, model, word, bias, m)


def check_gradients(grads, model, word, bias, m):
  """Every leaf of ours against the sum or the stack of theirs."""
  named, checked = dict(model.named_parameters()), 2

  def equal(path, found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=GRADIENT * np.abs(expected).max())
    assert np.abs(expected).max() > 0, path

  equal('word', grads['word'], word.grad.numpy())
  equal('head/bias', grads['head']['bias'], bias.grad.numpy())
  for name, path, axes in layer_names(m):
    each = [named[name.format(layer)].grad.numpy() for layer in range(m.layers)]
    each = np.stack([g.transpose(np.argsort(axes)) for g in each])
    equal(path, leaf(grads, path), each.sum(0) if path in ('u', 'w') else each)
    checked += 1
  assert checked == len(jax.tree.leaves(grads))
