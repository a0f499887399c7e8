"""Weights & Biases: pip install wandb, then wandb login, or WANDB_MODE=offline."""

import importlib
import pathlib
from collections.abc import Mapping
from typing import Any


class _Wandb:
  """Metrics over `step`, not over wandb's own counter, which cannot go back to a checkpoint."""

  def __init__(self, name: str, config: Mapping[str, Any], workdir: pathlib.Path, id: str):
    wandb = importlib.import_module('wandb')

    self._run = wandb.init(
      project='bertjax', name=name, id=id or None, resume='allow', config=dict(config),
      dir=str(workdir), settings=wandb.Settings(console='off', silent=True),
    )  # fmt: skip
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')
    self.id = str(self._run.id)

  def write(self, step: int, values: Mapping[str, float]) -> None:
    self._run.log({'step': step, **values})

  def close(self) -> None:
    self._run.finish()


TRACKER = _Wandb
