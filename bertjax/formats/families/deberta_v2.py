"""DebertaV2ForMaskedLM, DebertaV2Model, and DeBERTa-v2 and v3 with the heads of fine-tuning.

Of DeBERTa-v3 the published file is the discriminator, whose own head, `mask_predictions`, no class
of transformers has, beside a head of words. Here words are scored as there, and as transformers
does with legacy=False; its default is another head.
"""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Family, Layout, named
from bertjax.formats.tables import Row, layer, norm

_JUDGE = tuple(f'mask_predictions.{name}' for name in ('dense', 'LayerNorm', 'classifier'))


def layout(model: Any) -> Layout:
  """Returns the encoder, its table of distances, and the heads."""
  place = Row(
    'encoder/position', 'deberta.encoder.rel_embeddings.weight', 'X,D->XD',
    sizes=dict(X=2 * model.buckets),
  )  # fmt: skip
  rows = (
    Row('embeddings/word', 'deberta.embeddings.word_embeddings.weight', 'V,D->VD'),
    *norm('embeddings/norm', 'deberta.embeddings.LayerNorm'),
    place,
    *norm('encoder/position_norm', 'deberta.encoder.LayerNorm'),
    *layer(
      'encoder/layers',
      'deberta.encoder.layer.{layer}.*',
      'attention.self.query_proj attention.self.key_proj attention.self.value_proj '
      'attention.output.dense attention.output.LayerNorm intermediate.dense output.dense '
      'output.LayerNorm',
    ),
  )
  head = 'lm_predictions.lm_head'
  words = bert.word_head(f'{head}.dense', f'{head}.LayerNorm', f'{head}.bias')
  labels = bert.label_heads(model, 'pooler.dense', {'span': 'qa_outputs'})
  found = bert.whole(model, rows, words, '', labels, _JUDGE)
  positions = 'deberta.embeddings.position_embeddings.weight'  # of the decoder, in published files
  return found._replace(ignored=(*found.ignored, positions))


THEIRS = dict(
  relative_attention=(True,), norm_rel_ebd=('layer_norm',), share_att_key=(True,),
  position_biased_input=(False,),
  pos_att_type=(['c2p', 'p2c'], ['p2c', 'c2p'], 'c2p|p2c', 'p2c|c2p'),
  max_relative_positions=(-1,), pooler_dropout=(0.0,), pooler_hidden_act=('gelu',),
  conv_kernel_size=(0, None), tie_word_embeddings=(True,),
)  # fmt: skip
FIELDS = (
  *bert.with_defaults(vocab_size=128_100, types=0, norm_eps=1e-7, width=1536, layers=24, heads=24,
                      ffn=6144),
  *named(buckets=('position_buckets', -1)),
)  # fmt: skip
FAMILY = Family(
  model='deberta',
  recipe='deberta_v3',
  model_type='deberta-v2',
  base='deberta',
  classes=bert.masked_classes('DebertaV2', ''),
  layout=layout,
  fields=FIELDS,
  fixed=bert.plain('', types=0, pooler_activation='gelu_erf', pooler_dropout=False),
  theirs=THEIRS,
  unsaid=dict(
    relative_attention=False,
    norm_rel_ebd='none',
    share_att_key=False,
    position_biased_input=True,
    pos_att_type=None,
  ),
  write=lambda model: dict(legacy=False, pooler_hidden_size=model.width),
  unlike=dict(deberta='version 1, which projects its positions apart, and has no buckets of them'),
)
