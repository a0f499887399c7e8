"""Random models of transformers with heads of fine-tuning, and their gradients beside ours."""

import functools
import inspect

import cases
import jax
import numpy as np
import parity
import state_dicts
import torch_models
from ml_collections import ConfigDict
from slow_imports import torch

from bertjax import models
from bertjax.train.step import with_rows
from bertjax.types import Context
from configs.distill import distilbert

SIZE = dict(width=36, heads=3, ffn=52, positions=45, types=3)
LANGUAGES = 3
OF_DISTILBERT = (
  'family', 'types', 'position_offset', 'norm_eps', 'activation', 'zero_row', 'pooler_activation',
  'pooler_dropout',
)  # fmt: skip
STILL = dict(head_dropout=0.0, dropout=0.0, attention_dropout=0.0)
OWN = dict(
  modernbert=dict(window=3, theta=160_000.0),
  xlnet=dict(mem_len=0),
  deberta_v3=dict(types=0, buckets=16),
  distilbert=dict(types=0),
  xlm=dict(ffn=4 * SIZE['width'], types=0, extra=(('language', LANGUAGES),)),
)


def config(family: str, **model):
  """A config of SIZE without dropout and without a head for words, of ELECTRA the discriminator's;
  `model` has the heads."""
  c = cases.config('bert' if family == 'distilbert' else family)
  if family == 'distilbert':  # whose recipe has one size
    c.model.update({key: x for key, x in distilbert.recipe().model.items() if key in OF_DISTILBERT})
  known = {key: value for key, value in (SIZE | STILL).items() if key in c.model}
  words = dict(words=False) if 'words' in c.model else {}
  c.model.update(known | OWN.get(family, {}) | words | model)
  c.objective.update(lm=0.0, smoothing=0.0, class_weights=())
  if family in ('electra', 'deberta_v3'):
    c.model = ConfigDict(models.factory(c.model).encoder.model(c.model))
  return c


def check_dropout(objective, batch, term):
  """The head's input is dropped in training alone."""
  batch = with_rows(batch)
  variables = cases.variables(objective.init, batch)

  @functools.partial(jax.jit, static_argnums=1)
  def loss(step, train):
    ctx = Context(jax.random.key(step), np.int32(0), train=train)
    return objective.loss(variables, (), batch, ctx).terms[term].total

  assert loss(0, False) == loss(1, False) and loss(0, True) != loss(1, True)


def known(model, **inputs):
  """Those inputs that a model of transformers takes, as tensors: some know no segments."""
  names = inspect.signature(model.forward).parameters
  return {k: torch.tensor(np.asarray(x)) for k, x in inputs.items() if k in names}


def run(model, **inputs):
  """(state, loss, logits, gradients) of a model of transformers, in NumPy."""
  out = model(**known(model, **inputs))
  out.loss.backward()
  logits = out.logits.detach().numpy()
  return torch_models.state_of(model), out.loss.item(), logits, gradients(model)


def run_spans(model, start, end, **inputs):
  """As `run`, of a class for questions, whose logits are [B, T, 2]; where rows are padded, the loss
  is the mean of two cross-entropies that leave padding out, as theirs does not."""
  given = known(model, **inputs, start_positions=start, end_positions=end)
  out, padding = model(**given), given['attention_mask'] == 0
  loss = out.loss
  if padding.any():
    cross = torch.nn.functional.cross_entropy
    real = [x.masked_fill(padding, -torch.inf) for x in (out.start_logits, out.end_logits)]
    loss = (cross(real[0], torch.tensor(start)) + cross(real[1], torch.tensor(end))) / 2
  loss.backward()
  logits = torch.stack([out.start_logits, out.end_logits], -1).detach().numpy()
  return torch_models.state_of(model), loss.item(), logits, gradients(model)


def compared(objective, c, batch, found, ours):
  """Holds loss and logits against those of `run`; the gradients, ours and theirs, to be compared.

  Args:
    objective: of the config c.
    c: its config.
    batch: what both read.
    found: of `run` or `run_spans`.
    ours: (what `objective.predict` gives, their logits) -> the pair that is to be the same.
  """
  state, their_loss, their_logits, their_gradients = found
  params = state_dicts.from_huggingface(state, c.model)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  out = jax.jit(objective.predict)(dict(params=params), (), batch)
  parity.close(*ours(out, their_logits), parity.LOGITS, 'logits')
  assert abs(loss - their_loss) <= parity.LOSS * their_loss
  return gradients, state_dicts.from_huggingface(their_gradients, c.model)


def close_but_for_the_bias(head, gradients, expected):
  """The gradients; of a head's bias, and of the norm's before it, that both are 0: a softmax over
  all does not see what they share."""
  for each in (expected, gradients):
    for name in (head, 'final_norm'):
      assert name not in each or np.abs(each[name].pop('bias', 0)).max() < 1e-6
  parity.close_gradients(gradients, expected)


def tagged(batch, classes):
  """Gives some tokens of the batch a tag; the labels as transformers takes them."""
  rng, shape = np.random.default_rng(1), batch['example_BT'].shape
  begins_BT = (batch['example_BT'] > 0) & (rng.random(shape) < 0.6)
  batch['tag_BT'] = rng.integers(0, classes, shape).astype(np.int32) * begins_BT
  batch['tag_weight_BT'] = begins_BT.astype(np.float32)
  return np.where(begins_BT, batch['tag_BT'], -100).astype(np.int64)


CHOICES = [(17, 9, 12), (5, 20, 14)]  # tokens of the parts


def unpacked(batch, x_BT, left=False):
  """Of a batch of CHOICES the parts as transformers takes them: int64 [B, G, T], 0 behind their
  tokens, or before them."""
  out = np.zeros((2, 3, 20), np.int64)
  for b, parts in enumerate(CHOICES):
    for g, count in enumerate(parts):
      place = slice(20 - count, 20) if left else slice(count)
      out[b, g, place] = x_BT[b, batch['example_BT'][b] == g + 1]
  return out


def gradients(model):
  """Of each parameter of a model of transformers; 0 where there is none."""
  return {
    k: np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy()
    for k, p in model.named_parameters()
  }
