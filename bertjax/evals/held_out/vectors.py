"""Texts as vectors, by a model that is being pretrained: the means of its last states.

The mean is over all tokens of a row, [CLS] and [SEP] among them (Reimers and Gurevych 2019). Texts
are in the language that the evaluation says, and in role 0, where a model knows any.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.evals.held_out import labelled
from bertjax.examples.labelled import classify
from bertjax.examples.labelled.common import extra_ids
from bertjax.examples.labelled.common.records import Record
from bertjax.examples.labelled.common.rows import Rows
from bertjax.types import Batch, Subject, Variables


def task(options: Any, text: tuple[str, ...], label: str, classes: tuple[str, ...]):
  """Builds the options of `classify` for texts with a label; `options` are the evaluator's."""
  return classify.Options(
    text=text, label=label, classes=classes, header=options.header, separators=1,
    unlabelled=False, soft_label='',
  )  # fmt: skip


def records(path: str, key: str, task: classify.Options, examples: int) -> list[Record]:
  """Returns the first examples of a file, 0: all; the key names it. Raises UserError if there is
  none, and as `classify.read`."""
  found = list(itertools.islice(classify.read(path, task), examples or None))
  if not found:
    raise UserError(f'{key}={path} has no examples')
  return found


def means(
  subject: Subject, rows: Labelled, batch_size: int, language: str
) -> Callable[[Variables], np.ndarray]:
  """Variables -> float32 [rows, D], computed in batches on the devices of the run. Raises
  UserError: a model with a table of languages, and none is said."""

  def function(variables: Variables, batch: Batch):
    out = subject.objective.predict(variables, (), _whole(batch, subject.template))
    return masked_mean(out['last_BTD'], batch['example_BT'])

  ids = extra_ids.ids(subject.config, language, subject.store.languages)
  served = Rows(subject.store, rows, subject.config.length, 0, batch_size, extra_ids=ids)
  outputs = labelled.outputs(subject, served, batch_size, function)
  return lambda variables: np.stack(list(outputs(variables)))


def masked_mean(last_BTD: Any, example_BT: Any) -> Any:
  """Returns the means over the tokens of each row, 0 where there is none; float32 [B, D]."""
  weight_BT1 = (example_BT > 0).astype(jnp.float32)[..., None]
  return (last_BTD.astype(jnp.float32) * weight_BT1).sum(1) / jnp.maximum(weight_BT1.sum(1), 1)


def _whole(batch: Batch, template: Batch) -> Batch:
  """Returns the batch with zeros for all else that the objective knows in training."""
  rows, length = batch['token_BT'].shape
  shape = lambda k, x: (rows, length) if k.endswith('_BT') else (rows, *x.shape[1:])
  zeros = {k: jnp.zeros(shape(k, x), x.dtype) for k, x in template.items() if k not in batch}
  return {**zeros, **batch}
