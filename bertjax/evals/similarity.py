"""Zero-shot similarity of texts: STS-B (Cer et al. 2017) without learning from it.

The similarity of two texts is the cosine between their vectors (`held_out/vectors.py`). Its
correlation with what people said is a score that models of all objectives have in common: BERT's
encoder and ELECTRA's discriminator.
"""

from typing import NamedTuple

import numpy as np

from bertjax.config.field_types import Count, Natural
from bertjax.data.labelled import classify
from bertjax.data.labelled.common import from_config
from bertjax.evals.classification import number_scores
from bertjax.evals.held_out import labelled, vectors
from bertjax.objectives.classify import LABEL
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables


class Options(NamedTuple):
  """Which pairs of texts.

  Attributes:
    file: .tsv, .csv or .jsonl of pairs; '': none.
    text: columns of the two texts.
    score: column of the number that people gave a pair.
    header: names of the columns of a table whose first line is none.
    examples: from the first one on; 0: all.
    batch_size: texts of a batch.
    language: of the texts, by name or number, where the model has a table of languages, or its
      vocabulary cuts words by their rules.
  """

  file: str
  text: tuple[str, str]
  score: str
  header: tuple[str, ...]
  examples: Natural
  batch_size: Count
  language: str = ''


def make(subject: Subject, options: Options) -> Evaluation:
  """Pearson's and Spearman's correlation over the pairs, and `cut`, the texts that were too long.

  Raises:
    UserError: no such file or column, a score that is no number, no pairs, a vocabulary without
      special tokens, or a batch_size that the devices do not divide.
  """
  labelled.check_batch(subject, options.batch_size)
  task = lambda *columns: vectors.task(options, columns, options.score, ())
  found = vectors.records(options.file, 'config.evals: file', task(*options.text), options.examples)
  vocabulary = from_config.vocabulary_of(subject.config, subject.store, options.language)
  length = subject.config.length
  sides = [classify.encode(found, task(column), vocabulary, length) for column in options.text]
  one, other = (
    vectors.means(subject, side, options.batch_size, options.language) for side in sides
  )
  cut = float(sum(side.cut for side in sides))

  def run(variables: Variables, step: int) -> Report:
    del step
    cosine_n = cosines(one(variables), other(variables))
    scores = number_scores(cosine_n, sides[0].label[LABEL])
    return Report(dict(pearson=scores['pearson'], spearman=scores['spearman'], cut=cut))

  return Evaluation(frozenset(('pearson', 'spearman', 'cut')), run)


def cosines(one_nD: np.ndarray, other_nD: np.ndarray) -> np.ndarray:
  """Row by row, float32 [n]; 0 where a vector is 0."""
  norms_n = np.linalg.norm(one_nD, axis=1) * np.linalg.norm(other_nD, axis=1)
  return np.einsum('nd,nd->n', one_nD, other_nD) / np.maximum(norms_n, 1e-12)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.file)
