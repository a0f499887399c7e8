"""Output heads: the list of a model's heads, the word table as an output layer, and the heads of
labels and tags; those of answers are in answers.py."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from bertjax.kernels import mesh
from bertjax.kernels.adaptive_softmax import AdaptiveScores, log_probabilities
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import (
  ACTIVATIONS,
  Dense,
  Dropout,
  Init,
  Norm,
  NormKind,
  affine_inits,
  param,
)
from bertjax.types import Array, Batch

Pooling = Literal['first', 'mean']  # of which token labels of examples are
PoolerActivation = Literal['tanh', 'gelu_erf', 'relu', 'none']
RIGHT = 'right'  # the label of choices: which part of a row is right
POOLERS = dict(tanh=jnp.tanh, gelu_erf=ACTIVATIONS['gelu_erf'], relu=ACTIVATIONS['relu'])


class Head(NamedTuple):
  """A head of a model: what it can do beside giving states. `Model.output_heads` is the list."""

  # 'word': scores of the vocabulary at the targets; 'boundary': the same off the tokens around a
  # span; 'replaced': a logit of each token; 'text': a label of each packed example; 'token': a
  # label of each token; 'answers': spans whose end is asked for behind a start; 'pooled': a vector
  # of each packed example, read by no label
  kind: Literal['word', 'boundary', 'replaced', 'text', 'token', 'answers', 'pooled']
  name: str  # of the label; else that of the kind, of answers their form
  classes: int  # C; 0: as many as labelled examples have
  path: str  # its subtree of the parameters; '': none of its own
  # subtree of the layers between states and head, which others may share; '': none
  through: str = ''


def declared(model: Any, word: str = 'mlm', through: str = '') -> tuple[Head, ...]:
  """Returns the heads that the fields words, pooler, labels, token_labels and answers of a model
  ask for; one that lacks a field has no such head, but words, whose subtree is `word`. `through` is
  that of the layers that heads of labels read through; '': the pooler, of texts."""
  get = lambda key, default: getattr(model, key, default)
  size, answers = get('vocab_size', 0), get('answers', 'none')
  pooler = '' if get('pooler_activation', '') == 'none' else 'pooler'
  found = [Head('word', 'word', size, word)] if get('words', True) else []
  found += [Head('pooled', 'pooled', 0, 'pooler')] if get('pooler', False) else []
  found += [Head('text', name, n, name, through or pooler) for name, n in get('labels', ())]
  found += [Head('token', name, n, name, through) for name, n in get('token_labels', ())]
  found += [Head('answers', answers, 0, 'answers')] if answers != 'none' else []
  return tuple(found)


def fields(words: bool, heads: Sequence[Head]) -> dict[str, Any]:
  """Returns the fields of `config.model` that ask for these heads: `declared` the other way."""
  named = lambda kind: tuple((head.name, head.classes) for head in heads if head.kind == kind)
  return dict(
    words=words, pooler=bool(named('pooled')), labels=named('text'), token_labels=named('token'),
    answers=next((name for name, _ in named('answers')), 'none'),
  )  # fmt: skip


class Transform(nn.Module):
  """dense -> activation -> norm."""

  activation: str
  norm_eps: float
  initializer: Init
  dtype: Any = jnp.float32
  norm: NormKind = 'layer_norm'
  biases: bool = True

  @nn.compact
  def __call__(self, h_BPD: Array) -> Array:
    return transform(self, h_BPD, h_BPD.shape[-1])


class WordHead(nn.Module):
  """Scores of the vocabulary at gathered positions, over a word table whose rows beyond vocab_size
  are padding."""

  vocab_size: int
  initializer: Init
  dtype: Any = jnp.float32
  # dense -> activation -> norm to the width of the table first (BERT); without it the hidden states
  # meet the table as they are (XLM). The four below: of these.
  transform: bool = False
  activation: str = ''
  norm_eps: float = 1e-12
  norm: NormKind = 'layer_norm'
  biases: bool = True
  word_bias: bool = True  # the words have a bias; GPT's and T5's have none
  # of the hidden states before they meet the table; T5's with a tied one is D^-0.5
  factor: float = 1.0

  @nn.compact
  def __call__(self, h_BPD: Array, table_VE: Array) -> Scores:
    rows, width = table_VE.shape
    if self.transform:
      h_BPD = transform(self, h_BPD, width)
    if self.factor != 1.0:
      h_BPD = h_BPD * self.factor
    bias_V = jnp.zeros(rows)
    if self.word_bias:
      _, bias_init = affine_inits(self.initializer, width)
      bias_V = param(self, 'bias', ('vocab',), (rows,), bias_init)
    return Scores(h_BPD.astype(self.dtype), table_VE, bias_V, self.vocab_size)


def transform(head: Transform | WordHead, h_BPD: Array, width: int) -> Array:
  """dense -> activation -> norm, whose parameters are the head's own."""
  dense = Dense(
    (width,), ('embed', 'embed_out'), head.initializer, bias=head.biases, dtype=head.dtype,
    name='dense',
  )  # fmt: skip
  h_BPD = ACTIVATIONS[head.activation](dense(h_BPD))
  return Norm(head.norm_eps, head.dtype, 0.0, head.norm, head.biases, name='norm')(h_BPD)


def pool(x_BTD: Array, batch: Batch, pooling: str) -> Array:
  """Returns the token at `first_BG` of each example, or the mean of its tokens: [B, G, D]."""
  if pooling != 'mean':
    return gather_positions(x_BTD, batch['first_BG'])
  number_1G1 = jnp.arange(1, batch['first_BG'].shape[1] + 1)[None, :, None]
  of_BGT = (batch['example_BT'][:, None] == number_1G1).astype(jnp.float32)
  share_BGT = of_BGT / jnp.maximum(jnp.sum(of_BGT, -1, keepdims=True), 1)
  return jnp.einsum('BGT,BTD->BGD', share_BGT, x_BTD.astype(jnp.float32)).astype(x_BTD.dtype)


def pooler(model: Any, read_BGD: Array, init: Init, activation: str = 'tanh') -> Array:
  """dense and activation on what is read of each text; parameters are the caller's `pooler`."""
  dtype = jnp.dtype(model.dtype)
  dense = Dense((model.width,), ('embed', 'embed_out'), init, dtype=dtype, name='pooler')
  return POOLERS[activation](dense(read_BGD))


def label_heads(
  model: Any,
  init: Init,
  noise: Noise | None,
  read_BGD: Array | None,
  read_BTD: Array | None,
  names: tuple[str, str] = ('head_dropout', 'token_dropout'),
  text_bias: bool = True,
) -> dict[str, dict[str, Array]]:
  """Runs the heads of a classifier and of a tagger, dropout and a dense layer for each label, in
  the `__call__` of the model whose fields are read and which gets a subtree for each label's name.
  Returns label_BGC and token_label_BTC, float32 logits by label, of what heads of texts and of
  tokens read; None: there are none. `names` are of the dropout on each; '': none. With text_bias
  those of texts have a bias."""
  found: dict[str, dict[str, Array]] = {}
  read = dict(label_BGC=(read_BGD, model.labels), token_label_BTC=(read_BTD, model.token_labels))
  for name, (kind, (x, labels)) in zip(names, read.items(), strict=True):
    if x is not None and name:
      x = Dropout(model.head_dropout, name=name)(x, noise)
    bias = text_bias or kind != 'label_BGC'
    found[kind] = {} if x is None else label_logits(x, labels, init, bias)
  return found


def label_flops(model: Any, batch: Batch, text: int, token: int = 0, pooled: bool = False) -> float:
  """Returns FLOPs of forward and backward through the heads of labels. text and token are weights
  of the layers between states and these heads; pooled: those of texts run without a label, too."""
  count, size = 0.0, lambda labels: model.width * sum(classes for _, classes in labels)
  if model.labels or pooled:
    count += flops_lib.head_flops(flops_lib.examples(batch), text, size(model.labels))
  if model.token_labels:
    count += flops_lib.head_flops(flops_lib.real(batch), token, size(model.token_labels))
  return count


def label_logits(
  read: Array, labels: Sequence[tuple[str, int]], initializer: Init, bias: bool = True
) -> dict[str, Array]:
  """float32 logits by label, each of a dense layer of that name in the module that calls this. They
  are computed as such: bfloat16 has three digits, too few for numbers and for likeliest tokens."""
  dense = lambda name, classes: Dense(
    (classes,), ('embed', 'label'), initializer, bias=bias, name=name
  )
  return {name: dense(name, classes)(read) for name, classes in labels}


def gather_positions(x_BTD: Array, position_BP: Array) -> Array:
  """x_BTD at the columns position_BP -> [B, P, D]."""
  if mesh.ways(['fsdp']) > 1:  # XLA cannot take columns that are divided beside rows
    x_BTD = nn.with_logical_constraint(x_BTD, ('batch', None, None))
  return jnp.take_along_axis(x_BTD, position_BP[:, :, None], axis=1)


def at_targets(scores: Any, batch: Batch) -> Any:
  """`Scores` or `AdaptiveScores` of every token, at the targets of the batch alone."""
  if isinstance(scores, AdaptiveScores):
    tails = tuple(at_targets(tail, batch) for tail in scores.tails)
    return scores._replace(head=at_targets(scores.head, batch), tails=tails)
  return scores._replace(hidden_BPE=gather_positions(scores.hidden_BPE, batch['target_pos_BP']))


def all_scores(scores: Scores | AdaptiveScores) -> Array:
  """Logits of all words, or with clusters their log-probabilities; float32 [B, P, V]."""
  return log_probabilities(scores) if isinstance(scores, AdaptiveScores) else logits(scores)
