"""MLflow: pip install mlflow-skinny, or mlflow; MLFLOW_TRACKING_URI says where, or ./mlruns."""

import importlib
import pathlib
import time
from collections.abc import Mapping
from typing import Any

_AT_ONCE = 100  # parameters that the server takes in one call
_LONGEST = 500  # characters of a value


class _Mlflow:
  """Metrics and the config of a run, in the experiment `bertjax`."""

  def __init__(self, name: str, config: Mapping[str, Any], workdir: pathlib.Path, id: str):
    mlflow = importlib.import_module('mlflow')
    self._entities = importlib.import_module('mlflow.entities')

    del workdir
    if id:
      self._client, self.id = mlflow.MlflowClient(), id
      return
    experiment = mlflow.set_experiment('bertjax')
    self._client = mlflow.MlflowClient()
    self.id = self._client.create_run(experiment.experiment_id, run_name=name).info.run_id
    params = [self._entities.Param(key, str(value)[:_LONGEST]) for key, value in config.items()]
    for first in range(0, len(params), _AT_ONCE):
      self._client.log_batch(self.id, params=params[first : first + _AT_ONCE])

  def write(self, step: int, values: Mapping[str, float]) -> None:
    now = int(time.time() * 1000)
    metrics = [self._entities.Metric(key, value, now, step) for key, value in values.items()]
    self._client.log_batch(self.id, metrics=metrics)

  def close(self) -> None:
    self._client.set_terminated(self.id)


TRACKER = _Mlflow
