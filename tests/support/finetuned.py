"""Random models of transformers with heads of fine-tuning, and their gradients beside ours."""

import cases
import jax
import numpy as np
import torch

from bertjax.convert.families import electra_net
from bertjax.train.step import with_rows
from bertjax.types import Context

SIZE = dict(width=36, heads=3, ffn=52, positions=45, types=3)
ACTS = dict(gelu_tanh='gelu_new', gelu_erf='gelu', relu='relu')


def config(family: str, **model):
  """A config of SIZE without dropout and without a head for words, of ELECTRA the discriminator's;
  `model` has the heads."""
  still = dict(head_dropout=0.0, dropout=0.0, attention_dropout=0.0)
  c = cases.config(family, words=False, **SIZE, **still, **model)
  if family == 'electra':
    c.model = electra_net.discriminator_of(c.model)
  return c


def random_model(kind, config_class, c, **more):
  """A model of transformers of the shape of `config`, every parameter of it random.

  Args:
    kind: its class.
    config_class: of its config.
    c: of ours.
    **more: further fields of its config.
  """
  torch.manual_seed(0)
  if c.model.embedding_width:
    more |= dict(embedding_size=c.model.embedding_width)
  model = kind(config_class(
    vocab_size=cases.VOCAB, hidden_size=36, num_hidden_layers=c.model.layers,
    num_attention_heads=3, intermediate_size=52, max_position_embeddings=45, type_vocab_size=3,
    layer_norm_eps=c.model.norm_eps, hidden_act=ACTS[c.model.activation], **more,
  )).eval()  # fmt: skip
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      parameter.normal_(1.0 if 'Norm.weight' in name else 0.0, 0.1)
  return model


def check_dropout(objective, batch, term):
  """The head's input is dropped in training alone."""
  batch = with_rows(batch)
  variables = jax.jit(objective.init)(jax.random.key(0), batch)

  def loss(step, train):
    ctx = Context(jax.random.key(step), np.int32(0), train=train)
    return float(objective.loss(variables, (), batch, ctx).terms[term].total)

  assert loss(0, False) == loss(1, False) and loss(0, True) != loss(1, True)


def run(model, **inputs):
  """(state, loss, logits, gradients) of a model of transformers, in NumPy."""
  out = model(**{name: torch.tensor(np.asarray(x)) for name, x in inputs.items()})
  out.loss.backward()
  gradients = {k: p.grad.numpy() for k, p in model.named_parameters()}
  state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
  return state, out.loss.item(), out.logits.detach().numpy(), gradients
