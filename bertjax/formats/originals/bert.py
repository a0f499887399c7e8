"""google-research/bert and albert: modeling.py, run_pretraining.py and the programs of tasks."""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families import albert, bert
from bertjax.formats.family import Family
from bertjax.formats.originals.original import HEAD, Kind, activation, count, renamed, shape
from bertjax.formats.tables import Row, dense, heads

# The function that modeling.py calls gelu is the tanh approximation.
ACTIVATIONS = dict(gelu='gelu_tanh', gelu_new='gelu_tanh', relu='relu')
# Our label -> the scope of its output_weights and output_bias.
LABELS = dict(next='cls/seq_relationship/', order='cls/seq_relationship/', label='')
TOKEN_LABELS = dict(span='cls/squad/')
HEADS = ('cls/', 'output_weights', 'output_bias', 'bert/pooler/')
GROUPS = 'bert/encoder/transformer/group_'


def table_fields(state: Mapping[str, Any], scope: str) -> dict[str, Any]:
  """Returns the fields of `config.model` that follow from the shapes of the embedding tables."""
  vocab_size, width = shape(state, f'{scope}/word_embeddings')
  return dict(
    vocab_size=vocab_size, embedding_width=width,
    positions=shape(state, f'{scope}/position_embeddings')[0],
    types=shape(state, f'{scope}/token_type_embeddings')[0],
  )  # fmt: skip


def _fields(
  found: dict[str, Any], given: Mapping[str, Any], family: Family, file: str
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields by shapes, overridden by the JSON file, whose names transformers has kept,
  and a line for each assumption."""
  found |= {f.ours: given[f.theirs] for f in family.fields if f.theirs in given}
  assumed = []
  if 'heads' not in found:
    found['heads'] = max(1, found['width'] // HEAD)
    assumed.append(f'no {file} says the heads: {found["heads"]}, of {HEAD} each')
  if 'hidden_act' not in given:
    assumed.append(f"no {file} says the activation: 'gelu'")
  found['activation'] = activation(given.get('hidden_act', 'gelu'), ACTIVATIONS)
  own = dict(name='bert', family=family.model_type, norm_eps=1e-12)
  return bert.PLAIN | found | own, assumed


def fields(state: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`: those of bert_config.json, without it what the shapes
  say."""
  found = table_fields(state, 'bert/embeddings') | head_fields(state, 'next')
  found |= dict(
    width=found.pop('embedding_width'), layers=count(state, 'bert/encoder/layer_'),
    ffn=shape(state, 'bert/encoder/layer_0/intermediate/dense/kernel')[-1],
  )  # fmt: skip
  return _fields(found, given, bert.FAMILY, 'bert_config.json')


def albert_fields(
  state: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`; only albert_config.json says how often the blocks are
  visited."""
  found = table_fields(state, 'bert/embeddings') | head_fields(state, 'order')
  width, ffn = shape(state, f'{GROUPS}0/inner_group_0/ffn_1/intermediate/dense/kernel')
  groups, inner = count(state, GROUPS), count(state, f'{GROUPS}0/inner_group_')
  found |= dict(width=width, ffn=ffn, groups=groups, inner_groups=inner, sharing='all')
  found, assumed = _fields(found, given, albert.FAMILY, 'albert_config.json')
  if 'layers' not in found:
    # Large and xlarge have 24, base and xxlarge 12.
    found['layers'] = 24 if found['width'] in (1024, 2048) else 12
    assumed.append(f'no albert_config.json says the layers: {found["layers"]}, as published')
  if found['embedding_width'] == found['width']:
    found['embedding_width'] = 0
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


def word_head(scope: str, transform: str) -> tuple[Row, ...]:
  """Returns the masked-LM head: output_bias in a scope, dense and norm in another."""
  names = f'{transform}.dense', f'{transform}.LayerNorm', f'{scope}.output_bias'
  return renamed(bert.word_head(*names))


def head_rows(model: Any) -> tuple[Row, ...]:
  """Returns the heads of a model."""
  rows = word_head('cls.predictions', 'cls.predictions.transform') if model.words else ()
  if model.labels or model.pooler:
    rows += heads(renamed(dense('pooler', 'bert.pooler.dense', 'O', 'D')))
  for name, classes in (*model.labels, *model.token_labels):
    theirs = (LABELS | TOKEN_LABELS).get(name, f'{name}/')
    label = (
      Row(f'{name}/kernel', f'{theirs}output_weights', 'C,D->DC'),
      Row(f'{name}/bias', f'{theirs}output_bias', 'C->C'),
    )
    rows += heads(label, C=classes)
  return rows


def rows(model: Any) -> tuple[Row, ...]:
  """Returns the table of BERT."""
  return renamed(bert.encoder('bert')) + head_rows(model)


def albert_rows(model: Any) -> tuple[Row, ...]:
  """Returns the table of ALBERT."""
  rows = albert.encoder(
    model,
    'bert',
    'transformer.group_{group}.inner_group_{inner}.*',
    'attention_1.self.query attention_1.self.key attention_1.self.value attention_1.output.dense '
    'LayerNorm ffn_1.intermediate.dense ffn_1.intermediate.output.dense LayerNorm_1',
  )
  return renamed(rows) + head_rows(model)


BERT = Kind(
  'a BERT', 'bert', 'bert_config.json', 'bert/encoder/layer_', fields, rows, HEADS
)  # fmt: skip
ALBERT = Kind(
  'an ALBERT', 'albert', 'albert_config.json', GROUPS, albert_fields, albert_rows, HEADS
)
