"""XLMWithLMHeadModel, with or without language embeddings; masked and causal."""

from bertjax.convert.huggingface import Family, Row, dense, norm


def family() -> Family:
  """The table of this family."""
  ours, theirs = 'encoder/layers', 'transformer.{kind}.{{layer}}'
  attention, ffn = theirs.format(kind='attentions'), theirs.format(kind='ffns')
  return Family(
    rows=(
      Row('embeddings/word', 'transformer.embeddings.weight', 'V,E->VE'),
      Row('embeddings/position', 'transformer.position_embeddings.weight', 'T,E->TE'),
      *norm('embeddings/norm', 'transformer.layer_norm_emb', 'E'),
      *dense(f'{ours}/attention/query', f'{attention}.q_lin', 'NH', 'D'),
      *dense(f'{ours}/attention/key', f'{attention}.k_lin', 'NH', 'D'),
      *dense(f'{ours}/attention/value', f'{attention}.v_lin', 'NH', 'D'),
      *dense(f'{ours}/attention/out', f'{attention}.out_lin', 'D', 'NH'),
      *norm(f'{ours}/attention_norm', theirs.format(kind='layer_norm1')),
      *dense(f'{ours}/ffn_up', f'{ffn}.lin1', 'F', 'D'),
      *dense(f'{ours}/ffn_down', f'{ffn}.lin2', 'D', 'F'),
      *norm(f'{ours}/ffn_norm', theirs.format(kind='layer_norm2')),
      Row('mlm/bias', 'pred_layer.proj.bias', 'V->V'),
    ),
    pooled=(),
    tied={'pred_layer.proj.weight': 'transformer.embeddings.weight'},
    ignored=('.position_ids',),
    extra={'language': Row('embeddings/language', 'transformer.lang_embeddings.weight', 'X,E->XE')},
    vocab_size=95_000,  # of XLM-15
  )
