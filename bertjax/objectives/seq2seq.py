"""Writing a second text: T5's loss, the mean over its tokens, with a penalty of the normaliser.

t5x, losses.py: cross-entropy plus z_loss * log(Z)^2, summed over the tokens of a batch; here their
mean, since Adafactor's updates do not know the difference. What is read and what is written is the
noise's to say, or the labelled task's.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax import models
from bertjax.data_contracts import Targets
from bertjax.errors import UserError
from bertjax.field_types import NonNegative
from bertjax.kernels.cross_entropy import cross_entropy, logits
from bertjax.models.layers.contracts import PairModel
from bertjax.objectives import in_one_pass, lm, model_of
from bertjax.types import Array, Batch, Factory, Objective, Term

EVALS = ('loss', 'generated', 'linear_probe')


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    z_loss: weight of the squared logarithm of the softmax's normaliser; T5's is 1e-4.
  """

  z_loss: NonNegative


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `model_of`."""
  model = model_of(config.model, config.objective.name, PairModel)
  _check_frame(model, config.data)
  z_loss = float(config.objective.z_loss)

  def terms(out: Any, batch: Batch) -> dict[str, Term]:
    weight_BU = batch['weight_BU']
    nll_BU, right_BU, log_z_BU = cross_entropy(out['word'], batch['target_BU'])
    found = Term.learned('seq2seq', nll_BU, right_BU, weight_BU)
    if z_loss:
      found['z_loss'] = Term.mean(z_loss * jnp.square(log_z_BU), weight_BU, 1.0)
    return found

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    out = model.apply(variables, batch)
    return dict(out, logits_BUV=logits(out['word']))

  finish = functools.partial(lm.finish, term='seq2seq')
  return in_one_pass(model, terms, EVALS)._replace(predict=predict, finish=finish)


def _check_frame(model: PairModel, data: Any) -> None:
  task = data.get('task', {})
  if task.get('name') == 'write' and task.get('framed', False) != model.framed:
    raise UserError(
      f'config.data.task.framed: expected {model.framed}, as the model reads texts, got '
      f'{not model.framed}: begin with its own recipe of configs/finetune/write.py, or set it'
    )


def targets(config) -> Sequence[Targets]:
  """Returns what a `config.model` writes: a text begins for it as it will where it generates."""
  return ('framed',) if getattr(models.bare(config.model), 'framed', False) else ('written',)


OBJECTIVE = Factory(Options, make, targets=targets)
