"""A class or a number for each example, read off its first token (Devlin et al. 2019, section 4.1),
or off its last (GPT, XLNet).

Classes: the mean cross-entropy of the examples (google-research/bert,
run_classifier.py:create_model). Numbers: their mean squared error (transformers,
`problem_type='regression'`; STS-B).
"""

import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.objectives import label_model, labels_of, refuse_words
from bertjax.objectives.combine import next_words
from bertjax.objectives.mlm import label_terms
from bertjax.types import Array, Batch, Factory, Objective, Term

LABEL = 'label'
SOFT_LABELS = 'soft_labels'  # the objective


def classes_of(config) -> int:
  """Returns the number of classes of the one label of `config.model`; 1: the label is a number.
  Raises UserError: other labels, a head for words, or soft labels that the objective does not
  read."""
  labels = labels_of(config.model)
  name = config.objective.name
  if config.data.task.get('soft_label') and name != SOFT_LABELS:
    raise UserError(
      f'config.data.task.soft_label={config.data.task.soft_label!r} is read by '
      f"config.objective.name={SOFT_LABELS!r} alone, got {name!r}: leave it at ''"
    )
  if [label for label, _ in labels] != [LABEL]:
    raise UserError(
      f'the objective {name!r} learns one label: expected config.model.labels=(({LABEL!r}, '
      f'0),), got {labels!r}'
    )
  refuse_words(config)
  return dict(labels)[LABEL]


def has_labels(batch: Batch) -> bool:
  """Returns whether the batch has labels."""
  return f'{LABEL}_BG' in batch


def example_terms(logits_BGC: Array, batch: Batch) -> dict[str, Term]:
  """Returns the loss of the label: of classes, or where there is one, of a number. Raises UserError
  if the examples have no label."""
  if not has_labels(batch):
    raise UserError(
      'config.data.train has no labels, or none is read (config.data.task.unlabelled): expected '
      "them, or config.objective.name='distill' with hard=0.0, where a student learns what its "
      'teacher says'
    )
  if logits_BGC.shape[-1] == 1:
    error_BG = jnp.square(logits_BGC[..., 0] - batch[f'{LABEL}_BG'])
    return {LABEL: Term.mean(error_BG, batch['example_weight_BG'], 1.0)}
  return label_terms(LABEL, logits_BGC, batch)


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.labels` is (('label', C),), with one
  class for a number. Raises UserError: see `label_model` and `classes_of`."""
  model = label_model(config)
  classes_of(config)
  terms = lambda out, batch: example_terms(out['label_BGC'][LABEL], batch)
  return next_words.of_heads(model, terms, float(config.objective.lm), ('classification',))


OBJECTIVE = Factory(next_words.Options, make)
