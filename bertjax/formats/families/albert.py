"""AlbertForPreTraining, AlbertForMaskedLM, AlbertModel, and those of fine-tuning."""

from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import bert
from bertjax.formats.family import Family, Field, Heads, Layout
from bertjax.formats.tables import Row, dense, heads, norm


def layout(model: Any) -> Layout:
  """Returns the tables, their projection, the blocks of all groups, and the heads."""
  theirs = 'albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}'
  alone = model.groups * model.inner_groups == 1
  ours, attention = f'encoder/{"shared" if alone else "layers"}', f'{theirs}.attention'
  rows = (
    Row('embeddings/word', 'albert.embeddings.word_embeddings.weight', 'V,E->VE'),
    Row('embeddings/position', 'albert.embeddings.position_embeddings.weight', 'T,E->TE'),
    Row('embeddings/type', 'albert.embeddings.token_type_embeddings.weight', 'S,E->SE'),
    *norm('embeddings/norm', 'albert.embeddings.LayerNorm', 'E'),
    *dense('embeddings/projection', 'albert.encoder.embedding_hidden_mapping_in', 'D', 'E'),
    *dense(f'{ours}/attention/query', f'{attention}.query', 'NH', 'D'),
    *dense(f'{ours}/attention/key', f'{attention}.key', 'NH', 'D'),
    *dense(f'{ours}/attention/value', f'{attention}.value', 'NH', 'D'),
    *dense(f'{ours}/attention/out', f'{attention}.dense', 'D', 'NH'),
    *norm(f'{ours}/attention_norm', f'{attention}.LayerNorm'),
    *dense(f'{ours}/ffn_up', f'{theirs}.ffn', 'F', 'D'),
    *dense(f'{ours}/ffn_down', f'{theirs}.ffn_output', 'D', 'F'),
    *norm(f'{ours}/ffn_norm', f'{theirs}.full_layer_layer_norm'),
  )
  words = bert.word_head('predictions.dense', 'predictions.LayerNorm', 'predictions.bias')
  order = heads(dense('order', 'sop_classifier.classifier', 'C', 'D'), C=2)
  pooler = heads(dense('pooler', 'albert.pooler', 'O', 'D'))
  names = {'order': 'sop_classifier.classifier', 'span': 'qa_outputs'}
  tied = {
    'predictions.decoder.weight': 'albert.embeddings.word_embeddings.weight',
    'predictions.decoder.bias': 'predictions.bias',
  }
  spare = tuple(row.theirs for row in (*words, *order, *pooler))
  rows += bert.label_heads(model, 'albert.pooler', names)
  if not model.words:
    return Layout(rows, spare=(*spare, *tied))
  return Layout(rows + words, tied, spare=spare)


def write(model: Any) -> dict[str, Any]:
  """Returns the width of the tables, which these classes always project. Raises UserError: tables
  as wide as the layers, which are not projected here."""
  if model.embedding_width in (0, model.width):
    raise UserError(
      "config.model.family='albert' always projects its tables, which this model does where "
      f'config.model.embedding_width differs from width={model.width} only'
    )
  return dict(embedding_size=model.embedding_width)


OWN = dict(width=4096, heads=64, ffn=16_384, activation='gelu_new', dropout=0, attention_dropout=0)
FAMILY = Family(
  model='bert',
  recipe='albert',
  model_type='albert',
  base='albert',
  classes={
    'AlbertForPreTraining': Heads(words=True, label='order'),
    'AlbertForMaskedLM': Heads(words=True),
    'AlbertModel': Heads(pooler=True),
    **bert.tuned_classes('Albert'),
  },
  layout=layout,
  fields=(
    *(
      f._replace(default=OWN.get(f.ours, f.default)) for f in bert.FIELDS if f.ours != 'vocab_size'
    ),
    Field('vocab_size', 'vocab_size', 30_000),
    Field('embedding_width', 'embedding_size', 128),
    Field('groups', 'num_hidden_groups', 1),
    Field('inner_groups', 'inner_group_num', 1),
  ),
  fixed={
    k: v for k, v in bert.PLAIN.items() if k not in ('groups', 'inner_groups', 'embedding_width')
  }
  | dict(sharing='all'),
  theirs=dict(tie_word_embeddings=(True,), position_embedding_type=('absolute', None)),
  write=write,
  vocab_size=30_000,
)
