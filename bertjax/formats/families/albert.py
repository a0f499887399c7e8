"""AlbertForPreTraining, AlbertForMaskedLM, AlbertModel, and those of fine-tuning."""

from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import bert
from bertjax.formats.family import Family, Field, Layout
from bertjax.formats.tables import Row, dense, layer


def layout(model: Any) -> Layout:
  """Returns the encoder and the heads."""
  rows = encoder(
    model,
    'albert',
    'albert_layer_groups.{group}.albert_layers.{inner}.*',
    'attention.query attention.key attention.value attention.dense attention.LayerNorm '
    'ffn ffn_output full_layer_layer_norm',
  )
  words = bert.word_head('predictions.dense', 'predictions.LayerNorm', 'predictions.bias')
  names = {'order': 'sop_classifier.classifier', 'span': 'qa_outputs'}
  labels = bert.label_heads(model, 'albert.pooler', names)
  spare = names['order'], 'albert.pooler'
  return bert.whole(model, rows, words, 'predictions.decoder', labels, spare)


def encoder(model: Any, base: str, blocks: str, names: str) -> tuple[Row, ...]:
  """Returns the tables, their projection where widths differ, and the blocks of all groups; `base`
  begins their names, `blocks` and `names` are as `tables.layer` takes them."""
  rows = bert.embeddings(base)
  if model.embedding_width:
    rows += dense('embeddings/projection', f'{base}.encoder.embedding_hidden_mapping_in', 'D', 'E')
  ours = 'shared' if model.groups * model.inner_groups == 1 else 'layers'
  return rows + layer(f'encoder/{ours}', f'{base}.encoder.{blocks}', names)


def write(model: Any) -> dict[str, Any]:
  """Returns the width of the tables, which these classes always project. Raises UserError: tables
  as wide as the layers, which are not projected here."""
  if model.embedding_width in (0, model.width):
    raise UserError(
      "config.model.family='albert' always projects its tables, which this model does where "
      f'config.model.embedding_width differs from width={model.width} only'
    )
  return dict(embedding_size=model.embedding_width)


OWN = dict(
  vocab_size=30_000, width=4096, heads=64, ffn=16_384, activation='gelu_new', dropout=0,
  attention_dropout=0,
)  # fmt: skip
FAMILY = Family(
  model='bert',
  recipe='albert',
  model_type='albert',
  base='albert',
  classes=bert.classes_of('Albert', 'order'),
  layout=layout,
  fields=(
    *bert.with_defaults(**OWN),
    Field('embedding_width', 'embedding_size', 128),
    Field('groups', 'num_hidden_groups', 1),
    Field('inner_groups', 'inner_group_num', 1),
  ),
  fixed=bert.plain('groups inner_groups embedding_width', sharing='all'),
  theirs=dict(tie_word_embeddings=(True,), position_embedding_type=('absolute', None)),
  write=write,
)
