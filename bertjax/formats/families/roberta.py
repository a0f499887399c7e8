"""RobertaForMaskedLM, RobertaModel, and RoBERTa with the heads of fine-tuning."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Family, Field, Layout


def layout(model: Any, base: str = 'roberta') -> Layout:
  """Returns the encoder, whose names begin with `base`, and the heads. A class for sequences has no
  pooler but a head of two layers, which does what our pooler and label do."""
  words = bert.word_head('lm_head.dense', 'lm_head.layer_norm', 'lm_head.bias')
  pooler = f'{base}.pooler.dense'  # some published files hold one that was never trained
  labels = bert.dense_heads(model, pooler)
  return bert.whole(model, bert.encoder(base), words, 'lm_head.decoder', labels, (pooler,))


# The vector of the pad token is zero and stays out of training there; positions begin behind it.
OFFSET = Field(
  'position_offset', 'pad_token_id', 1, export=lambda n: n - 1, import_=lambda pad: pad + 1
)

FAMILY = Family(
  model='bert',
  recipe='roberta',
  model_type='roberta',
  base='roberta',
  classes=bert.masked_classes('Roberta', 'pooled'),
  layout=layout,
  fields=(*bert.with_defaults(vocab_size=50_265), OFFSET),
  fixed=bert.plain('position_offset'),
  theirs=bert.THEIRS,
  write=lambda model: bert.require_gelu(model, 'RobertaForMaskedLM'),
  alike={
    'camembert': ('Camembert', 'Roberta'),
    'data2vec-text': ('Data2VecText', 'Roberta'),
  },
)
