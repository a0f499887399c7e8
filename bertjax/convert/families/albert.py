"""AlbertForPreTraining; AlbertForMaskedLM where the model has no labels."""

from bertjax.convert.huggingface import Family, Row, dense, norm


def family() -> Family:
  """The table of this family."""
  ours, theirs = (
    'encoder/layers',
    'albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}',
  )
  attention = f'{theirs}.attention'
  return Family(
    rows=(
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
      *dense('mlm/dense', 'predictions.dense', 'E', 'D'),
      *norm('mlm/norm', 'predictions.LayerNorm', 'E'),
      Row('mlm/bias', 'predictions.bias', 'V->V'),
    ),
    pooled=(
      *dense('pooler', 'albert.pooler', 'O', 'D'),
      *dense('order', 'sop_classifier.classifier', 'C', 'D'),
    ),
    tied={
      'predictions.decoder.weight': 'albert.embeddings.word_embeddings.weight',
      'predictions.decoder.bias': 'predictions.bias',
    },
    ignored=('.position_ids',),
    sharing='all',
    vocab_size=30_000,
  )
