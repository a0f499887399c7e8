"""XLNetLMHeadModel, whose query biases are those of each layer: `config.model.untie_r`."""

from bertjax.convert.huggingface import Family, Row, dense, norm


def family() -> Family:
  """The table of this family."""
  ours, theirs = 'layers', 'transformer.layer.{layer}'
  attention = f'{theirs}.rel_attn'
  project = lambda name, letter: Row(
    f'{ours}/attention/{name}/kernel', f'{attention}.{letter}', 'D,N,H->DNH'
  )
  return Family(
    rows=(
      Row('word', 'transformer.word_embedding.weight', 'V,D->VD'),
      Row('mask', 'transformer.mask_emb', 'A,A,D->D'),
      project('query', 'q'),
      project('key', 'k'),
      project('value', 'v'),
      project('position', 'r'),
      Row(f'{ours}/attention/out/kernel', f'{attention}.o', 'D,N,H->NHD'),
      Row(f'{ours}/u', f'{attention}.r_w_bias', 'N,H->NH'),
      Row(f'{ours}/w', f'{attention}.r_r_bias', 'N,H->NH'),
      Row(f'{ours}/z', f'{attention}.r_s_bias', 'N,H->NH'),
      Row(f'{ours}/segment', f'{attention}.seg_embed', 'S,N,H->SNH'),
      *norm(f'{ours}/attention_norm', f'{attention}.layer_norm'),
      *dense(f'{ours}/ffn/up', f'{theirs}.ff.layer_1', 'F', 'D'),
      *dense(f'{ours}/ffn/down', f'{theirs}.ff.layer_2', 'D', 'F'),
      *norm(f'{ours}/ffn_norm', f'{theirs}.ff.layer_norm'),
      Row('head/bias', 'lm_loss.bias', 'V->V'),
    ),
    pooled=(),
    tied={'lm_loss.weight': 'transformer.word_embedding.weight'},
    ignored=(),
    needed=dict(untie_r=True),
    vocab_size=32_000,
  )
