"""ElectraForPreTraining: the discriminator of a run. Its generator is another class; see
electra_generator.py."""

from bertjax.convert.families.bert import encoder
from bertjax.convert.huggingface import Family, dense


def family() -> Family:
  """The table of this family; parameters of the generator are left out."""
  return Family(
    rows=(
      *encoder('electra', 'discriminator/'),
      *dense('rtd/dense', 'discriminator_predictions.dense', 'O', 'D'),
      *dense('rtd/out', 'discriminator_predictions.dense_prediction', 'A', 'D'),
    ),
    projection=dense('discriminator/projection', 'electra.embeddings_project', 'D', 'E'),
    pooled=(),
    tied={},
    ignored=('.position_ids',),
  )
