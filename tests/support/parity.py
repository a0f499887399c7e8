"""Our masked models beside those of PyTorch `transformers`, on one batch."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import state_dicts
from slow_imports import torch

from bertjax import models
from bertjax.kernels.cross_entropy import cross_entropy, logits
from bertjax.objectives import mlm
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

LENGTHS, LENGTH = (17, 32, 9), 32


# Hidden states and logits: absolute. Loss: relative. A gradient: of the leaf's largest entry.
HIDDEN, LOGITS, LOSS, GRADIENT = 2e-5, 1e-4, 1e-5, 2e-5


# What the class calls our label: (its argument, its output).
LABELS = {
  'next': ('next_sentence_label', 'seq_relationship_logits'),
  'order': ('sentence_order_label', 'sop_logits'),
}


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
    used = batch['example_weight_BG'][:, 0] > 0
    keys[argument] = tensor(np.where(used, batch[f'{label}_BG'][:, 0], -100))
  out = model(
    tensor(token), attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']), output_hidden_states=True, **keys,
  )  # fmt: skip
  out.loss.backward()
  grads = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
  logits = out.prediction_logits if label else out.logits
  result = dict(
    hidden=np.stack([h.detach().numpy() for h in out.hidden_states[1:]]),
    logits=logits.detach().numpy(),
    loss=out.loss.item(),
  )
  if label:
    result[label] = out[label_logits].detach().numpy()
  return result, grads


STILL = Context(jax.random.key(0), np.int32(0), train=False)


def loss_of(objective, batch, carry=(), ctx=STILL, **frozen):
  """Parameters -> (the trained loss of one of our objectives, its `Out`); compiled.

  Args:
    objective, batch, carry: of it.
    ctx: without dropout, or with it.
    frozen: its other collections.
  """

  @jax.jit
  def loss(params):
    out = objective.loss(dict(frozen, params=params), carry, with_rows(batch), ctx)
    return trained_loss(out.terms, {name: term.weight for name, term in out.terms.items()}), out

  return loss


def gradients_of(*args, **kwargs):
  """Parameters -> ((loss, Out), the gradient of each leaf), of `loss_of`."""
  return jax.jit(jax.value_and_grad(loss_of(*args, **kwargs), has_aux=True))


def loss_and_gradients(objective, params, batch, **frozen):
  """The loss of `loss_of`, and the gradient of each leaf."""
  (loss, _), grads = gradients_of(objective, batch, **frozen)(params)
  return float(loss), grads


def word_gradients(model, params, batch, target, weight):
  """((the mean loss of a model's words, what it gives), the gradient of each leaf)."""

  def loss(params):
    out = model.apply(dict(params=params), batch)
    nll, *_ = cross_entropy(out['word'], jnp.asarray(target))
    return jnp.sum(nll * weight) / jnp.sum(weight), out

  return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)


def our_run(c, params, batch):
  """The same of ours, with the logits of the predicted slots."""
  objective = mlm.make(c)
  loss, grads = loss_and_gradients(objective, params, batch)

  def run(variables):
    out = models.build(c.model).apply(variables, batch, hidden=True)
    return dict(out, logits_BPV=logits(out['word']))

  return jax.jit(run)(dict(params=params)), loss, grads


def close(ours, theirs, tolerance: float, what: str) -> None:
  worst = float(np.abs(np.asarray(ours) - theirs).max())
  assert worst <= tolerance, f'{what} is off by {worst:.2e}, allowed {tolerance:.0e}'


def compare(c, state, batch, model) -> None:
  params = state_dicts.from_huggingface(state, c.model)
  label = c.model.labels[0][0] if c.model.labels else None
  pad = 1 if c.model.get('position_offset') else 0
  theirs, their_grads = torch_run(model, batch, pad, label)
  ours, loss, grads = our_run(c, params, batch)

  real_BT = batch['example_BT'] > 0
  assert len(ours['hidden_LBTD']) == c.model.layers * c.model.get('inner_groups', 1)
  for layer in range(len(ours['hidden_LBTD'])):
    h_BTD, t_BTD = np.asarray(ours['hidden_LBTD'][layer]), theirs['hidden'][layer]
    close(h_BTD[real_BT], t_BTD[real_BT], HIDDEN, f'hidden state {layer}')
  rows, some_B = np.arange(len(real_BT))[:, None], real_BT.any(1)  # others are padding alone
  at_targets = theirs['logits'][rows, batch['target_pos_BP']]
  logits = np.asarray(ours['logits_BPV'])[..., : cases.VOCAB]
  close(logits[some_B], at_targets[some_B], LOGITS, 'logits')
  assert np.all(np.isneginf(ours['logits_BPV'][..., cases.VOCAB :]))
  if label:
    ours_BC = np.asarray(ours['label_BGC'][label][:, 0])
    close(ours_BC[some_B], theirs[label][some_B], LOGITS, f'logits of {label}')
  assert abs(loss - theirs['loss']) <= LOSS * theirs['loss']

  close_gradients(grads, state_dicts.from_huggingface(their_grads, c.model))


def close_gradients(grads, expected) -> None:
  """Each leaf against the largest entry of what is expected there."""
  assert jax.tree.structure(expected) == jax.tree.structure(grads)
  leaves = jax.tree_util.tree_leaves_with_path(expected)
  wanted = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
  for (name, want), got in zip(wanted.items(), jax.tree.leaves(grads), strict=True):
    # The softmax does not see the key bias: both gradients are rounding errors of zero.
    like = name.replace("key']['bias']", "query']['bias']")
    signal = float(np.abs(wanted[like]).max())
    assert signal > 0, f'{name} gets no gradient'
    worst = float(np.abs(np.asarray(got) - want).max()) / signal
    assert worst <= GRADIENT, f'gradient of {name} is off by {worst:.2e} of its signal'
