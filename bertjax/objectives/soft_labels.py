"""A student learns what a teacher has said of each example, which lies in the file of the examples.

  hard * CE(label) + soft * T^2 * KL(teacher || student at T)

as in distill.py (Hinton et al. 2015), whose teacher says it anew in each step. Log-probabilities do
for logits, since a softmax does not see what is added to all of them.
"""

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import NonNegative, Positive
from bertjax.objectives import classify, in_one_pass, label_model, scaled
from bertjax.objectives.teaching import KEY, divergence
from bertjax.types import Array, Batch, Factory, Objective, Term


class Options(NamedTuple):
  """The fields of `config.objective`, those of distill.py.

  Attributes:
    hard: factor of the loss on the data's own labels.
    soft: factor of the divergence from the teacher; of a number, of the squared error.
    temperature: T, by which the logits of both are divided.
    kl: a divergence is the sum over the classes, or their mean.
  """

  hard: NonNegative
  soft: Positive
  temperature: Positive
  kl: Literal['sum', 'mean']


def terms(ours_BGC: Array, theirs_BGC: Array, batch: Batch, given: Any) -> dict[str, Term]:
  """Returns the losses of classes, or where C is 1, of a number, by the logits of the student, and
  of its teacher up to a constant of each example; `given` has hard, soft, temperature and kl."""
  weight_BG, classes = batch['example_weight_BG'], ours_BGC.shape[-1]
  found: dict[str, Term] = {}
  if given.hard or classify.has_labels(batch):
    found = scaled(classify.example_terms(ours_BGC, batch), float(given.hard))
  if given.soft and classes == 1:
    error_BG = jnp.square(ours_BGC - theirs_BGC)[..., 0]
    found['soft'] = Term.mean(error_BG, weight_BG, float(given.soft))
  elif given.soft:
    error_BG = divergence(theirs_BGC, ours_BGC, float(given.temperature))
    if given.kl == 'mean':
      error_BG /= classes
    scale = float(given.soft) * float(given.temperature) ** 2
    found['soft'] = Term.mean(error_BG, weight_BG, scale)
  return found


def column_of(config) -> str:
  """Returns the column of the soft labels. Raises UserError if it is not named."""
  if column := config.data.task.get('soft_label'):
    return column
  raise UserError(
    f'{KEY}.name={classify.SOFT_LABELS!r}: expected config.data.task.soft_label, the column of '
    "what a teacher says, got ''"
  )


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `label_model`,
  `classify.classes_of` and `column_of`; later, a file without it."""
  given, model = config.objective, label_model(config)
  classify.classes_of(config)
  column = column_of(config)

  def of(out: Any, batch: Batch) -> dict[str, Term]:
    if 'soft_label_BGC' not in batch:
      raise UserError(
        f'config.data.train has no column {column!r}: expected a file that `python -m '
        'bertjax.predict --soft_labels=FILE` has written'
      )
    return terms(out['label_BGC'][classify.LABEL], batch['soft_label_BGC'], batch, given)

  return in_one_pass(model, of, ('classification',))


OBJECTIVE = Factory(Options, make, targets=lambda config: ())
