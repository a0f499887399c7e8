"""Accuracy of a linear classifier on a model that is being pretrained: Alain and Bengio 2016.

The features are frozen: the means of the last states over all tokens of a row, [CLS] and [SEP]
among them (Reimers and Gurevych 2019), one for the two texts of a pair; each row is read by itself,
without memory, by the encoder where a decoder writes another text. Texts are in the language that
the evaluation says, and in role 0, where a model knows any. A logistic regression is fitted to
those of one file and judged on another. Models of most objectives have this score in common;
nothing of it reaches the model.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bertjax import models
from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.evals.held_out import labelled
from bertjax.examples.labelled import classify
from bertjax.examples.labelled.common import from_config
from bertjax.examples.labelled.common.rows import Rows
from bertjax.field_types import Count, Natural
from bertjax.models.layers.contracts import PairModel
from bertjax.objectives.classify import LABEL
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables
from bertjax.vocab.vocabulary import Vocabulary


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
  model: Any = models.build(subject.config.model).alone()
  kind = classify.TASK
  if isinstance(model, PairModel) and not model.framed:
    kind = kind._replace(encode=_without_cls)

  def rows(key: str, path: str, examples: int) -> Rows:
    found = [*from_config.examples_of(kind, task, path, f'{subject.key}.{key}', examples)]
    of_run = subject.config, subject.store, options.batch_size, options.language
    return from_config.rows_of(found, kind, task, *of_run)

  train, dev = rows('train', options.train, options.examples), rows('dev', options.dev, 0)
  train_n, dev_n = (each.examples.label[LABEL] for each in (train, dev))
  if len(np.unique(train_n)) < 2:
    raise UserError(
      f'config.evals: expected two classes or more in the {train.rows} examples of '
      f'{options.train}, got one: take more of them (examples), or shuffle the file'
    )
  train_vectors, dev_vectors = (means(subject, model, side) for side in (train, dev))
  fixed = dict(majority=float(np.bincount(dev_n).max() / len(dev_n)), cut=float(dev.examples.cut))

  def run(variables: Variables, step: int) -> Report:
    found_n = fitted(train_vectors(variables), train_n, dev_vectors(variables))
    return Report(dict(fixed, accuracy=float(np.mean(found_n == dev_n))))

  return Evaluation(frozenset(('accuracy', 'majority', 'cut')), run)


def _without_cls(
  found: Sequence[Any], options: Any, vocabulary: Vocabulary, length: int
) -> Labelled:
  """Encodes texts as T5 reads them, text [SEP]: it has no [CLS], so [SEP] is put in its place and
  dropped."""
  special = {**vocabulary.special, 'cls': vocabulary.special['sep']}
  whole = dataclasses.replace(vocabulary, special=special)
  made = classify.encode(found, options, whole, length + 1)
  behind = lambda rows: [row_T[1:] for row_T in rows]
  return made._replace(id_n=behind(made.id_n), type_n=behind(made.type_n))


def means(subject: Subject, model: Any, rows: Rows) -> Callable[[Variables], np.ndarray]:
  """Variables -> float32 [rows, D], computed in batches on the devices of the run."""

  def function(variables: Variables, batch: Batch):
    whole = {**_slots(len(batch['token_BT']), subject.template), **batch}
    out: Any = model.apply(variables, whole, False, method='read')
    return masked_mean(out['last_BTD'], batch['example_BT'])

  outputs = labelled.outputs(subject, rows, function)
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
