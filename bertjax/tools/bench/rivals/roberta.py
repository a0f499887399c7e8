"""RobertaForMaskedLM."""

from typing import Any

import torch
import transformers

from bertjax.tools.bench.parts.rival_step import Rival, fields_of, masked_inputs


def make(config: Any) -> torch.nn.Module:
  """Returns the class with the sizes of `config.model`; errors as `fields_of`."""
  fields = fields_of(config.model)
  return transformers.RobertaForMaskedLM(transformers.RobertaConfig(pad_token_id=1, **fields))


RIVAL = Rival(make, masked_inputs, head='lm_head')
