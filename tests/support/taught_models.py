"""A student of two layers and a wider teacher of four: ours, and BertModel of transformers."""

import cases
import finetuned
import flax.linen as nn
import jax
import numpy as np
import parity
import state_dicts
import torch_models
from ml_collections import ConfigDict
from slow_imports import torch

from bertjax.config import sections
from bertjax.types import TEACHER

ENCODER = dict(words=False, labels=(), pooler=False, types=3, positions=45)
STUDENT = dict(ENCODER, layers=2, width=24, heads=3, ffn=40, dropout=0.0, attention_dropout=0.0)
SHAPE_OF_TEACHER = dict(ENCODER, layers=4, width=36, heads=3, ffn=52)


def config(objective, student=()):
  """A config with this objective, whose student has these further fields."""
  c = cases.config('bert', **STUDENT | dict(student))
  c.length = 40
  c.objective = ConfigDict(dict(objective))
  sections.complete(c)
  c.objective.teacher.model = cases.config('bert', **SHAPE_OF_TEACHER).model
  return c


def pair(c):
  """Student and teacher of a config as models of transformers."""
  found = []
  for seed, model in enumerate((c.model, c.objective.teacher.model), 1):
    shape = ConfigDict(dict(model, pooler=True))  # as BertModel has it
    found.append(torch_models.like(shape, 'BertModel', 0.3, seed))
    found[-1].pooler = None
  return found


def run(model, batch):
  """Name -> [B, T, D] of each layer's query, key and value; and what the model returns."""
  kept = {name: [] for name in ('query', 'key', 'value')}
  for layer in model.encoder.layer:
    for name, found in kept.items():
      module = getattr(layer.attention.self, name)
      module.register_forward_hook(lambda _, given, out, found=found: found.append(out))
  tensor = lambda x: torch.tensor(np.asarray(x)).long()
  out = model(
    tensor(batch['token_BT']), attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']), output_attentions=True, output_hidden_states=True,
  )  # fmt: skip
  return kept, out


def ours_of(state, model):
  """A state dict as our parameters."""
  return state_dicts.from_huggingface({k: v.detach().numpy() for k, v in state.items()}, model)


def gradients_of(student, model):
  """Those of a model of transformers as of our parameters; 0 where there is none."""
  return state_dicts.from_huggingface(finetuned.gradients(student), model)


def check(objective, c, student, teacher, loss, batch):
  """Holds loss and gradients of an objective against a loss of torch on models of transformers."""
  loss.backward()
  theirs = ours_of(teacher.state_dict(), c.objective.teacher.model)
  params = ours_of(student.state_dict(), c.model)
  found, gradients = parity.loss_and_gradients(objective, params, batch, teacher=theirs)
  assert abs(found - loss.item()) <= parity.LOSS * abs(loss.item())
  parity.close_gradients(gradients, gradients_of(student, c.model))


def random_both(objective, batch):
  """Random parameters of student and teacher."""
  variables = nn.meta.unbox(jax.eval_shape(objective.init, jax.random.key(0), batch))
  draw = lambda name, seed: cases.random_params(variables[name], 0.3, seed)
  return draw('params', 0), draw(TEACHER, 1)
