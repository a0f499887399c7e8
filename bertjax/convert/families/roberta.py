"""RobertaForMaskedLM, and so XLM-R."""

from bertjax.convert.families.bert import encoder
from bertjax.convert.huggingface import Family, Row, dense, norm


def family() -> Family:
  """The table of this family."""
  return Family(
    rows=(
      *encoder('roberta'),
      *dense('mlm/dense', 'lm_head.dense', 'E', 'D'),
      *norm('mlm/norm', 'lm_head.layer_norm', 'E'),
      Row('mlm/bias', 'lm_head.bias', 'V->V'),
    ),
    pooled=(),
    tied={
      'lm_head.decoder.weight': 'roberta.embeddings.word_embeddings.weight',
      'lm_head.decoder.bias': 'lm_head.bias',
    },
    # Some published files hold a pooler that was never trained.
    ignored=('.position_ids', '.pooler.dense.weight', '.pooler.dense.bias'),
    vocab_size=50_265,
  )
