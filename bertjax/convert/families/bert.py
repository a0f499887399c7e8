"""BertForPreTraining; BertForMaskedLM where the model has no labels."""

from bertjax.convert.huggingface import Family, Row, dense, norm


def encoder(base: str, net: str = '') -> tuple[Row, ...]:
  """Embeddings and layers (ours under `net`), the same in all families of this shape."""
  ours, theirs = f'{net}encoder/layers', f'{base}.encoder.layer.{{layer}}'
  return (
    Row('embeddings/word', f'{base}.embeddings.word_embeddings.weight', 'V,E->VE'),
    Row('embeddings/position', f'{base}.embeddings.position_embeddings.weight', 'T,E->TE'),
    Row('embeddings/type', f'{base}.embeddings.token_type_embeddings.weight', 'S,E->SE'),
    *norm('embeddings/norm', f'{base}.embeddings.LayerNorm', 'E'),
    *dense(f'{ours}/attention/query', f'{theirs}.attention.self.query', 'NH', 'D'),
    *dense(f'{ours}/attention/key', f'{theirs}.attention.self.key', 'NH', 'D'),
    *dense(f'{ours}/attention/value', f'{theirs}.attention.self.value', 'NH', 'D'),
    *dense(f'{ours}/attention/out', f'{theirs}.attention.output.dense', 'D', 'NH'),
    *norm(f'{ours}/attention_norm', f'{theirs}.attention.output.LayerNorm'),
    *dense(f'{ours}/ffn_up', f'{theirs}.intermediate.dense', 'F', 'D'),
    *dense(f'{ours}/ffn_down', f'{theirs}.output.dense', 'D', 'F'),
    *norm(f'{ours}/ffn_norm', f'{theirs}.output.LayerNorm'),
  )


def family() -> Family:
  """The table of this family."""
  return pretraining('bert')


def pretraining(base: str) -> Family:
  """The table of a family with BERT's heads, whose encoder has this name."""
  return Family(
    rows=(
      *encoder(base),
      *dense('mlm/dense', 'cls.predictions.transform.dense', 'E', 'D'),
      *norm('mlm/norm', 'cls.predictions.transform.LayerNorm', 'E'),
      Row('mlm/bias', 'cls.predictions.bias', 'V->V'),
    ),
    pooled=(
      *dense('pooler', f'{base}.pooler.dense', 'O', 'D'),
      *dense('next', 'cls.seq_relationship', 'C', 'D'),
    ),
    tied={
      'cls.predictions.decoder.weight': f'{base}.embeddings.word_embeddings.weight',
      'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
    ignored=('.position_ids',),
  )
