"""A class or a number for each example, read off its first token (Devlin et al. 2019, section 4.1),
or off its last (GPT, XLNet).

Classes: the mean cross-entropy of the examples (google-research/bert,
run_classifier.py:create_model), with weights and smoothed labels as torch.nn.CrossEntropyLoss has
them. Any number of classes: the mean binary cross-entropy of all of them (transformers,
`problem_type='multi_label_classification'`; torch.nn.BCEWithLogitsLoss, whose pos_weight are the
weights). Numbers: their mean squared error (`problem_type='regression'`; STS-B).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import Fraction, NonNegative
from bertjax.objectives import check_heads, label_model, labels_of
from bertjax.objectives.combine import next_words
from bertjax.objectives.mlm import label_terms
from bertjax.types import Array, Batch, Factory, Objective, Term

LABEL = 'label'
SOFT_LABELS = 'soft_labels'  # the objective
NAME = 'classify'


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    lm: as of `next_words.Options`.
    smoothing: share of each label that is spread evenly over all classes; where an example has any
      number of classes, over its having a class and not.
    class_weights: weight of each class in the loss; (): all weigh the same.
  """

  lm: NonNegative = 0.0
  smoothing: Fraction = 0.0
  class_weights: tuple[NonNegative, ...] = ()


def classes_of(config) -> int:
  """Returns the number of classes of the one label of `config.model`; 1: the label is a number.
  Raises UserError: as `check_heads`; soft labels that the objective does not read, or several."""
  name = config.objective.name
  for key, reader in (('soft_label', SOFT_LABELS), ('several', NAME)):
    if config.data.task.get(key) and name != reader:
      raise UserError(
        f'config.data.task.{key}={config.data.task[key]!r} is read by config.objective.name='
        f"{reader!r} alone, got {name!r}: leave it at ''"
      )
  check_heads(config, text=((LABEL, 0),))
  return dict(labels_of(config.model))[LABEL]


def has_labels(batch: Batch) -> bool:
  """Returns whether the batch has labels."""
  return f'{LABEL}_BG' in batch or f'{LABEL}_BGC' in batch


def example_terms(
  logits_BGC: Array, batch: Batch, smoothing: float = 0.0, class_weights: Sequence[float] = ()
) -> dict[str, Term]:
  """Returns the loss of the label: of classes, or where there is one, of a number; the last two are
  as of `Options`. Raises UserError if the examples have no label."""
  if not has_labels(batch):
    raise UserError(
      'config.data.train has no labels, or none is read (config.data.task.unlabelled): expected '
      "them, or config.objective.name='distill' with hard=0.0, where a student learns what its "
      'teacher says'
    )
  if logits_BGC.shape[-1] == 1:
    error_BG = jnp.square(logits_BGC[..., 0] - batch[f'{LABEL}_BG'])
    return {LABEL: Term.mean(error_BG, batch['example_weight_BG'], 1.0)}
  weight_11C = jnp.array(class_weights or (1.0,) * logits_BGC.shape[-1], jnp.float32)[None, None]
  if f'{LABEL}_BGC' in batch:
    return _several(logits_BGC, batch, smoothing, weight_11C)
  found = label_terms(LABEL, logits_BGC, batch)
  if smoothing or class_weights:
    found[LABEL] = _weighted(logits_BGC, batch, smoothing, weight_11C)
  return found


def _several(
  logits_BGC: Array, batch: Batch, smoothing: float, weight_11C: Array
) -> dict[str, Term]:
  weight_BG, label_BGC = batch['example_weight_BG'], batch[f'{LABEL}_BGC']
  soft_BGC = label_BGC * (1 - smoothing) + smoothing / 2
  yes_BGC, no_BGC = jax.nn.log_sigmoid(logits_BGC), jax.nn.log_sigmoid(-logits_BGC)
  nll_BGC = -(weight_11C * soft_BGC * yes_BGC + (1 - soft_BGC) * no_BGC)
  right_BGC = ((logits_BGC > 0) == (label_BGC > 0)).astype(jnp.float32)
  return Term.learned(LABEL, nll_BGC.mean(-1), right_BGC.mean(-1), weight_BG)


def _weighted(logits_BGC: Array, batch: Batch, smoothing: float, weight_11C: Array) -> Term:
  """Returns the cross-entropy over the sum of the right classes' weights."""
  right_BGC = jax.nn.one_hot(batch[f'{LABEL}_BG'], logits_BGC.shape[-1])
  share_BGC = (1 - smoothing) * right_BGC + smoothing / logits_BGC.shape[-1]
  nll_BG = -jnp.sum(share_BGC * weight_11C * jax.nn.log_softmax(logits_BGC), -1)
  weight_BG, of_class_BG = batch['example_weight_BG'], jnp.sum(right_BGC * weight_11C, -1)
  return Term(jnp.sum(nll_BG * weight_BG), jnp.sum(weight_BG * of_class_BG), 1.0)


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.labels` is (('label', C),), with one
  class for a number. Raises UserError: see `label_model` and `classes_of`."""
  model = label_model(config)
  classes, given = classes_of(config), config.objective
  how = float(given.smoothing), tuple(map(float, given.class_weights))
  if (any(how) and classes == 1) or len(how[1]) not in (0, classes):
    raise UserError(
      f'config.objective: expected smoothing and class_weights of classes, one weight for each of '
      f'{classes}, got {how[0]:g} and {how[1]}; 1 class is a number, which has neither'
    )
  terms = lambda out, batch: example_terms(out['label_BGC'][LABEL], batch, *how)
  return next_words.in_one_pass(model, terms, float(given.lm), ('classification',))


OBJECTIVE = Factory(Options, make, targets=lambda config: ())
