"""Transformer-XL as an XLNet that reads to the left: XLNetLMHeadModel with attn_type='uni'.

That class has no factor on its word table, so the table is written times sqrt(width) and the head,
which has none, keeps the table as it is: it is untied. u and v, one for all layers here, are copied
to each. What XLNet needs besides, the mask's vector and the segments, is zero and not read.
"""

from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import xlnet
from bertjax.formats.family import Derived, Family, Field, Layout
from bertjax.formats.tables import Row, heads


def layout(model: Any) -> Layout:
  """Returns the table, the layers with their query biases, the head's bias."""
  attention, ours = 'transformer.layer.{layer}.rel_attn', 'layers/' if model.untie_r else ''
  rows = (
    Row('word', 'lm_loss.weight', 'V,D->VD'),
    *xlnet.layers(),
    Row(f'{ours}u', f'{attention}.r_w_bias', 'N,H->NH'),
    Row(f'{ours}w', f'{attention}.r_r_bias', 'N,H->NH'),
    *heads((Row('head/bias', 'lm_loss.bias', 'V->V'),)),
  )
  shape = (model.heads, model.head_size)
  derived = {
    'transformer.word_embedding.weight': Derived(source='lm_loss.weight', factor=model.width**0.5),
    'transformer.mask_emb': Derived((1, 1, model.width)),
  }
  for layer in range(model.layers):
    derived[f'{attention.format(layer=layer)}.r_s_bias'] = Derived(shape)
    derived[f'{attention.format(layer=layer)}.seg_embed'] = Derived((2, *shape))
  return Layout(rows, ignored=(), derived=derived)


def write(model: Any) -> dict[str, Any]:
  """Returns no further field. Raises UserError: heads that do not make up the width."""
  if model.heads * model.head_size != model.width:
    raise UserError(
      'the class has heads of width / heads: expected config.model.head_size='
      f'{model.width / model.heads:g}, got {model.head_size}'
    )
  return {}


FAMILY = Family(
  model='transformer_xl',
  model_type='xlnet',
  base='transformer',
  classes={'XLNetLMHeadModel': 'word'},
  layout=layout,
  fields=(
    *xlnet.COMMON,
    Field('head_size', 'd_head', 64),
    Field('untie_r', 'untie_r', True),  # which the class itself does not read
  ),
  fixed=dict(
    cutoffs=(), div_val=1, attention='relative', learned_positions=0, same_length=False,
    pre_norm=False,
  ),
  theirs=dict(
    attn_type=('uni',), same_length=(False,), tie_word_embeddings=(False,)
  ),
  write=write,
)  # fmt: skip
