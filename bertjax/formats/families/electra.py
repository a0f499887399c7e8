"""ElectraForPreTraining: the discriminator of a run. Its generator is another class; see
electra_net.py."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Family, Field, Layout
from bertjax.formats.tables import dense, heads

GENERATOR = ('mlm', 'generator_')  # our paths of the generator begin so


def layout(model: Any) -> Layout:
  """Returns the discriminator; parameters of the generator are no part of it."""
  rows = bert.encoder('electra', net='discriminator/encoder')
  if model.embedding_width not in (0, model.width):
    rows += dense('discriminator/projection', 'electra.embeddings_project', 'D', 'E')
  judge = (
    *dense('rtd/dense', 'discriminator_predictions.dense', 'O', 'D'),
    *dense('rtd/out', 'discriminator_predictions.dense_prediction', 'A', 'D'),
  )
  return Layout(rows + heads(judge), elsewhere=GENERATOR)


FIELDS = (
  *bert.with_defaults(width=256, heads=4, ffn=1024),
  Field('embedding_width', 'embedding_size', 128),
)
FIXED = bert.plain('embedding_width', pooler_activation='gelu_erf')

FAMILY = Family(
  model='electra',
  model_type='electra',
  base='electra',
  classes={'ElectraForPreTraining': 'replaced'},
  layout=layout,
  fields=FIELDS,
  # A discriminator alone is the model without a generator: `uniform`.
  fixed=dict(FIXED, words=True, pooler=False, labels=(), token_labels=()),
  theirs=bert.THEIRS,
  write=lambda model: dict(embedding_size=model.embedding_width or model.width),
)
