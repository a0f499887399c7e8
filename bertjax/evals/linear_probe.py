"""Accuracy of a linear classifier on a model that is being pretrained: Alain and Bengio 2016.

The features are frozen: the vectors of the texts (`held_out/vectors.py`), one for the two texts of
a pair. A logistic regression is fitted to those of one file and judged on another. Models of all
objectives have this score in common; nothing of it reaches the model.
"""

from typing import NamedTuple

import numpy as np

from bertjax.errors import UserError
from bertjax.evals.held_out import labelled, vectors
from bertjax.examples.labelled import classify
from bertjax.examples.labelled.common import from_config
from bertjax.field_types import Count, Natural
from bertjax.objectives.classify import LABEL
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables


class Options(NamedTuple):
  """The texts of the probe.

  Attributes:
    train: .tsv, .csv or .jsonl that the classifier is fitted to; '': no probe.
    dev: the file that it is judged on.
    text: column of the text, or of the two texts of a pair.
    label: column of the class.
    classes: the classes as that column spells them.
    header: names of the columns of a table whose first line does not name them.
    examples: number of examples of `train`, from the first one on; 0: all.
    batch_size: rows of a batch.
    language: of the texts, by name or number, where the model has a table of languages, or its
      vocabulary cuts words by their rules.
  """

  train: str = ''
  dev: str = ''
  text: tuple[str, ...] = ('sentence',)
  label: str = 'label'
  classes: tuple[str, ...] = ('0', '1')
  header: tuple[str, ...] = ()
  examples: Natural = 2000
  batch_size: Count = 64
  language: str = ''


def make(subject: Subject, options: Options) -> Evaluation:
  """Accuracy on `dev`, majority, the share of its most frequent class, and `cut`, its long texts.
  Raises UserError: no such file or column, no examples, an unknown class, a `train` of one class
  alone, a vocabulary without special tokens, or a batch_size that the devices do not divide."""
  labelled.check_batch(subject, options.batch_size)
  task = vectors.task(options, options.text, options.label, options.classes)
  if not (options.dev and options.classes):
    raise UserError(
      'config.evals: a linear probe is judged on the classes of a file: expected dev and classes, '
      f'got {options.dev!r} and {options.classes!r}'
    )
  classify.check(task, 'config.evals: ')
  vocabulary = from_config.vocabulary_of(subject.config, subject.store, options.language)

  def rows(key: str, path: str, examples: int):
    found = vectors.records(path, f'config.evals: {key}', task, examples)
    return classify.encode(found, task, vocabulary, subject.config.length)

  train, dev = rows('train', options.train, options.examples), rows('dev', options.dev, 0)
  if len(np.unique(train.label[LABEL])) < 2:
    raise UserError(
      f'config.evals: expected two classes or more in the {len(train.id_n)} examples of '
      f'{options.train}, got one: take more of them (examples), or shuffle the file'
    )
  train_vectors, dev_vectors = (
    vectors.means(subject, side, options.batch_size, options.language) for side in (train, dev)
  )
  label_n = dev.label[LABEL]
  fixed = dict(majority=float(np.bincount(label_n).max() / len(label_n)), cut=float(dev.cut))

  def run(variables: Variables, step: int) -> Report:
    del step
    found_n = fitted(train_vectors(variables), train.label[LABEL], dev_vectors(variables))
    return Report(dict(fixed, accuracy=float(np.mean(found_n == label_n))))

  return Evaluation(frozenset(('accuracy', 'majority', 'cut')), run)


def fitted(train_nD: np.ndarray, label_n: np.ndarray, dev_mD: np.ndarray) -> np.ndarray:
  """Returns the classes, int [m], of a logistic regression with the L2 penalty of scikit-learn (C =
  1). Columns are brought to mean 0 and variance 1 over `train_nD`: features of an early step are
  all but equal, and beside such weights as they need a penalty would leave none."""
  from sklearn import linear_model, pipeline, preprocessing

  classifier = linear_model.LogisticRegression(max_iter=1000)
  probe = pipeline.make_pipeline(preprocessing.StandardScaler(), classifier)
  return probe.fit(train_nD, label_n).predict(dev_mD)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.train)
