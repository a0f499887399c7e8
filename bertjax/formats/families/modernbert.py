"""ModernBertForMaskedLM, ModernBertModel, and those of fine-tuning.

A global layer and so many local ones stand in turn.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Family, Layout, named, uncomputed
from bertjax.formats.tables import Row, dense, heads, norm


def layout(model: Any) -> Layout:
  """Returns the encoder and the heads, of no biases but the words' and the labels'."""
  ours, theirs = 'encoder/layers', 'model.layers.{layer}'
  fused = lambda name, theirs, axes, names: tuple(
    Row(f'{ours}/{name}{own}/kernel', theirs, axes, part=(i, len(names)))
    for i, own in enumerate(names)
  )
  attention, ffn = ('query', 'key', 'value'), ('up', 'gate')
  rows = (
    Row('word', 'model.embeddings.tok_embeddings.weight', 'V,D->VD'),
    # Layer 0 has no such norm in theirs: it takes the embeddings', which is its own in ours.
    scale(f'{ours}/attention_norm', f'{theirs}.attn_norm')._replace(
      first='model.embeddings.norm.weight'
    ),
    *fused('attention/', f'{theirs}.attn.Wqkv.weight', 'NH,D->DNH', attention),
    dense(f'{ours}/attention/out', f'{theirs}.attn.Wo', 'D', 'NH')[0],
    scale(f'{ours}/ffn_norm', f'{theirs}.mlp_norm'),
    *fused('ffn_', f'{theirs}.mlp.Wi.weight', 'F,D->DF', ffn),
    dense(f'{ours}/ffn_down', f'{theirs}.mlp.Wo', 'D', 'F')[0],
    scale('final_norm', 'model.final_norm'),
  )
  transform = lambda ours: heads(
    (dense(f'{ours}/dense', 'head.dense', 'O', 'D')[0], scale(f'{ours}/norm', 'head.norm'))
  )
  words = transform('mlm') + heads((Row('mlm/bias', 'decoder.bias', 'V->V'),))
  labels = bert.label_heads(model, '', {})
  return bert.whole(model, rows, words, 'decoder', transform('head') + labels if labels else ())


def scale(ours: str, theirs: str) -> Row:
  """Returns a norm without a bias."""
  return norm(ours, theirs)[0]


def write(model: Any) -> dict[str, Any]:
  """Returns the fields for local layers and their RoPE bases, in both spellings of transformers."""
  every = model.global_every if model.window else 1
  kinds = ['sliding_attention' if i % every else 'full_attention' for i in range(model.layers)]
  rope = lambda theta: dict(rope_type='default', rope_theta=theta)
  # Theirs by default are of the published vocabulary, and refused where that is not there.
  unknown = dict.fromkeys(
    ('pad_token_id', 'bos_token_id', 'eos_token_id', 'cls_token_id', 'sep_token_id')
  )
  return unknown | dict(
    layer_types=kinds,
    attention_dropout=model.attention_dropout,  # theirs has one rate for this and for `dropout`
    classifier_dropout=0.0,
    global_attn_every_n_layers=every,
    local_attention=2 * (model.window or 64),
    rope_parameters=dict(
      full_attention=rope(model.theta), sliding_attention=rope(model.local_theta)
    ),
    global_rope_theta=model.theta,
    local_rope_theta=model.local_theta,
  )


def read(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of `config.model` that `write` writes. Raises UserError: layers in another
  order than a global one and then so many local ones, or turns that are scaled."""
  every, kinds = given.get('global_attn_every_n_layers', 3), given.get('layer_types')
  if kinds:
    found = [i for i, kind in enumerate(kinds) if kind == 'full_attention']
    every = found[1] if len(found) > 1 else len(kinds)
    wanted = ['sliding_attention' if i % every else 'full_attention' for i in range(len(kinds))]
    if kinds != wanted:
      raise uncomputed(f'layer_types={kinds}', 'every n-th full_attention, from the first on')
  scaled = given.get('rope_scaling') or {}
  if scaled.get('rope_type', scaled.get('type', 'default')) != 'default':
    raise uncomputed(f'rope_scaling={scaled}', 'none')
  rope = given.get('rope_parameters') or {}
  thetas = {}
  for kind, old, usual in (
    ('full_attention', 'global_rope_theta', 160_000.0),
    ('sliding_attention', 'local_rope_theta', 10_000.0),
  ):
    turns = rope.get(kind) or {}
    if turns.get('rope_type', 'default') != 'default':
      raise uncomputed(f'rope_parameters.{kind}={turns}', "rope_type='default'")
    thetas[kind] = float(turns.get('rope_theta') or given.get(old) or usual)
  window = 0 if every == 1 else int(given.get('local_attention', 128)) // 2
  rate = float(given.get('attention_dropout', 0.0))
  return dict(
    attention_dropout=rate, dropout=rate, theta=thetas['full_attention'],
    local_theta=thetas['sliding_attention'], window=window, global_every=every,
  )  # fmt: skip


FIELDS = named(
  vocab_size=('vocab_size', 50_368), width=('hidden_size', 768), layers=('num_hidden_layers', 22),
  heads=('num_attention_heads', 12), ffn=('intermediate_size', 1152),
  positions=('max_position_embeddings', 8192), init_std=('initializer_range', 0.02),
  norm_eps=('norm_eps', 1e-5), ffn_dropout=('mlp_dropout', 0.0),
  pooling=('classifier_pooling', 'cls', dict(first=('cls',), mean=('mean',))),
)  # fmt: skip
FIXED = dict(
  activation='gelu_erf', gated=True, norm='layer_norm', biases=False, distances='rotary',
  attend='example',
)  # fmt: skip
THEIRS = dict(
  hidden_activation=('gelu',), classifier_activation=('gelu',), norm_bias=(False,),
  attention_bias=(False,), mlp_bias=(False,), decoder_bias=(True,), classifier_bias=(False,),
  tie_word_embeddings=(True,), sparse_prediction=(False,), embedding_dropout=(0.0,),
  initializer_cutoff_factor=(3.0, 2.0, None),  # of the start alone
)  # fmt: skip
FAMILY = Family(
  model='modernbert',
  model_type='modernbert',
  base='model',
  classes=bert.masked_classes('ModernBert', ''),
  layout=layout,
  fields=FIELDS,
  fixed=FIXED,
  theirs=THEIRS,
  write=write,
  read=read,
)
