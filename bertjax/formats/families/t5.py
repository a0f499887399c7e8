"""T5ForConditionalGeneration, versions 1.0 and 1.1.

Version 1.1 has an output table of its own. Whatever config.json says, transformers says from
release 5 on that it is tied, but keeps two tables that differ in the file, with a warning;
`scale_decoder_outputs` is what tells the versions apart there.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError
from bertjax.formats.family import Family, Layout, named, uncomputed
from bertjax.formats.tables import Row, dense, norm
from bertjax.models.layers.positions import BUCKETS, FURTHEST

FORMS = {  # feed_forward_proj -> activation, gated
  'relu': ('relu', False),
  'gated-gelu': ('gelu_tanh', True),
  'gated-silu': ('silu', True),
}
HEAD = 'lm_head.weight'
OF_1_1 = 'of T5 1.1, which has two tables, config.json says scale_decoder_outputs=false'
OF_1_0 = (
  'of T5 1.0, which has one table, config.json says scale_decoder_outputs=true; a 1.1 that '
  f'transformers has tied needs a copy of shared.weight as {HEAD}'
)


def layout(model: Any) -> Layout:
  """Returns both stacks, which have one word table, and the output's."""
  words = {f'{stack}.embed_tokens.weight': 'shared.weight' for stack in ('encoder', 'decoder')}
  rows: tuple[Row, ...] = (Row('word', 'shared.weight', 'V,D->VD'),)
  for stack in ('encoder', 'decoder'):
    rows += _stack(model, stack)
  if model.tied:
    return Layout(rows, words | {HEAD: 'shared.weight'}, remedy=OF_1_1)
  return Layout((*rows, Row('out', HEAD, 'V,D->VD')), words, remedy=OF_1_0)


def _stack(model: Any, stack: str) -> tuple[Row, ...]:
  ours, theirs = f'{stack}/layers', f'{stack}.block.{{layer}}.layer'
  parts = dict(attention=f'{theirs}.0.SelfAttention')
  if stack == 'decoder':
    parts['cross_attention'] = f'{theirs}.1.EncDecAttention'
  names = dict(ffn_up='wi_0', ffn_gate='wi_1') if model.gated else dict(ffn_up='wi')
  bias = f'{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight'
  rows: tuple[Row, ...] = (Row(f'{stack}_bias/buckets', bias, 'X,N->XN', dict(X=BUCKETS)),)
  for number, (part, name) in enumerate(parts.items()):
    rows += (norm(f'{ours}/{part}_norm', f'{theirs}.{number}.layer_norm')[0],)
    for own in ('query', 'key', 'value'):
      rows += (dense(f'{ours}/{part}/{own}', f'{name}.{own[0]}', 'NH', 'D')[0],)
    rows += (dense(f'{ours}/{part}/out', f'{name}.o', 'D', 'NH')[0],)
  fed = f'{theirs}.{len(parts)}'
  rows += (norm(f'{ours}/ffn_norm', f'{fed}.layer_norm')[0],)
  for own, name in names.items():
    rows += (dense(f'{ours}/{own}', f'{fed}.DenseReluDense.{name}', 'F', 'D')[0],)
  rows += (dense(f'{ours}/ffn_down', f'{fed}.DenseReluDense.wo', 'D', 'F')[0],)
  return (*rows, norm(f'{stack}_norm', f'{stack}.final_layer_norm')[0])


def write(model: Any) -> dict[str, Any]:
  """Returns the kind of feed-forward, the sizes of both stacks and whether there is one table.
  Raises UserError: a feed-forward that the class has not."""
  form = model.activation, model.gated
  kind = next((kind for kind, own in FORMS.items() if own == form), None)
  if kind is None:
    raise UserError(
      'the class of T5 has config.model.activation and gated of '
      f'{sorted(FORMS.values())}, got {form}'
    )
  return dict(
    feed_forward_proj=kind, num_decoder_layers=model.layers, tie_word_embeddings=model.tied,
    scale_decoder_outputs=model.tied, is_gated_act=model.gated,
    dense_act_fn=dict(gelu_tanh='gelu_new').get(model.activation, model.activation),
  )  # fmt: skip


def read(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of `config.model` that `write` writes. Raises UserError: stacks of unlike
  depth, or a feed-forward that our model does not compute."""
  layers = given.get('num_layers', 6)
  if (deep := given.get('num_decoder_layers') or layers) != layers:
    raise uncomputed(f'num_layers={layers} and num_decoder_layers={deep}', 'as many of both')
  kind = given.get('feed_forward_proj', 'relu')
  if kind not in FORMS:
    raise uncomputed(f'feed_forward_proj={kind!r}', f'one of {", ".join(FORMS)}')
  activation, gated = FORMS[kind]
  tied = given.get('scale_decoder_outputs', given.get('tie_word_embeddings', True))
  return dict(activation=activation, gated=gated, tied=bool(tied))


FAMILY = Family(
  model='t5',
  model_type='t5',
  base='',
  classes={'T5ForConditionalGeneration': 'word'},
  layout=layout,
  fields=named(
    vocab_size=('vocab_size', 32_128),
    width=('d_model', 512),
    layers=('num_layers', 6),
    heads=('num_heads', 8),
    head_size=('d_kv', 64),
    ffn=('d_ff', 2048),
    dropout=('dropout_rate', 0.1),
    norm_eps=('layer_norm_epsilon', 1e-6),
  ),  # fmt: skip
  fixed={},
  theirs=dict(
    is_encoder_decoder=(True,),
    relative_attention_num_buckets=(BUCKETS,),
    relative_attention_max_distance=(FURTHEST,),
    decoder_start_token_id=(0,),
    classifier_dropout=(0.0,),
    initializer_factor=(1.0,),
    tie_word_embeddings=(True, False),  # which `read` reads
  ),
  write=write,
  read=read,
  pair=True,
)
