"""facebookresearch/fairseq, models/roberta/model.py and modules/transformer_sentence_encoder.py:
RoBERTa and XLM-R. Names are without their first part, `decoder.` in old files and `encoder.` since.
"""

import re
from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import bert
from bertjax.formats.families.roberta import FAMILY
from bertjax.formats.originals.original import Part, activation, count, even, shape
from bertjax.formats.tables import Row, layer, norm

NET = 'sentence_encoder'
HEAD = 64  # width of a head in all published sizes
ACTIVATIONS = dict(
  gelu='gelu_erf', gelu_fast='gelu_tanh', gelu_accurate='gelu_tanh', relu='relu'
)  # fmt: skip
OFFSET = 2  # positions begin behind the id of the pad symbol, 1
FUSED = 'self_attn.in_proj_weight'
TABLE_NORMS = ('emb_layer_norm', 'layernorm_embedding')  # until 2020, and since
TIED = {'lm_head.weight': f'{NET}.embed_tokens.weight'}
IGNORED = ('version', '_float_tensor')  # endings of buffers


def fields(state: Mapping[str, Any], args: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`. Raises UserError: what our encoder does not compute."""
  if f'{NET}.layer_norm.weight' in state:
    raise UserError(
      f'{NET}.layer_norm stands behind the last layer: the layers have their norms in front '
      '(XLM-R XL), which our encoder does not compute'
    )
  vocab_size, width = shape(state, f'{NET}.embed_tokens.weight')
  assumed = []
  if 'encoder_attention_heads' not in args:
    assumed.append(f'no args say the heads: {max(1, width // HEAD)}, of {HEAD} each')
  if 'activation_fn' not in args:
    assumed.append("no args say the activation: 'gelu'")
  if args.get('activation_dropout') or args.get('relu_dropout'):
    assumed.append('activation_dropout, of the feed-forward part, is left out: ours has none')
  xlm_r = vocab_size == 250_002 or str(args.get('task', '')).startswith('multilingual')
  found = dict(
    bert.PLAIN, name='bert', family='xlm_roberta' if xlm_r else 'roberta', vocab_size=vocab_size,
    width=width, layers=count(state, f'{NET}.layers.'), position_offset=OFFSET, types=1,
    norm_eps=1e-5,
    heads=args.get('encoder_attention_heads', max(1, width // HEAD)),
    ffn=shape(state, f'{NET}.layers.0.fc1.weight')[0],
    positions=shape(state, f'{NET}.embed_positions.weight')[0],
    activation=activation(str(args.get('activation_fn', 'gelu')), ACTIVATIONS), zero_row=1,
    words='lm_head.bias' in state, pooler=False, labels=(), token_labels=(),
  )  # fmt: skip
  for key in ('dropout', 'attention_dropout'):
    found |= {key: float(args[key])} if key in args else {}
  return found, assumed


def rows(model: Any, state: Mapping[str, Any]) -> Part:
  """Returns the table, without the row of segments, which fairseq has none of."""
  table_norm = next((n for n in TABLE_NORMS if f'{NET}.{n}.weight' in state), TABLE_NORMS[-1])
  found = [
    Row('embeddings/word', f'{NET}.embed_tokens.weight', 'V,E->VE'),
    Row('embeddings/position', f'{NET}.embed_positions.weight', 'T,E->TE'),
    *norm('embeddings/norm', f'{NET}.{table_norm}', 'E'),
    *layer(
      'encoder/layers',
      f'{NET}.layers.{{layer}}.*',
      'self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj '
      'self_attn_layer_norm fc1 fc2 final_layer_norm',
    ),
  ]
  if f'{NET}.layers.0.{FUSED}' in state:  # files of early 2019
    part = lambda match: f'.in_proj_{match[2]}[{"qkv".index(match[1])}]'
    found = [
      row._replace(theirs=re.sub(r'\.([qkv])_proj\.(\w+)', part, row.theirs)) for row in found
    ]
  if model.words:
    found += bert.word_head('lm_head.dense', 'lm_head.layer_norm', 'lm_head.bias')
  # A file of pretraining has none of these.
  found += bert.label_heads(
    model, 'pooler', {n: n for n, _ in (*model.labels, *model.token_labels)}
  )
  return Part(tuple(found), model)


def cuts(state: Mapping[str, Any]) -> dict[str, list[int]]:
  """Queries, keys and values of early files, which are one tensor."""
  return {name: even(state, name, 3) for name in state if '.in_proj_' in name}


RECIPES = dict(roberta=FAMILY.recipe, xlm_roberta='xlm_r')
