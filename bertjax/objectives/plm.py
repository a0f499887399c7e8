"""Permutation language modelling: XLNet's pretraining (zihangdai/xlnet, function_builder.py).

sum(w nll) / sum(w) over the slots of all rows. What a slot sees is the masking's to say
(`bertjax.examples.noise.xlnet_permutation`), memory is the carry.
"""

from typing import NamedTuple

from bertjax.models.layers.memory import Start
from bertjax.models.xlnet import XLNet
from bertjax.objectives import lm, model_of, require_words
from bertjax.types import Factory, Objective


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    memory: what a run begins with; see models/layers/memory.py.
  """

  memory: Start = 'zeros'


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `model_of`; a model without
  words."""
  model = model_of(config.model, config.objective.name, XLNet)
  require_words(config.model)
  return lm.over_a_stream(model, 'plm', config.objective.memory, ('loss', 'linear_probe'))


OBJECTIVE = Factory(Options, make, targets=lambda config: ('permuted',))
