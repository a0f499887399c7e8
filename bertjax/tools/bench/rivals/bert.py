"""BertForPreTraining, or without labels BertForMaskedLM."""

from typing import Any

import torch
import transformers

from bertjax.tools.bench.parts.rival_step import Rival, fields_of, masked_inputs


def make(config: Any) -> torch.nn.Module:
  """Returns the class with the sizes of `config.model`; errors as `fields_of`."""
  m = config.model
  kind = transformers.BertForPreTraining if m.labels else transformers.BertForMaskedLM
  return kind(transformers.BertConfig(pad_token_id=0, **fields_of(m)))


RIVAL = Rival(make, masked_inputs, head='cls.predictions')
