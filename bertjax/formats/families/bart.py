"""BartForConditionalGeneration: one word table, a table of positions for each stack."""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.family import ACTIVATIONS, Derived, Family, Layout, named, uncomputed
from bertjax.formats.tables import Row, dense, layer, norm
from bertjax.models.bart import OFFSET

SIDES = ('encoder', 'decoder')


def layout(model: Any) -> Layout:
  """Returns the tables and both stacks; the bias of the words is zero there."""
  rows: tuple[Row, ...] = (Row('word', 'model.shared.weight', 'V,D->VD'),)
  places = dict(T=model.positions + OFFSET)
  for side in SIDES:
    theirs = f'model.{side}'
    rows += (Row(f'{side}_position', f'{theirs}.embed_positions.weight', 'T,D->TD', places),)
    rows += norm(f'{side}_norm', f'{theirs}.layernorm_embedding')
    rows += layer(
      f'{side}/layers',
      f'{theirs}.layers.{{layer}}.*',
      'self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj '
      'self_attn_layer_norm fc1 fc2 final_layer_norm',
    )
  ours, theirs = 'decoder/layers/cross_attention', 'model.decoder.layers.{layer}.encoder_attn'
  for name in ('query', 'key', 'value'):
    rows += dense(f'{ours}/{name}', f'{theirs}.{name[0]}_proj', 'NH', 'D')
  rows += dense(f'{ours}/out', f'{theirs}.out_proj', 'D', 'NH')
  rows += norm(f'{ours}_norm', f'{theirs}_layer_norm')
  tied = {f'model.{side}.embed_tokens.weight': 'model.shared.weight' for side in SIDES}
  tied['lm_head.weight'] = 'model.shared.weight'
  return Layout(rows, tied, derived={'final_logits_bias': Derived((1, model.vocab_size))})


def write(model: Any) -> dict[str, Any]:
  """Returns the sizes of the decoder, which are those of the encoder, and the keys of the ids with
  which a text begins and ends."""
  return dict(
    decoder_layers=model.layers, decoder_attention_heads=model.heads, decoder_ffn_dim=model.ffn,
    decoder_start_token_id=None, forced_bos_token_id=None, forced_eos_token_id=None,
  )  # fmt: skip


def read(given: Mapping[str, Any]) -> dict[str, Any]:
  """Refuses stacks of unlike sizes, and a decoder that begins with another token than the end."""
  for ours, default in dict(layers=12, attention_heads=16, ffn_dim=4096).items():
    sizes = [given.get(f'{side}_{ours}', default) for side in SIDES]
    if sizes[0] != sizes[1]:
      raise uncomputed(
        f'encoder_{ours}={sizes[0]} and decoder_{ours}={sizes[1]}', 'as many of both'
      )
  begin, end = given.get('decoder_start_token_id', 2), given.get('eos_token_id', 2)
  if begin != end:
    raise uncomputed(f'decoder_start_token_id={begin} and eos_token_id={end}', 'the same of both')
  return {}


FAMILY = Family(
  model='bart',
  model_type='bart',
  base='model',
  classes={'BartForConditionalGeneration': 'word'},
  layout=layout,
  fields=named(
    vocab_size=('vocab_size', 50_265),
    width=('d_model', 1024),
    layers=('encoder_layers', 12),
    heads=('encoder_attention_heads', 16),
    ffn=('encoder_ffn_dim', 4096),
    positions=('max_position_embeddings', 1024),
    activation=('activation_function', 'gelu', ACTIVATIONS),
    scaled=('scale_embedding', False),
    dropout=('dropout', 0.1),
    inner_dropout=('activation_dropout', 0.0),
    attention_dropout=('attention_dropout', 0.0),
    init_std=('init_std', 0.02),
  ),
  fixed=dict(norm_eps=1e-5),
  theirs=dict(
    is_encoder_decoder=(True,),
    tie_word_embeddings=(True,),
    encoder_layerdrop=(0.0,),
    decoder_layerdrop=(0.0,),
    add_final_layer_norm=(False, None),
    normalize_before=(False, None),
  ),
  write=write,
  read=read,
  pair=True,
)
