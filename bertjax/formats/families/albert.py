"""AlbertForPreTraining, AlbertForMaskedLM, AlbertModel, and those of fine-tuning."""

from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import bert
from bertjax.formats.family import Family, Field, Layout
from bertjax.formats.tables import dense, layer


def layout(model: Any) -> Layout:
  """Returns the tables, their projection, the blocks of all groups, and the heads."""
  ours = f'encoder/{"shared" if model.groups * model.inner_groups == 1 else "layers"}'
  rows = (
    *bert.embeddings('albert'),
    *dense('embeddings/projection', 'albert.encoder.embedding_hidden_mapping_in', 'D', 'E'),
    *layer(
      ours,
      'albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}.*',
      'attention.query attention.key attention.value attention.dense attention.LayerNorm '
      'ffn ffn_output full_layer_layer_norm',
    ),
  )
  words = bert.word_head('predictions.dense', 'predictions.LayerNorm', 'predictions.bias')
  names = {'order': 'sop_classifier.classifier', 'span': 'qa_outputs'}
  tied = {
    'predictions.decoder.weight': 'albert.embeddings.word_embeddings.weight',
    'predictions.decoder.bias': 'predictions.bias',
  }
  labels = bert.label_heads(model, 'albert.pooler', names)
  return bert.whole(model, rows, words, tied, labels, (names['order'], 'albert.pooler'))


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
