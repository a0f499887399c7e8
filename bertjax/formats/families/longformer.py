"""LongformerForMaskedLM, LongformerModel, and Longformer with the heads of fine-tuning.

Global tokens are those of the classes: the first one of a text, all before the first [SEP] of a
question. LongformerForMultipleChoice has those of the choices and is none of ours.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families import bert, roberta
from bertjax.formats.family import Derived, Family, Field, Layout, uncomputed
from bertjax.formats.tables import dense
from bertjax.models.longformer import GLOBAL

_ATTENTION = 'longformer.encoder.layer.{layer}.attention.self'
_QUESTION = 65  # tokens of a question and [CLS], which a config.json does not say


def layout(model: Any) -> Layout:
  """Returns the encoder and the heads. Of a model without global tokens the projections of theirs
  are copies of the others, as the original leaves them."""
  found = roberta.layout(model, 'longformer')
  if model.global_tokens != 0:
    each = GLOBAL.items()
    rows = [
      row
      for ours, name in each
      for row in dense(f'encoder/layers/{ours}', f'{_ATTENTION}.{name}_global', 'NH', 'D')
    ]
    return found._replace(rows=(*found.rows, *rows))
  copies = {
    f'{place}.{name}_global.{leaf}': Derived(source=f'{place}.{name}.{leaf}')
    for place in (_ATTENTION.format(layer=i) for i in range(model.layers))
    for name in GLOBAL.values()
    for leaf in ('weight', 'bias')
  }
  return found._replace(derived=copies)


def _one_side(given: Any) -> int:
  """Returns the tokens on each side, of theirs on both or of a list of layers that are alike."""
  windows = {*given} if isinstance(given, list) else {given}
  if len(windows) > 1 or any(not isinstance(n, int) or n < 2 or n % 2 for n in windows):
    raise uncomputed(f'attention_window={given}', 'one even number, the same in all layers')
  return windows.pop() // 2


def _takes(module: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
  """Returns where the global tokens are."""
  global_BT = module.global_of(batch)
  return {} if global_BT is None else dict(global_attention_mask=global_BT)


# What LongformerConfig has by default is BERT's.
FIELDS = (
  *bert.FIELDS,
  roberta.OFFSET,
  Field('window', 'attention_window', 512, export=lambda n: 2 * n, import_=_one_side),
)
CLASSES = bert.masked_classes('Longformer', 'pooled')
FAMILY = Family(
  model='longformer',
  recipe='longformer',
  model_type='longformer',
  base='longformer',
  classes={name: heads for name, heads in CLASSES.items() if 'Choice' not in name},
  layout=layout,
  fields=FIELDS,
  fixed=bert.plain('position_offset'),
  theirs=bert.THEIRS
  | dict(
    attention_mode=(None, 'longformer'),
    ignore_attention_mask=(None, False),
    onnx_export=(None, False),
  ),
  # [SEP] ends a question.
  write=lambda model: bert.require_gelu(model, 'LongformerForMaskedLM') | dict(sep_token_id=None),
  takes=_takes,
  read=lambda given: dict(global_tokens=_QUESTION),
)
