"""DistilBertForMaskedLM, DistilBertModel, and those of fine-tuning: BERT without segments, and with
ReLU in place of the tanh before its labels."""

from typing import Any

from bertjax.formats.families.bert import PLAIN, label_heads, tuned_classes, word_head
from bertjax.formats.family import ACTIVATIONS, Family, Field, Heads, Layout
from bertjax.formats.tables import Row, dense, norm


def layout(model: Any) -> Layout:
  """Returns the encoder and, where there is one, the words' head."""
  ours, theirs = 'encoder/layers', 'distilbert.transformer.layer.{layer}'
  attention, tables = f'{theirs}.attention', 'distilbert.embeddings'
  words = word_head('vocab_transform', 'vocab_layer_norm', 'vocab_projector.bias')
  rows = (
    Row('embeddings/word', f'{tables}.word_embeddings.weight', 'V,E->VE'),
    Row('embeddings/position', f'{tables}.position_embeddings.weight', 'T,E->TE'),
    *norm('embeddings/norm', f'{tables}.LayerNorm', 'E'),
    *dense(f'{ours}/attention/query', f'{attention}.q_lin', 'NH', 'D'),
    *dense(f'{ours}/attention/key', f'{attention}.k_lin', 'NH', 'D'),
    *dense(f'{ours}/attention/value', f'{attention}.v_lin', 'NH', 'D'),
    *dense(f'{ours}/attention/out', f'{attention}.out_lin', 'D', 'NH'),
    *norm(f'{ours}/attention_norm', f'{theirs}.sa_layer_norm'),
    *dense(f'{ours}/ffn_up', f'{theirs}.ffn.lin1', 'F', 'D'),
    *dense(f'{ours}/ffn_down', f'{theirs}.ffn.lin2', 'D', 'F'),
    *norm(f'{ours}/ffn_norm', f'{theirs}.output_layer_norm'),
  )
  tied = {'vocab_projector.weight': f'{tables}.word_embeddings.weight'}
  spare = tuple(row.theirs for row in words)
  if model.words:
    return Layout(rows + words, tied)
  rows += label_heads(model, 'pre_classifier', {'span': 'qa_outputs'})
  return Layout(rows, spare=(*spare, *tied))


FAMILY = Family(
  model='bert',
  recipe='bert',
  model_type='distilbert',
  base='distilbert',
  classes={
    'DistilBertForMaskedLM': Heads(words=True),
    'DistilBertModel': Heads(),
    **tuned_classes('DistilBert'),
  },
  layout=layout,
  fields=(
    Field('vocab_size', 'vocab_size', 30_522),
    Field('width', 'dim', 768),
    Field('layers', 'n_layers', 6),
    Field('heads', 'n_heads', 12),
    Field('ffn', 'hidden_dim', 3072),
    Field('activation', 'activation', 'gelu', ACTIVATIONS),
    Field('dropout', 'dropout', 0.1),
    Field('attention_dropout', 'attention_dropout', 0.1),
    Field('positions', 'max_position_embeddings', 512),
    Field('init_std', 'initializer_range', 0.02),
  ),
  # The class has its eps as a constant; learned and computed positions are a table to it.
  fixed=dict(PLAIN, types=0, norm_eps=1e-12, pooler_activation='relu'),
  theirs=dict(tie_word_embeddings=(True,)),
)
