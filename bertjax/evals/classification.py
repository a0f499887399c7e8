"""Classes or numbers of labelled examples, each judged once, by the scores that GLUE has for them.

Classes: accuracy, loss, the share of the most frequent class (majority), Matthews' correlation
(mcc) and of two classes F1 of the second. Any number of classes of each example: loss, F1 of all
decisions (micro_f1) and the mean of the classes' F1 (macro_f1) where a probability above .5 says
yes, the share of examples that are right in all classes (exact), and label ranking average
precision (ranking). Numbers: mean squared error, Pearson's and Spearman's
correlation. A correlation of what does not vary is 0. Of both: how many examples were cut, since a
row of `config.length` has no room for all of them.
"""

from typing import Any, cast

import numpy as np

from bertjax.errors import UserError
from bertjax.evals.held_out import labelled
from bertjax.evals.held_out.labelled import Options
from bertjax.objectives.classify import LABEL
from bertjax.types import Evaluation, Evaluator, Subject


def nll(logits_nC: np.ndarray, label_n: np.ndarray) -> np.ndarray:
  """-log softmax(logits)[label], float64 [n]; of float32 logits and int32 ids."""
  top_n1 = logits_nC.max(1, keepdims=True).astype(np.float64)
  log_sum_n = np.log(np.exp(logits_nC - top_n1).sum(1)) + top_n1[:, 0]
  return log_sum_n - logits_nC[np.arange(len(label_n)), label_n]


def class_scores(logits_nC: np.ndarray, label_n: np.ndarray) -> dict[str, float]:
  """Returns the scores of predicted classes, of float32 logits and the int32 ids of the right
  ones."""
  from sklearn import metrics

  found_n = logits_nC.argmax(1)
  varies = len(np.unique(label_n)) > 1 and len(np.unique(found_n)) > 1
  scores = dict(
    loss=float(np.mean(nll(logits_nC, label_n))),
    accuracy=float(np.mean(found_n == label_n)),
    majority=float(np.bincount(label_n).max() / len(label_n)),
    mcc=float(metrics.matthews_corrcoef(label_n, found_n)) if varies else 0.0,
  )
  if logits_nC.shape[1] == 2:
    scores['f1'] = float(metrics.f1_score(label_n, found_n, zero_division=cast(Any, 0)))
  return scores


def several_scores(logits_nC: np.ndarray, label_nC: np.ndarray) -> dict[str, float]:
  """Returns the scores of examples with any number of classes, of float32 logits and labels of 0
  and 1."""
  from sklearn import metrics

  found_nC, loss_nC = logits_nC > 0, np.logaddexp(0, logits_nC.astype(np.float64))
  finite_nC = np.nan_to_num(logits_nC)  # of a model that is lost, whose loss tells it
  f1 = lambda how: float(
    metrics.f1_score(label_nC, found_nC, average=how, zero_division=cast(Any, 0))
  )
  return dict(
    loss=float(np.mean(loss_nC - label_nC * logits_nC)),
    micro_f1=f1('micro'),
    macro_f1=f1('macro'),
    exact=float(np.mean((found_nC == label_nC).all(1))),
    ranking=float(metrics.label_ranking_average_precision_score(label_nC, finite_nC)),
  )


def number_scores(found_n: np.ndarray, label_n: np.ndarray) -> dict[str, float]:
  """Returns the scores of predicted numbers, float32 both."""
  from scipy import stats

  found_n, label_n = found_n.astype(np.float64), label_n.astype(np.float64)
  scores = dict(loss=float(np.mean((found_n - label_n) ** 2)))
  varies = len(found_n) > 1 and np.ptp(found_n) > 0 and np.ptp(label_n) > 0
  for name, function in (('pearson', stats.pearsonr), ('spearman', stats.spearmanr)):
    statistic, _ = cast(Any, function)(found_n, label_n) if varies else (0.0, 1.0)
    scores[name] = float(statistic)
  return scores


def names(classes: int, several: str = '') -> frozenset[str]:
  """Returns the names of the scores; one class stands for a number, `several` is the option of the
  task."""
  if several:
    return frozenset(('loss', 'micro_f1', 'macro_f1', 'exact', 'ranking'))
  if classes == 1:
    return frozenset(('loss', 'pearson', 'spearman'))
  return frozenset(('loss', 'accuracy', 'majority', 'mcc', *(('f1',) if classes == 2 else ())))


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of labelled examples. Raises UserError: as `labelled.judge`; a
  number is predicted, and the run is judged by a score of classes."""
  classes = dict(subject.config.model.labels)[LABEL]
  _check_best(subject, classes)
  predict = subject.objective.predict
  logits = lambda variables, batch: predict(variables, (), batch)['label_BGC'][LABEL][:, 0]
  scores = lambda found, examples: judged(np.stack([*found]), examples.label[LABEL])
  several = subject.config.data.task.get('several', '')
  return labelled.judge(subject, options, logits, names(classes, several), scores)


def _check_best(subject: Subject, classes: int) -> None:
  """Classes that were forgotten show in `config.best`; of several tasks it may mean another one."""
  metric = subject.config.best.metric
  if (
    not subject.config.phases and classes == 1 and metric.rpartition('/')[2] in names(2) - names(1)
  ):
    raise UserError(
      f'config.data.task.classes is (), so that a number is predicted, and {metric} '
      "(config.best.metric) is of classes: expected classes, as in ('no','yes'), or, of a number, "
      f'--config.best.metric={metric.rpartition("/")[0]}/spearman'
    )


def judged(found_nC: np.ndarray, label_n: np.ndarray) -> dict[str, float]:
  """Returns the scores of what a head gave, float32 [n, C]; C is 1 of a number."""
  if found_nC.shape[1] == 1:
    return number_scores(found_nC[:, 0], label_n)
  if label_n.ndim == 3:  # [n, 1, C]
    return several_scores(found_nC, label_n[:, 0])
  return class_scores(found_nC, label_n)


EVALUATOR = Evaluator(Options, make)
