"""ErnieForPreTraining without task ids; ErnieForMaskedLM where the model has no labels."""

from bertjax.convert.families.bert import pretraining
from bertjax.convert.huggingface import Family


def family() -> Family:
  """The table of this family."""
  return pretraining('ernie')._replace(vocab_size=18_000)
