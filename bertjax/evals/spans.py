"""Questions on texts, each answered once, by SQuAD's scores: see `squad/decoding.py`, `scores.py`.

Where questions may have no answer, `threshold` says by how much that must score more than the best
answer to be said, and the thresholds that would have been best for these questions are reported.
"""

from typing import NamedTuple

from bertjax.config.field_types import Count, Natural
from bertjax.data.labelled import spans as spans_data
from bertjax.data.labelled.common import rows as rows_lib
from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.evals.held_out import labelled
from bertjax.evals.squad import decoding, scores
from bertjax.objectives import spans as objective
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables


class Options(NamedTuple):
  """Which questions, and what may be an answer.

  Attributes:
    file: of the questions; '': config.data.dev.
    examples: questions from the first one on; 0: all.
    batch_size: rows of a batch.
    best: first and last tokens of a window that are paired (n-best); of a head that scores ends
      behind a start as many as it keeps (answers.Form), at most.
    longest: tokens of an answer at most.
    threshold: odds above which a question has no answer, where that may be.
  """

  file: str
  examples: Natural
  batch_size: Count
  best: Count
  longest: Count
  threshold: float


def make(subject: Subject, options: Options) -> Evaluation:
  """The scores of a file of questions.

  Raises:
    UserError: the file is not of the task, or a batch_size that the devices do not divide.
  """
  path, key = labelled.file_of(subject, options)
  config = subject.config
  records = rows_lib.read_records(config, path, key, options.examples)
  _, task = rows_lib.task_of(config.data.task)
  vocabulary = load_vocabulary(subject.store.path / 'vocab')
  found = spans_data.contexts(records, vocabulary)
  cls_last = rows_lib.is_cls_last(config.model)
  windows = spans_data.windows(records, found, task, vocabulary, config.length, cls_last)
  rows = rows_lib.Rows(
    subject.store, spans_data.labelled(windows, {}), config.length, config.seed, options.batch_size,
    cls_last=cls_last,
  )  # fmt: skip
  limits = decoding.Limits(options.best, options.longest)
  threshold = options.threshold if task.no_answer else None

  def function(variables: Variables, batch):
    return objective.said(subject.objective.predict(variables, (), batch))

  said = labelled.outputs(subject, rows, options.batch_size, function)

  def run(variables: Variables, step: int) -> Report:
    del step
    decoded = decoding.decode(windows, found, list(said(variables)), limits)
    answered = [
      scores.Answered([a.text for a in record.values['answers']], each.answer(None), each.odds)
      for record, each in zip(records, decoded, strict=True)
    ]
    return Report(scores.judge(answered, threshold))

  return Evaluation(scores.names(task.no_answer), run)


EVALUATOR = Evaluator(Options, make)
