"""The sides that ours are compared with: of the step, the same one in PyTorch; of the input, the
masked-LM collator of transformers.

The step is a class of `transformers`, its own attention, fused AdamW or torch's Adafactor; of ELMo
and AWD-LSTM, torch.nn.LSTM, of ELMo with torch's Adagrad. The class is the one that the model goes
out as (`formats/config_json.py`). As they ship, BERT, RoBERTa, ELECTRA and DeBERTa compute the
logits of all positions; of GPT and T5 all are targets.
"""

import dataclasses
import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from ml_collections import ConfigDict

from bertjax import models
from bertjax.errors import UserError
from bertjax.examples.examples import Examples
from bertjax.examples.noise import causal
from bertjax.formats import config_json
from bertjax.models import deberta_v3
from bertjax.options import NoOptions
from bertjax.tools.bench.parts.rival_lstm import AWDLSTM, ELMo
from bertjax.types import Batch

# Family -> its class's module from states to logits, which may be given the targets' states alone.
HEADS = dict(bert='cls.predictions', ernie='cls.predictions', roberta='lm_head')


def net_of(model: Any, **more: Any) -> torch.nn.Module:
  """Builds the class of transformers for `config.model` in float32, with random weights; `more` are
  fields of its config.json. Raises UserError: no class holds the model."""
  fields = config_json.write(model, {}, 'float32') | more
  kind = getattr(transformers, fields['architectures'][0])
  return kind(kind.config_class(**fields))


def generator_of(model: Any) -> Any:
  """Builds the generator of a pair of nets, without DeBERTa's decoder of masked words, which no
  class has."""
  bare = ConfigDict({**model, 'decoder': False})
  return net_of(ConfigDict(models.factory(model).beside(bare)['generator'].model(model)))


class Electra(torch.nn.Module):
  """ElectraForMaskedLM and ElectraForPreTraining in one step, like `objectives/rtd.py`: shared
  embeddings, a multinomial draw at the targets."""

  def __init__(self, config: Any):
    super().__init__()
    model, objective = config.model, config.objective
    needed = dict(generator='own', tied_embeddings=True, train='both', temperature=1.0)
    got = {key: (model if key in model else objective)[key] for key in needed}
    if got != needed:
      raise UserError(f'--against=transformers needs {needed}, got {got}')
    self.generator, self.judge = self.nets(model)
    self.weights = (objective.generator_weight, objective.discriminator_weight)

  def nets(self, model: Any) -> tuple[Any, Any]:
    """Builds the generator and the discriminator, which share their embeddings."""
    generator = generator_of(model)
    judge: Any = net_of(model)
    generator.electra.embeddings = judge.electra.embeddings
    generator.generator_lm_head.weight = judge.electra.embeddings.word_embeddings.weight
    return generator, judge

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


class DebertaV3(Electra):
  """DebertaV2ForMaskedLM and DebertaV2Model with a head of one logit, in one step like ELECTRA's.
  The generator scores what its last layer gives; there is no class with the decoder of masked
  words. Both have one word table, with the gradients of both."""

  def nets(self, model: Any) -> tuple[Any, Any]:
    """Builds the generator and the discriminator."""
    generator = generator_of(model)
    judge = Judge(net_of(ConfigDict(deberta_v3.MODEL.encoder.model(model))), model.width)
    words = judge.net.embeddings.word_embeddings
    generator.deberta.embeddings.word_embeddings = words
    return generator, judge


class Judge(torch.nn.Module):
  """An encoder with a head of one logit a token."""

  def __init__(self, net: Any, width: int):
    super().__init__()
    nn = torch.nn
    self.net = net
    self.head = nn.Sequential(
      nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
    )

  def forward(
    self, input_ids: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor,
    token_type_ids: torch.Tensor,
  ) -> Any:  # fmt: skip
    """Returns an output with `loss`, the mean over real tokens."""
    x = self.net(input_ids, attention_mask, token_type_ids).last_hidden_state
    logits, real = self.head(x + x[:, :1])[..., 0], attention_mask > 0
    judged = torch.nn.functional.binary_cross_entropy_with_logits
    return types.SimpleNamespace(loss=judged(logits[real], labels[real].float()))


class XLNet(torch.nn.Module):
  """XLNetLMHeadModel, which gets the memory that it left; both streams, logits at the targets."""

  def __init__(self, config: Any):
    super().__init__()
    m = config.model
    both = config.data.plan.both_directions and config.batch_size % 2 == 0
    self.inner = net_of(m, bi_data=both, mem_len=m.mem_len, reuse_len=m.reuse_len)
    zeros = torch.zeros(m.mem_len, config.batch_size, m.width)
    self.mems = [zeros] * m.layers if m.mem_len else None

  def forward(self, **inputs: torch.Tensor) -> Any:
    """Returns an output with `loss`, as the class does."""
    out = self.inner(**inputs, mems=self.mems, use_mems=self.mems is not None)
    self.mems = out.mems
    return out


# Name of a model -> its rival, where that is no class of transformers alone.
OWN: dict[str, Callable[[Any], torch.nn.Module]] = dict(
  electra=Electra, deberta_v3=DebertaV3, xlnet=XLNet, elmo=ELMo, awd_lstm=AWDLSTM
)


def make(config: Any) -> torch.nn.Module:
  """Returns the rival of a run's config, a module whose output has `loss`. Raises UserError as
  `net_of`."""
  own = OWN.get(config.model.name)
  return own(config) if own else net_of(config.model)


def inputs_of(config: Any, batch: Batch) -> dict[str, torch.Tensor]:
  """Returns a batch with targets as the arguments of the rival."""
  tensor = lambda x, kind=torch.long: torch.tensor(np.asarray(x), dtype=kind)
  if 'characters' in config.model:  # ELMo reads both directions
    name = 'character' if config.model.characters else 'token'
    find = lambda key: tensor(next(x for k, x in batch.items() if k.startswith(f'{key}_B')))
    ways = dict(read_0=name, read_1=f'out_{name}')
    found = {key: find(of) for key, of in ways.items()}
    return found | dict(target_0=tensor(batch['target_BT']), target_1=tensor(batch['target_BU']))
  inputs = dict(input_ids=tensor(batch['token_BT']))
  if 'out_token_BU' in batch:
    return inputs | dict(
      attention_mask=tensor(batch['example_BT'] > 0),
      decoder_input_ids=tensor(batch['out_token_BU']),
      labels=tensor(np.where(batch['weight_BU'] > 0, batch['target_BU'], -100)),
    )
  if 'cells' in config.model:  # AWD-LSTM's columns, of which each predicts
    return inputs | dict(labels=tensor(targets_of(batch)))
  if config.objective.name == 'lm':  # the class moves labels by itself
    labels_BT = np.where(batch['example_BT'] > 0, batch['token_BT'], -100)
    return inputs | dict(labels=tensor(labels_BT))
  inputs['token_type_ids'] = tensor(batch['type_BT'])
  if 'order_q_BT' in batch:  # what unused slots predict is left out
    hidden_BTT = batch['order_q_BT'][:, :, None] <= batch['order_k_BT'][:, None, :]
    mapping_BPT = np.eye(hidden_BTT.shape[1])[batch['target_pos_BP']]
    return inputs | dict(
      perm_mask=tensor(hidden_BTT, torch.float32),
      target_mapping=tensor(mapping_BPT, torch.float32),
      labels=tensor(np.where(batch['weight_BP'] > 0, batch['target_BP'], -100)),
    )
  inputs |= dict(attention_mask=tensor(batch['example_BT'] > 0), labels=tensor(targets_of(batch)))
  if 'next' in dict(config.model.labels):
    inputs['next_sentence_label'] = tensor(batch['next_BG'][:, 0])
  return inputs


def targets_of(batch: Batch) -> np.ndarray:
  """Returns the targets of a batch at their places, -100 elsewhere: int [B, T]."""
  row_S, slot_S = np.nonzero(batch['weight_BP'])
  labels_BT = np.full(batch['token_BT'].shape, -100)
  labels_BT[row_S, batch['target_pos_BP'][row_S, slot_S]] = batch['target_BP'][row_S, slot_S]
  return labels_BT


def make_step(config: Any, batch: Batch, arm: str = 'transformers') -> Callable[[], torch.Tensor]:
  """Returns their train step as a call that runs it once on its own state and returns the loss
  before it: 'transformers' as it ships, 'gathered' with the logits of the targets alone, or
  'compiled' by torch.compile, gathered where the family lets it. Raises UserError if the model has
  no counterpart, or none with the targets alone. It runs on a GPU where there is one, in bfloat16
  by autocast where the run's model computes in it."""
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  torch.set_default_device(device)
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.manual_seed(config.seed)
  family = config.model.family
  if arm == 'gathered' and family not in HEADS:
    raise UserError(
      f'--against={arm}: the rival of {family} takes no targets alone: expected transformers or '
      'compiled'
    )
  model, inputs = make(config).train(), inputs_of(config, batch)
  if family in HEADS and arm != 'transformers':
    inputs['labels'] = gather_targets(model.get_submodule(HEADS[family]), inputs['labels'])
  run = torch.compile(model) if arm == 'compiled' else model
  o = config.optimizer
  matrices = [p for p in model.parameters() if p.ndim > 1]
  vectors = [p for p in model.parameters() if p.ndim == 1]
  groups = [
    dict(params=matrices, weight_decay=o.get('weight_decay', 0.0)),
    dict(params=vectors, weight_decay=0.0),
  ]
  if o.name == 'adafactor':
    optimizer = torch.optim.Adafactor(groups, lr=1e-5)
  elif o.name == 'adagrad':
    optimizer = torch.optim.Adagrad(groups, 1e-5, initial_accumulator_value=o.accumulator)
  else:
    optimizer = torch.optim.AdamW(groups, lr=1e-5, betas=(o.b1, o.b2), eps=o.eps, fused=True)

  def call() -> torch.Tensor:
    with torch.autocast(device, torch.bfloat16, enabled=config.model.dtype == 'bfloat16'):
      loss = run(**inputs).loss
    loss.backward()
    if o.clip:
      torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip)
    optimizer.step()
    optimizer.zero_grad()
    if device == 'cuda':
      torch.cuda.synchronize()
    return loss.detach()

  return call


def gather_targets(head: torch.nn.Module, labels_BT: torch.Tensor) -> torch.Tensor:
  """Lets the head compute logits where there are labels alone; returns those labels, [n]."""
  row_n, column_n = torch.nonzero(labels_BT >= 0, as_tuple=True)
  head.register_forward_pre_hook(lambda module, given: (given[0][row_n, column_n],))
  return labels_BT[row_n, column_n]


def features(examples: Examples, batch_size: int, batches: int) -> list[list[dict[str, Any]]]:
  """Returns the rows of the first batches as a tokenizer returns them: lists of the real tokens."""
  # The causal masking hides nothing.
  shown = dict(masking=causal.MASKING, mask_options=NoOptions())
  plain = dataclasses.replace(examples, recipe=examples.recipe._replace(**shown))
  special = [examples.store.special[name] for name in ('cls', 'sep')]
  out = []
  for first in range(0, batch_size * batches, batch_size):
    batch = plain.batch(np.arange(first, first + batch_size), shuffle=True)
    rows = zip(batch['token_BT'], batch['type_BT'], batch['example_BT'] > 0, strict=True)
    out.append([
      dict(
        input_ids=token[real].tolist(), token_type_ids=kind[real].tolist(),
        special_tokens_mask=np.isin(token[real], special).astype(int).tolist(),
      )
      for token, kind, real in rows
    ])  # fmt: skip
  return out


def collator(store: Any, rate: float, kind: str) -> Callable:
  """Returns `DataCollatorForLanguageModeling` with the store's special tokens, which masks this
  share of the tokens, on its torch path ('pt') or its NumPy path ('np')."""
  transformers.logging.set_verbosity_error()
  # The collator asks the tokenizer for the special ids and the number of ids alone.
  vocabulary = {f'[id {i}]': i for i in range(store.vocabulary_size)}
  vocabulary = {token: i for token, i in vocabulary.items() if i not in store.special.values()}
  names = {f'{name}_token': f'[{name.upper()}]' for name in ('pad', 'unk', 'cls', 'sep', 'mask')}
  vocabulary |= {f'[{name.upper()}]': i for name, i in store.special.items()}
  model = tokenizers.models.WordLevel(vocabulary, unk_token='[UNK]')
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(model), **names
  )
  return transformers.DataCollatorForLanguageModeling(
    tokenizer, mlm_probability=rate, return_tensors=kind
  )
