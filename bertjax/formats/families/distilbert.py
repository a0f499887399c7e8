"""DistilBertForMaskedLM, DistilBertModel, and those of fine-tuning: BERT without segments, and with
ReLU in place of the tanh before its labels."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import ACTIVATIONS, Family, Layout, named
from bertjax.formats.tables import layer


def layout(model: Any) -> Layout:
  """Returns the encoder and, where there is one, the words' head."""
  rows = bert.embeddings('distilbert', types=False) + layer(
    'encoder/layers',
    'distilbert.transformer.layer.{layer}.*',
    'attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm '
    'ffn.lin1 ffn.lin2 output_layer_norm',
  )
  words = bert.word_head('vocab_transform', 'vocab_layer_norm', 'vocab_projector.bias')
  labels = bert.label_heads(model, 'pre_classifier', {'span': 'qa_outputs'})
  return bert.whole(model, rows, words, 'vocab_projector', labels)


FIELDS = named(
  vocab_size=('vocab_size', 30_522), width=('dim', 768), layers=('n_layers', 6),
  heads=('n_heads', 12), ffn=('hidden_dim', 3072), activation=('activation', 'gelu', ACTIVATIONS),
  dropout=('dropout', 0.1), attention_dropout=('attention_dropout', 0.1),
  positions=('max_position_embeddings', 512), init_std=('initializer_range', 0.02),
)  # fmt: skip
FAMILY = Family(
  model='bert',
  model_type='distilbert',
  base='distilbert',
  classes=bert.masked_classes('DistilBert', ''),
  layout=layout,
  fields=FIELDS,
  # The class has its eps as a constant; learned and computed positions are a table to it.
  fixed=dict(bert.PLAIN, types=0, norm_eps=1e-12, pooler_activation='relu'),
  theirs=dict(tie_word_embeddings=(True,)),
)
