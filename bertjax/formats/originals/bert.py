"""google-research/bert and albert: modeling.py, run_pretraining.py and the programs of tasks."""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families.bert import PLAIN
from bertjax.formats.originals.original import Part, activation, count, shape
from bertjax.formats.originals.tensorflow_rows import (
  Kind,
  dense,
  embeddings,
  layer,
  layers,
  word_head,
)
from bertjax.formats.tables import Row, heads

HEAD = 64  # width of a head in all published sizes
# The function that modeling.py calls gelu is the tanh approximation.
ACTIVATIONS = dict(gelu='gelu_tanh', gelu_new='gelu_tanh', relu='relu')
# Our field -> its name in bert_config.json.
NAMES = dict(
  vocab_size='vocab_size', width='hidden_size', layers='num_hidden_layers',
  heads='num_attention_heads', ffn='intermediate_size', positions='max_position_embeddings',
  types='type_vocab_size', dropout='hidden_dropout_prob', init_std='initializer_range',
  attention_dropout='attention_probs_dropout_prob',
)  # fmt: skip
# Our label -> the scope of its output_weights and output_bias.
LABELS = dict(next='cls/seq_relationship/', order='cls/seq_relationship/', label='')
TOKEN_LABELS = dict(span='cls/squad/')
HEADS = ('cls/', 'output_weights', 'output_bias', 'bert/pooler/')


def fields(state: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`: those of bert_config.json, without it what the shapes
  say."""
  layer = 'bert/encoder/layer_0'
  found = table_fields(state, 'bert/embeddings')
  found |= dict(
    width=found.pop('embedding_width'), layers=count(state, 'bert/encoder/layer_'),
    ffn=shape(state, f'{layer}/intermediate/dense/kernel')[-1],
  )  # fmt: skip
  found, assumed = described(found, given, NAMES, 'bert_config.json')
  model = dict(PLAIN, **found, **head_fields(state, 'next'))
  return dict(model, name='bert', family='bert', norm_eps=1e-12), assumed


def table_fields(state: Mapping[str, Any], scope: str) -> dict[str, Any]:
  """Returns the fields of `config.model` that follow from the shapes of the embedding tables."""
  vocab_size, width = shape(state, f'{scope}/word_embeddings')
  return dict(
    vocab_size=vocab_size, embedding_width=width,
    positions=shape(state, f'{scope}/position_embeddings')[0],
    types=shape(state, f'{scope}/token_type_embeddings')[0],
  )  # fmt: skip


def described(
  found: dict[str, Any], given: Mapping[str, Any], names: Mapping[str, str], file: str
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields by shapes, overridden by the JSON file, and a line for each assumption."""
  assumed = []
  said = {ours: given[theirs] for ours, theirs in names.items() if theirs in given}
  found = dict(found, **{key: said[key] for key in said})
  if 'heads' not in found:
    found['heads'] = max(1, found['width'] // HEAD)
    assumed.append(f'no {file} says the heads: {found["heads"]}, of {HEAD} each')
  if 'hidden_act' not in given:
    assumed.append(f"no {file} says the activation: 'gelu'")
  found['activation'] = activation(given.get('hidden_act', 'gelu'), ACTIVATIONS)
  return found, assumed


def head_fields(state: Mapping[str, Any], pair: str) -> dict[str, Any]:
  """Returns the heads that are there; `pair` is our label of two segments."""
  labels = tuple(
    (name, shape(state, f'{LABELS[name]}output_bias')[0])
    for name in (pair, 'label')
    if f'{LABELS[name]}output_bias' in state
  )
  token_labels = tuple(
    (name, 2) for name, scope in TOKEN_LABELS.items() if f'{scope}output_bias' in state
  )
  words = 'cls/predictions/output_bias' in state
  # Every program makes a pooler; where another head is there, no one reads it but the labels.
  pooler = 'bert/pooler/dense/kernel' in state and not (words or labels or token_labels)
  return dict(words=words, pooler=pooler, labels=labels, token_labels=token_labels)


def head_rows(model: Any) -> tuple[Row, ...]:
  """Returns the heads of a model."""
  rows: tuple[Row, ...] = ()
  if model.words:
    rows += word_head('cls/predictions', 'cls/predictions/transform')
  if model.labels or model.pooler:
    rows += heads(dense('pooler', 'bert/pooler/dense', 'O', 'D'))
  scopes = LABELS | TOKEN_LABELS
  for name, classes in (*model.labels, *model.token_labels):
    theirs = scopes.get(name, f'{name}/')
    label = (
      Row(f'{name}/kernel', f'{theirs}output_weights', 'C,D->DC'),
      Row(f'{name}/bias', f'{theirs}output_bias', 'C->C'),
    )
    rows += heads(label, C=classes)
  return rows


def parts(model: Any) -> tuple[Part, ...]:
  """Returns the table."""
  rows = embeddings('bert/embeddings') + layers('bert/encoder') + head_rows(model)
  return (Part(rows, model),)


BERT = Kind(
  title='a BERT',
  family='bert',
  recipe='bert',
  config='bert_config.json',
  mark='bert/encoder/layer_',
  fields=fields,
  parts=parts,
  heads=HEADS,
)

GROUPS = 'bert/encoder/transformer/group_'
ALBERT_NAMES = dict(
  NAMES, embedding_width='embedding_size', groups='num_hidden_groups',
  inner_groups='inner_group_num',
)  # fmt: skip


def _albert_fields(
  state: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`; only albert_config.json says how often the blocks are
  visited."""
  block = f'{GROUPS}0/inner_group_0'
  found = table_fields(state, 'bert/embeddings')
  width, ffn = shape(state, f'{block}/ffn_1/intermediate/dense/kernel')
  groups, inner = count(state, GROUPS), count(state, f'{GROUPS}0/inner_group_')
  found |= dict(width=width, ffn=ffn, groups=groups, inner_groups=inner)
  found, assumed = described(found, given, ALBERT_NAMES, 'albert_config.json')
  if 'layers' not in found:
    # Large and xlarge have 24, base and xxlarge 12.
    found['layers'] = 24 if found['width'] in (1024, 2048) else 12
    assumed.append(f'no albert_config.json says the layers: {found["layers"]}, as published')
  if found['embedding_width'] == found['width']:
    found['embedding_width'] = 0
  model = PLAIN | found | head_fields(state, 'order')
  return dict(model, name='bert', family='albert', norm_eps=1e-12, sharing='all'), assumed


def _albert_parts(model: Any) -> tuple[Part, ...]:
  """Returns the tables, their projection where widths differ, the blocks of all groups, and the
  heads."""
  ours = f'encoder/{"shared" if model.groups * model.inner_groups == 1 else "layers"}'
  rows: tuple[Row, ...] = embeddings('bert/embeddings')
  if model.embedding_width:
    rows += dense('embeddings/projection', 'bert/encoder/embedding_hidden_mapping_in', 'D', 'E')
  rows += layer(
    ours,
    f'{GROUPS}{{group}}/inner_group_{{inner}}/*',
    'attention_1/self/query attention_1/self/key attention_1/self/value attention_1/output/dense '
    'LayerNorm ffn_1/intermediate/dense ffn_1/intermediate/output/dense LayerNorm_1',
  )
  return (Part(rows + head_rows(model), model),)


ALBERT = Kind(
  title='an ALBERT',
  family='albert',
  recipe='albert',
  config='albert_config.json',
  mark=GROUPS,
  fields=_albert_fields,
  parts=_albert_parts,
  heads=HEADS,
)
