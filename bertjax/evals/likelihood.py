"""Questions with some answers to choose from, judged by what a causal model finds likely.

No label is learned: each answer is scored as a continuation of its context (HellaSwag's form,
Zellers et al. 2019; Brown et al. 2020, section 2.4). `accuracy` takes the answer with the greatest
log p, `accuracy_norm` that with the greatest log p per token, `majority` the place where the right
answer stands most often. What is longer than a row loses the beginning of its context: `cut` counts
the answers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.evals.held_out.labelled import CUT, check_batch
from bertjax.examples.labelled import choice
from bertjax.examples.labelled.common.questions import Question
from bertjax.field_types import Count, Natural
from bertjax.models.layers.contracts import StreamModel
from bertjax.objectives import lm, model_of
from bertjax.text import sentences
from bertjax.text.sentences import Row, causal_frame
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary

NAMES = frozenset(('accuracy', 'accuracy_norm', 'majority', CUT))
UNIT = 32  # columns and slots of a batch are multiples, so that few shapes are compiled


class Options(NamedTuple):
  """The questions, and the columns that they stand in: by default HellaSwag's.

  Attributes:
    file: .jsonl, .csv or .tsv; '': none.
    context, question, choices, label: see `labelled/choice.py`; the label is an index.
    examples: number of questions, from the first one on; 0: all.
    batch_size: answers of a batch.
    length: columns of a row at most; 0: config.length.
  """

  file: str = ''
  context: str = 'ctx'
  question: str = ''
  choices: tuple[str, ...] = ('endings',)
  label: str = 'label'
  examples: Natural = 0
  batch_size: Count = 32
  length: Natural = 0


def rows_of(
  asked: Sequence[Question], vocabulary: Vocabulary, before: Sequence[int], length: int
) -> tuple[list[Row], int]:
  """Returns a row for each answer of each question, whose targets are the answer's tokens, and how
  many lost tokens of their context. Raises UserError: an answer that takes a whole row.

  Args:
    asked: the questions.
    vocabulary: of the texts.
    before: ids that stand before a context.
    length: columns of a row at most.
  """
  texts = [' '.join(filter(None, (each.context, each.question))) for each in asked]
  contexts = vocabulary.encode_unended(texts)
  rows, cut = [], 0
  for question, context_n in zip(asked, contexts, strict=True):
    for own_n in vocabulary.encode_unended([f' {text}' for text in question.choices]):
      room = length - len(before) - len(own_n)
      if not len(own_n) or room < 1:
        raise UserError(
          f'{question.place}: expected answers of 1 to {length - len(before) - 1} tokens, so that '
          f'a row of {length} has room for some context, got {len(own_n)}'
        )
      cut += len(context_n) > room
      ids = [*before, *context_n[-room:], *own_n]
      columns = range(len(ids) - len(own_n) - 1, len(ids) - 1)
      if columns[0] < 0:
        raise UserError(f'{question.place}: expected a context, got none')
      rows.append(Row(np.array(ids, np.int32), columns, own_n.tolist()))
  return rows, cut


def judged(nll_n: np.ndarray, size_n: np.ndarray, right_n: np.ndarray) -> dict[str, float]:
  """Returns the scores of -log p of the answers, as many of each question, and their tokens."""
  by = lambda x_n: np.mean(x_n.reshape(len(right_n), -1).argmin(1) == right_n)
  majority = np.bincount(right_n).max() / len(right_n)
  return dict(
    accuracy=float(by(nll_n)), accuracy_norm=float(by(nll_n / size_n)), majority=float(majority)
  )


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of questions. Raises UserError: as `choice.read` and `rows_of`;
  questions with other numbers of answers than the first, or a model that is not causal or
  reads backward."""
  check_batch(subject, options.batch_size)
  model = model_of(subject.config.model, subject.config.objective.name, StreamModel).alone()
  model.require_forward()
  length = options.length or subject.config.length
  model.require_room(length, f'{subject.key}.length')
  task = choice.Options(
    'columns', options.context, options.question, options.choices, options.label, 'index'
  )
  asked = list(choice.read(options.file, task))[: options.examples or None]
  if not asked or any(len(q.choices) != len(asked[0].choices) for q in asked):
    raise UserError(f'{subject.key}.file={options.file}: expected questions with as many answers')
  right_n = np.array([choice.right(question, 'index') for question in asked])
  vocabulary = read_vocabulary(subject.store.path / 'vocab')
  rows, cut = rows_of(asked, vocabulary, causal_frame(subject.store.special).before, length)

  def row_nll(variables: Variables, batch: Batch) -> jax.Array:
    """Returns -log p of the targets of each row."""
    scores: Any = model.apply(variables, batch, method='word_scores')
    nll_BP, _ = lm.score(scores, batch['target_BP'])
    return jnp.sum(nll_BP * batch['weight_BP'], 1)

  compiled = subject.compile(row_nll)

  def run(variables: Variables, number: int) -> Report:
    nll_n = np.zeros(len(rows))
    order_n = np.argsort([len(row.id_n) for row in rows], kind='stable')
    for start in range(0, len(rows), options.batch_size):
      index_n = order_n[start : start + options.batch_size]
      batch = _batch([rows[i] for i in index_n], options.batch_size)
      nll_n[index_n] = np.asarray(compiled(variables, subject.put(batch)))[: len(index_n)]
    size_n = np.array([len(row.columns) for row in rows])
    return Report(judged(nll_n, size_n, right_n) | {CUT: float(cut)})

  return Evaluation(NAMES, run)


def _batch(rows: Sequence[Row], count: int) -> Batch:
  up = lambda sizes: -(-max(sizes) // UNIT) * UNIT
  columns, slots = up(len(row.id_n) for row in rows), up(len(row.columns) for row in rows)
  return sentences.as_batch(rows, count, columns, slots, sentences.Frame())


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.file, at_end=True)
