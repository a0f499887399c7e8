"""The same training step in PyTorch `transformers`, as it ships: all logits, its default attention,
fused AdamW. Its two ELECTRA classes are joined by the usual loop: shared embeddings, a multinomial
draw at the targets."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from bertjax.errors import UserError
from bertjax.models.electra import generator_size
from bertjax.types import Batch

ACTIVATIONS = {'gelu_tanh': 'gelu_new', 'gelu_erf': 'gelu', 'relu': 'relu'}


class Electra(torch.nn.Module):
  """ElectraForMaskedLM and ElectraForPreTraining in one step, like `objectives/rtd.py`."""

  def __init__(self, config: Any):
    super().__init__()
    model, objective = config.model, config.objective
    needed = dict(generator='own', tied_embeddings=True, train='both', temperature=1.0)
    got = {key: (model if key in model else objective)[key] for key in needed}
    if got != needed:
      raise UserError(f'--against=transformers needs {needed}, got {got}')
    table = dict(embedding_size=model.embedding_width or model.width, pad_token_id=0)
    own = model.copy_and_resolve_references()
    own.update(generator_size(model))
    self.generator = transformers.ElectraForMaskedLM(
      transformers.ElectraConfig(**fields_of(own), **table)
    )
    self.judge = transformers.ElectraForPreTraining(
      transformers.ElectraConfig(**fields_of(model), **table)
    )
    self.generator.electra.embeddings = self.judge.electra.embeddings
    words = self.judge.electra.embeddings.word_embeddings
    self.generator.generator_lm_head.weight = words.weight
    self.weights = (objective.generator_weight, objective.discriminator_weight)

  def forward(self, input_ids: torch.Tensor, labels: torch.Tensor, **rest: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the classes do."""
    made = self.generator(input_ids, labels=labels, **rest)
    chosen = labels >= 0
    original = torch.where(chosen, labels, input_ids)
    fake = original.clone()
    with torch.no_grad():
      fake[chosen] = torch.multinomial(made.logits[chosen].softmax(-1), 1)[:, 0]
    judged = self.judge(fake, labels=(fake != original).long(), **rest)
    made.loss = self.weights[0] * made.loss + self.weights[1] * judged.loss
    return made


class XLNet(torch.nn.Module):
  """XLNetLMHeadModel, which gets the memory that it left; both streams, logits at the targets."""

  def __init__(self, config: Any):
    super().__init__()
    m = config.model
    needed = dict(untie_r=True, dtype='float32')
    got = {key: m[key] for key in needed}
    if got != needed or m.dropout != m.attention_dropout:
      raise UserError(
        f'--against=transformers needs config.model with {needed} and one rate of dropout, got '
        f'{got} and {m.dropout}, {m.attention_dropout}'
      )
    self.inner = transformers.XLNetLMHeadModel(
      transformers.XLNetConfig(
        vocab_size=m.vocab_size, d_model=m.width, n_layer=m.layers, n_head=m.heads, d_inner=m.ffn,
        ff_activation=ACTIVATIONS[m.activation], layer_norm_eps=m.norm_eps, mem_len=m.mem_len,
        reuse_len=m.reuse_len, clamp_len=m.clamp_len or -1, dropout=m.dropout,
        bi_data=config.data.plan.both_directions and config.batch_size % 2 == 0,
      )
    )  # fmt: skip
    zeros = torch.zeros(m.mem_len, config.batch_size, m.width)
    self.mems = [zeros] * m.layers if m.mem_len else None

  def forward(self, **inputs: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the class does."""
    out = self.inner(**inputs, mems=self.mems, use_mems=self.mems is not None)
    self.mems = out.mems
    return out


def fields_of(model: Any) -> dict[str, Any]:
  """The fields of `config.model` under the names of transformers.

  Raises:
    UserError: a model that has no counterpart.
  """
  needed = dict(sharing='none', attend='example', transform=True, extra=(), dtype='float32')
  got = {key: model[key] for key in needed}
  if got != needed or model.name not in ('bert', 'electra'):
    raise UserError(
      f"--against=transformers needs config.model with name='bert' or 'electra' and {needed}, got "
      f'name={model.name!r} and {got}'
    )
  return dict(
    vocab_size=model.vocab_size, hidden_size=model.width, num_hidden_layers=model.layers,
    num_attention_heads=model.heads, intermediate_size=model.ffn,
    max_position_embeddings=model.positions, type_vocab_size=model.types,
    layer_norm_eps=model.norm_eps, hidden_act=ACTIVATIONS[model.activation],
    hidden_dropout_prob=model.dropout, attention_probs_dropout_prob=model.attention_dropout,
  )  # fmt: skip


def make_model(config: Any) -> torch.nn.Module:
  """BertForPreTraining, BertForMaskedLM, RobertaForMaskedLM, XLNetLMHeadModel or ELECTRA's two.

  Raises:
    UserError: a model that has no counterpart.
  """
  model = config.model
  if model.name == 'electra':
    return Electra(config)
  if model.name == 'xlnet':
    return XLNet(config)
  common = fields_of(model)
  if model.position_offset:
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(pad_token_id=1, **common))
  config = transformers.BertConfig(pad_token_id=0, **common)
  kind = transformers.BertForPreTraining if model.labels else transformers.BertForMaskedLM
  return kind(config)


def make_step(config: Any, batch: Batch) -> Callable[[], None]:
  """Their train step as a call that runs it once on its own state."""
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.manual_seed(config.seed)
  model = make_model(config).train()
  o = config.optimizer
  matrices = [p for p in model.parameters() if p.ndim > 1]
  vectors = [p for p in model.parameters() if p.ndim == 1]
  groups = [
    dict(params=matrices, weight_decay=o.weight_decay),
    dict(params=vectors, weight_decay=0.0),
  ]
  optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(o.b1, o.b2), eps=o.eps, fused=True)
  if config.model.name == 'xlnet':
    inputs = _permuted(batch)
  else:
    inputs = _inputs(batch, with_next=bool(config.model.labels))

  def call() -> None:
    loss = model(**inputs).loss
    loss.backward()
    if o.clip:
      torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip)
    optimizer.step()
    optimizer.zero_grad()

  return call


def _inputs(batch: Batch, with_next: bool) -> dict[str, torch.Tensor]:
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  labels_BT = np.full(batch['token_BT'].shape, -100)
  np.put_along_axis(labels_BT, np.asarray(batch['target_pos_BP']), batch['target_BP'], axis=1)
  inputs = dict(
    input_ids=tensor(batch['token_BT']),
    attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']),
    labels=tensor(labels_BT),
  )
  if with_next:
    inputs['next_sentence_label'] = tensor(batch['next_BG'][:, 0])
  return inputs


def _permuted(batch: Batch) -> dict[str, torch.Tensor]:
  tensor = lambda x, kind: torch.tensor(np.asarray(x), dtype=kind)
  hidden_BTT = batch['order_q_BT'][:, :, None] <= batch['order_k_BT'][:, None, :]
  mapping_BPT = np.eye(hidden_BTT.shape[1])[batch['target_pos_BP']]
  return dict(
    input_ids=tensor(batch['token_BT'], torch.long),
    token_type_ids=tensor(batch['type_BT'], torch.long),
    perm_mask=tensor(hidden_BTT, torch.float32),
    target_mapping=tensor(mapping_BPT, torch.float32),
    labels=tensor(batch['target_BP'], torch.long),
  )
