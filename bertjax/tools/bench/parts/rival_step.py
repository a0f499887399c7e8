"""The same training step in PyTorch `transformers`: default attention, fused AdamW or Adafactor.

As it ships, BERT, RoBERTa and ELECTRA compute the logits of all positions; of GPT and T5 these are
the targets. The model of each family is a file of `rivals/`.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from bertjax import registry
from bertjax.errors import UserError
from bertjax.formats import config_json
from bertjax.types import Batch

ACTIVATIONS = {'gelu_tanh': 'gelu_new', 'gelu_erf': 'gelu', 'relu': 'relu'}


class Rival(NamedTuple):
  """The library that our model is timed against: rivals/FAMILY.py exports it as RIVAL."""

  make: Callable[[Any], torch.nn.Module]  # a run's config -> a torch module whose output has `loss`
  # (config, batch) -> the module's arguments
  inputs: Callable[[Any, Batch], dict[str, torch.Tensor]]
  # its module from states to logits, where that may be given the targets' states alone
  head: str = ''


def rival_of(config: Any) -> Rival:
  """Returns the rival of `config.model.family`. Raises UserError: a family that has none; says
  which have."""
  return registry.find(
    'bertjax.tools.bench.rivals', config.model.family, 'config.model.family'
  ).RIVAL


def fields_of(model: Any) -> dict[str, Any]:
  """Returns the fields of `config.model` under the names of transformers. Raises UserError: a model
  that has no counterpart."""
  needed = dict(sharing='none', attend='example', transform=True, extra=(), dtype='float32')
  got = {key: model[key] for key in needed}
  if got != needed:
    raise UserError(f'--against=transformers needs config.model with {needed}, got {got}')
  return dict(
    vocab_size=model.vocab_size, hidden_size=model.width, num_hidden_layers=model.layers,
    num_attention_heads=model.heads, intermediate_size=model.ffn,
    max_position_embeddings=model.positions, type_vocab_size=model.types,
    layer_norm_eps=model.norm_eps, hidden_act=ACTIVATIONS[model.activation],
    hidden_dropout_prob=model.dropout, attention_probs_dropout_prob=model.attention_dropout,
  )  # fmt: skip


def exported(config: Any) -> torch.nn.Module:
  """Returns the class that the model is exported to, by its config.json. Raises UserError: none."""
  if config.model.dtype != 'float32':
    raise UserError(f"--against needs config.model.dtype='float32', got {config.model.dtype!r}")
  fields = config_json.write(config.model, {}, 'float32')
  kind = getattr(transformers, fields['architectures'][0])
  return kind(kind.config_class(**fields))


def make_step(config: Any, batch: Batch, arm: str = 'transformers') -> Callable[[], torch.Tensor]:
  """Returns their train step as a call that runs it once on its own state and returns the loss
  before it: 'transformers' as it ships, 'gathered' with the logits of the targets alone, or
  'compiled' by torch.compile, gathered where the family lets it. Raises UserError if the model has
  no counterpart, or none with the targets alone."""
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.manual_seed(config.seed)
  rival = rival_of(config)
  if arm == 'gathered' and not rival.head:
    raise UserError(
      f'--against={arm}: the rival of {config.model.family} takes no targets alone: expected '
      'transformers or compiled'
    )
  model = rival.make(config).train()
  inputs = rival.inputs(config, batch)
  if rival.head and arm != 'transformers':
    inputs['labels'] = gather_targets(model.get_submodule(rival.head), inputs['labels'])
  run = torch.compile(model) if arm == 'compiled' else model
  o = config.optimizer
  matrices = [p for p in model.parameters() if p.ndim > 1]
  vectors = [p for p in model.parameters() if p.ndim == 1]
  groups = [
    dict(params=matrices, weight_decay=o.weight_decay),
    dict(params=vectors, weight_decay=0.0),
  ]
  if o.name == 'adafactor':
    optimizer = torch.optim.Adafactor(groups, lr=1e-5)
  else:
    optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(o.b1, o.b2), eps=o.eps, fused=True)

  def call() -> torch.Tensor:
    loss = run(**inputs).loss
    loss.backward()
    if o.clip:
      torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

  return call


def gather_targets(head: torch.nn.Module, labels_BT: torch.Tensor) -> torch.Tensor:
  """Lets the head compute logits where there are labels alone; returns those labels, [n]."""
  row_n, column_n = torch.nonzero(labels_BT >= 0, as_tuple=True)
  head.register_forward_pre_hook(lambda module, given: (given[0][row_n, column_n],))
  return labels_BT[row_n, column_n]


def make_product(rows: int, inner: int, columns: int) -> Callable[[], Any]:
  """Returns a float32 product of matrices of these sizes, by PyTorch."""
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  left, right = torch.rand(rows, inner), torch.rand(inner, columns)
  return lambda: left @ right


def masked_inputs(config: Any, batch: Batch) -> dict[str, torch.Tensor]:
  """Returns a batch with targets as the arguments of BERT's classes."""
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  row_S, slot_S = np.nonzero(batch['weight_BP'])
  labels_BT = np.full(batch['token_BT'].shape, -100)
  labels_BT[row_S, batch['target_pos_BP'][row_S, slot_S]] = batch['target_BP'][row_S, slot_S]
  inputs = dict(
    input_ids=tensor(batch['token_BT']),
    attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']),
    labels=tensor(labels_BT),
  )
  if 'next' in dict(config.model.labels):
    inputs['next_sentence_label'] = tensor(batch['next_BG'][:, 0])
  return inputs
