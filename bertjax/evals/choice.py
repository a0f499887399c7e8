"""Questions with some answers to choose from, each judged once: accuracy, loss, and the share of
the place where the right answer stands most often (majority); cut are those of which a choice is
longer than a row."""

import numpy as np

from bertjax.evals import classification
from bertjax.evals.held_out import labelled
from bertjax.evals.held_out.labelled import Options
from bertjax.models.layers.heads import RIGHT
from bertjax.types import Evaluation, Evaluator, Subject

NAMES = frozenset(('loss', 'accuracy', 'majority'))


def judged(logits_nG: np.ndarray, right_n: np.ndarray) -> dict[str, float]:
  """Returns the scores of float32 logits of the choices, by the int numbers of the right ones."""
  scores = classification.class_scores(logits_nG, right_n)
  return {name: scores[name] for name in sorted(NAMES)}


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of questions; errors as `labelled.judge`."""
  predict = subject.objective.predict
  logits = lambda variables, batch: predict(variables, (), batch)['label_BGC'][RIGHT][..., 0]
  scores = lambda found, examples: judged(np.stack([*found]), examples.label[RIGHT].argmax(1))
  return labelled.judge(subject, options, logits, NAMES, scores)


EVALUATOR = Evaluator(Options, make)
