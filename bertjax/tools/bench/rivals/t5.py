"""T5ForConditionalGeneration: all that is written is a target."""

from typing import Any

import numpy as np
import torch

from bertjax.tools.bench.parts.rival_step import Rival, exported
from bertjax.types import Batch


def inputs(config: Any, batch: Batch) -> dict[str, torch.Tensor]:
  """Returns a batch of one text in a row as the class's arguments."""
  del config
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  return dict(
    input_ids=tensor(batch['token_BT']), attention_mask=tensor(batch['example_BT'] > 0),
    decoder_input_ids=tensor(batch['out_token_BU']),
    labels=tensor(np.where(batch['weight_BU'] > 0, batch['target_BU'], -100)),
  )  # fmt: skip


RIVAL = Rival(exported, inputs)
