"""Tags of the words of labelled sentences, each judged once.

accuracy and majority, the share of the most frequent tag, are over words; loss is over those that a
row has room for. In IOB2 precision, recall and f1 are over entities, which are right where type,
first and last word are (conlleval; Tjong Kim Sang and De Meulder 2003); a ratio of nothing is 0.
Words that a row of `config.length` has no room for are not read: they count as predicted O, with
plain tags as wrong; cut says how many they are.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bertjax.data_contracts import Labelled
from bertjax.evals.classification import nll
from bertjax.evals.held_out import labelled
from bertjax.evals.held_out.labelled import Options
from bertjax.examples.labelled.common import tagged as tag_lib
from bertjax.objectives.tag import TAG
from bertjax.types import Evaluation, Evaluator, Subject


class Tagged(NamedTuple):
  """A sentence and what was predicted for it."""

  # true, found: tags of its words
  true: Sequence[str]
  found: Sequence[str]
  nll_n: np.ndarray  # float -log p of the true tags of the words that were read


def entity_scores(
  true: Sequence[Sequence[str]], found: Sequence[Sequence[str]]
) -> dict[str, float]:
  """Precision, recall and F1 of the entities of some sentences, by their tags."""
  entities = lambda said: {
    (number, *each) for number, tags in enumerate(said) for each in tag_lib.entities(tags)
  }
  expected, got = entities(true), entities(found)
  right = len(expected & got)
  ratio = lambda whole: right / whole if whole else 0.0
  return dict(
    precision=ratio(len(got)), recall=ratio(len(expected)), f1=ratio((len(got) + len(expected)) / 2)
  )


def word_scores(sentences: Sequence[Tagged]) -> dict[str, float]:
  """Returns the scores of single words."""
  pairs = [pair for s in sentences for pair in zip(s.true, s.found, strict=True)]
  nll_n = np.concatenate([s.nll_n for s in sentences])
  _, count_n = np.unique([tag for tag, _ in pairs], return_counts=True)
  return dict(
    loss=float(nll_n.mean()) if len(nll_n) else 0.0,
    accuracy=sum(tag == found for tag, found in pairs) / len(pairs),
    majority=float(count_n.max() / len(pairs)),
    cut=float(len(pairs) - len(nll_n)),
  )


def names(scheme: tag_lib.Scheme) -> frozenset[str]:
  """Returns the names of the scores."""
  entities = ('precision', 'recall', 'f1') if scheme == 'iob2' else ()
  return frozenset(('loss', 'accuracy', 'majority', 'cut', *entities))


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of tagged sentences; errors as `labelled.judge`."""
  task, predict = subject.config.data.task, subject.objective.predict
  logits = lambda variables, batch: predict(variables, (), batch)['token_label_BTC'][TAG]
  scores = lambda found, examples: judged(found, examples, task.scheme, task.classes)
  return labelled.judge(subject, options, logits, names(task.scheme), scores)


def judged(
  logits: Iterable[np.ndarray], examples: Labelled, scheme: tag_lib.Scheme, classes: Sequence[str]
) -> dict[str, float]:
  """Returns the scores of what a head gave of each sentence, float32 [T, C]; T may be more than it
  has tokens. scheme and classes are of `tags.Options`."""
  tags, unread = tag_lib.tags(scheme, classes), tag_lib.unread(scheme)
  weight = examples.token_label[f'{TAG}_weight']

  def tagged(number: int, logits_TC: np.ndarray) -> Tagged:
    true_n = examples.truth[number]
    logits_nC = logits_TC[np.flatnonzero(weight[number])]
    found = [tags[i] for i in logits_nC.argmax(1)] + [unread] * (len(true_n) - len(logits_nC))
    return Tagged([tags[i] for i in true_n], found, nll(logits_nC, true_n[: len(logits_nC)]))

  sentences = [tagged(number, x_TC) for number, x_TC in enumerate(logits)]
  scores = word_scores(sentences)
  if scheme == 'iob2':
    scores |= entity_scores([s.true for s in sentences], [s.found for s in sentences])
  return scores


EVALUATOR = Evaluator(Options, make)
