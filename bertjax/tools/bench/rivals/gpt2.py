"""GPT2LMHeadModel: every token but the first is a target."""

from typing import Any

import numpy as np
import torch

from bertjax.tools.bench.parts.rival_step import Rival, exported
from bertjax.types import Batch


def inputs(config: Any, batch: Batch) -> dict[str, torch.Tensor]:
  """Returns rows of one text each as the class's arguments; it moves the labels by itself."""
  del config
  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  labels_BT = np.where(batch['example_BT'] > 0, batch['token_BT'], -100)
  return dict(input_ids=tensor(batch['token_BT']), labels=tensor(labels_BT))


RIVAL = Rival(exported, inputs)
