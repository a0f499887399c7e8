"""Zero-shot similarity of texts: STS-B (Cer et al. 2017) without learning from it.

The similarity of two texts is the cosine between the means of their last states, over all tokens,
[CLS] and [SEP] among them (Reimers and Gurevych 2019). Its correlation with what people said is a
score that models of all objectives have in common: BERT's encoder and ELECTRA's discriminator.
Texts are in language 0 and role 0, where a model knows any.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bertjax.data.labelled import classify
from bertjax.data.labelled.common.rows import Rows
from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.errors import UserError
from bertjax.evals.classification import number_scores
from bertjax.evals.held_out import labelled
from bertjax.field_types import Count, Natural
from bertjax.objectives.classify import LABEL
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables


class Options(NamedTuple):
  """Which pairs of texts.

  Attributes:
    file: .tsv, .csv or .jsonl of pairs; '': none.
    text: columns of the two texts.
    score: column of the number that people gave a pair.
    header: names of the columns of a table whose first line is none.
    examples: from the first one on; 0: all.
    batch_size: texts of a batch.
  """

  file: str
  text: tuple[str, str]
  score: str
  header: tuple[str, ...]
  examples: Natural
  batch_size: Count


def unit_means(last_BTD: Any, example_BT: Any) -> Any:
  """The means over the tokens of each row, of length 1; float32 [B, D]."""
  weight_BT1 = (example_BT > 0).astype(jnp.float32)[..., None]
  mean_BD = (last_BTD.astype(jnp.float32) * weight_BT1).sum(1) / jnp.maximum(weight_BT1.sum(1), 1)
  return mean_BD / jnp.maximum(jnp.linalg.norm(mean_BD, axis=1, keepdims=True), 1e-12)


def make(subject: Subject, options: Options) -> Evaluation:
  """Pearson's and Spearman's correlation over the pairs, and `cut`, the texts that were too long.

  Raises:
    UserError: no such file or column, a score that is no number, no pairs, a vocabulary without
      special tokens, or a batch_size that the devices do not divide.
  """
  path, key = labelled.file_of(subject, options)
  vocabulary = load_vocabulary(subject.store.path / 'vocab')
  task = lambda *columns: classify.Options(
    text=columns, label=options.score, classes=(), header=options.header, separators=1,
    unlabelled=False,
  )  # fmt: skip
  records = classify.read(path, task(*options.text))
  found = list(itertools.islice(records, options.examples or None))
  if not found:
    raise UserError(f'{key}={path} has no pairs')
  length = subject.config.length
  sides = [classify.encode(found, task(column), vocabulary, length) for column in options.text]
  rows = [Rows(subject.store, side, length, 0, options.batch_size) for side in sides]

  def function(variables: Variables, batch: Batch):
    out = subject.objective.predict(variables, (), _whole(batch, subject.template))
    return unit_means(out['last_BTD'], batch['example_BT'])

  vectors = [labelled.outputs(subject, each, options.batch_size, function) for each in rows]
  cut = float(sum(side.cut for side in sides))

  def run(variables: Variables, step: int) -> Report:
    del step
    pairs: Iterator[Any] = zip(*(each(variables) for each in vectors), strict=True)
    cosine_n = np.array([one_D @ other_D for one_D, other_D in pairs])
    scores = number_scores(cosine_n, sides[0].label[LABEL])
    return Report(dict(pearson=scores['pearson'], spearman=scores['spearman'], cut=cut))

  return Evaluation(frozenset(('pearson', 'spearman', 'cut')), run)


def _whole(batch: Batch, template: Batch) -> Batch:
  """The batch with zeros for all else that the objective knows in training."""
  rows, length = batch['token_BT'].shape
  shape = lambda k, x: (rows, length) if k.endswith('_BT') else (rows, *x.shape[1:])
  zeros = {k: jnp.zeros(shape(k, x), x.dtype) for k, x in template.items() if k not in batch}
  return {**zeros, **batch}


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.file)
