"""Accuracy of a linear classifier on a model that is being pretrained: Alain and Bengio 2016.

The features are frozen: the means of the last states over all tokens of a row, [CLS] and [SEP]
among them (Reimers and Gurevych 2019), one for the two texts of a pair; each row is read by itself,
without memory. Texts are in the language that the evaluation says, and in role 0, where a model
knows any. A logistic regression is fitted to those of one file and judged on another. Models of
most objectives have this score in common; nothing of it reaches the model.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bertjax import models
from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.evals.held_out import labelled
from bertjax.examples.labelled import classify
from bertjax.examples.labelled.common import extra_ids, from_config
from bertjax.examples.labelled.common.rows import Rows, is_cls_last, with_cls_last
from bertjax.field_types import Count, Natural
from bertjax.objectives.classify import LABEL
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables


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
  task = classify.Options(options.text, options.label, options.classes, options.header)
  if not (options.dev and options.classes):
    raise UserError(
      'config.evals: a linear probe is judged on the classes of a file: expected dev and classes, '
      f'got {options.dev!r} and {options.classes!r}'
    )
  classify.check(task, 'config.evals: ')
  vocabulary = from_config.vocabulary_of(subject.config, subject.store, options.language)

  def rows(key: str, path: str, examples: int):
    found = list(itertools.islice(classify.read(path, task), examples or None))
    if not found:
      raise UserError(f'config.evals: {key}={path} has no examples')
    made = classify.encode(found, task, vocabulary, subject.config.length)
    return with_cls_last(made) if is_cls_last(subject.config.model) else made

  train, dev = rows('train', options.train, options.examples), rows('dev', options.dev, 0)
  if len(np.unique(train.label[LABEL])) < 2:
    raise UserError(
      f'config.evals: expected two classes or more in the {len(train.id_n)} examples of '
      f'{options.train}, got one: take more of them (examples), or shuffle the file'
    )
  train_vectors, dev_vectors = (
    means(subject, side, options.batch_size, options.language) for side in (train, dev)
  )
  label_n = dev.label[LABEL]
  fixed = dict(majority=float(np.bincount(label_n).max() / len(label_n)), cut=float(dev.cut))

  def run(variables: Variables, step: int) -> Report:
    found_n = fitted(train_vectors(variables), train.label[LABEL], dev_vectors(variables))
    return Report(dict(fixed, accuracy=float(np.mean(found_n == label_n))))

  return Evaluation(frozenset(('accuracy', 'majority', 'cut')), run)


def means(
  subject: Subject, rows: Labelled, batch_size: int, language: str
) -> Callable[[Variables], np.ndarray]:
  """Variables -> float32 [rows, D], computed in batches on the devices of the run. Raises
  UserError: a model with a table of languages, and none is said."""

  model = models.build(subject.config.model).alone()

  def function(variables: Variables, batch: Batch):
    whole = {**_slots(len(batch['token_BT']), subject.template), **batch}
    out: Any = model.apply(variables, whole, False, method='read')
    return masked_mean(out['last_BTD'], batch['example_BT'])

  ids = extra_ids.ids(subject.config, language, subject.store.languages)
  served = Rows(subject.store, rows, subject.config.length, 0, batch_size, extra_ids=ids)
  outputs = labelled.outputs(subject, served, batch_size, function)
  return lambda variables: np.stack(list(outputs(variables)))


def masked_mean(last_BTD: Any, example_BT: Any) -> Any:
  """Returns the means over the tokens of each row, 0 where there is none; float32 [B, D]."""
  weight_BT1 = (example_BT > 0).astype(jnp.float32)[..., None]
  return (last_BTD.astype(jnp.float32) * weight_BT1).sum(1) / jnp.maximum(weight_BT1.sum(1), 1)


def _slots(rows: int, template: Batch) -> Batch:
  """Returns zeros for the slots of a batch: a model with a head for words reads these there."""
  zeros = lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype)
  return {name: zeros(x) for name, x in template.items() if name.endswith('_BP')}


def fitted(train_nD: np.ndarray, label_n: np.ndarray, dev_mD: np.ndarray) -> np.ndarray:
  """Returns the classes, int [m], of a logistic regression with the L2 penalty of scikit-learn (C =
  1). Columns are brought to mean 0 and variance 1 over `train_nD`: features of an early step are
  all but equal, and beside such weights as they need a penalty would leave none."""
  from sklearn import linear_model, pipeline, preprocessing

  classifier = linear_model.LogisticRegression(max_iter=1000)
  probe = pipeline.make_pipeline(preprocessing.StandardScaler(), classifier)
  return probe.fit(train_nD, label_n).predict(dev_mD)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.train)
