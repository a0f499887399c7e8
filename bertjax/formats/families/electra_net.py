"""One net of ELECTRA as a BERT: ElectraForMaskedLM, a run's generator; the headless ElectraModel,
and a discriminator with the heads of fine-tuning.

The heads of these classes have the erf GELU whatever `hidden_act` says.
"""

from typing import Any

from bertjax.formats.families import bert, electra
from bertjax.formats.family import Family, Layout
from bertjax.formats.tables import dense


def layout(model: Any) -> Layout:
  """Returns the tables, their projection where widths differ, the layers and the heads."""
  rows = bert.encoder('electra')
  if model.embedding_width not in (0, model.width):
    rows += dense('embeddings/projection', 'electra.embeddings_project', 'D', 'E')
  words = bert.word_head(
    'generator_predictions.dense', 'generator_predictions.LayerNorm', 'generator_lm_head.bias'
  )
  labels = bert.dense_heads(model, 'sequence_summary.summary')
  return bert.whole(model, rows, words, 'generator_lm_head', labels)


def write(model: Any) -> dict[str, Any]:
  """Returns the width of the tables; raises UserError as `bert.require_gelu`."""
  width = model.embedding_width or model.width
  return bert.require_gelu(model, 'ElectraForMaskedLM') | dict(embedding_size=width)


FAMILY = Family(
  model='bert',
  model_type='electra',
  base='electra',
  classes=bert.masked_classes('Electra', ''),
  layout=layout,
  fields=electra.FIELDS,
  fixed=electra.FIXED,
  # The summary is what ElectraForMultipleChoice reads.
  theirs=dict(
    bert.THEIRS, summary_type=('first',), summary_use_proj=(True,), summary_activation=('gelu',)
  ),
  write=write,
  read=lambda given: dict(pooler_dropout=True),
)
