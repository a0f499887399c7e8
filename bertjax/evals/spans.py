"""Questions on texts, each answered once, by SQuAD's scores: see `squad/decoding.py`, `scores.py`.

Where questions may have no answer, `threshold` says by how much that must score more than the best
answer to be said, and the thresholds that would have been best for these questions are reported.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bertjax.evals.held_out import labelled
from bertjax.evals.squad import decoding, programs, scores
from bertjax.examples.labelled import spans as spans_data
from bertjax.examples.labelled.common import extra_ids, from_config
from bertjax.examples.labelled.common import rows as rows_lib
from bertjax.examples.labelled.common.records import Record
from bertjax.field_types import Count, Natural
from bertjax.objectives import spans as objective
from bertjax.store.reader import Store
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables
from bertjax.vocab.vocabulary import read_vocabulary


class Options(NamedTuple):
  """The questions, and the limits of their answers.

  Attributes:
    file: file of the questions; '': config.data.dev.
    examples: number of questions, from the first one on; 0: all.
    batch_size: rows of a batch.
    best: first and last tokens of a window that are paired (n-best); of a head that scores ends
      behind a start as many as it keeps (answers.Form), at most.
    longest: most tokens of an answer.
    threshold: odds above which a question has no answer, if the task allows that.
    language: as of `labelled.Options`.
    program: whose words f1 counts: SQuAD's, the characters of CMRC 2018 and DRCD, or the words of
      MLQA in a language (`squad/programs.py`).
  """

  file: str = ''
  examples: Natural = 0
  batch_size: Count = 32
  best: Count = 20
  longest: Count = 30
  threshold: float = 0.0
  language: str = ''
  program: programs.Name = 'squad'


class Questions(NamedTuple):
  """The questions of an evaluation with their texts and rows."""

  records: list[Record]  # the questions with the answers that people gave
  contexts: list[spans_data.Context]  # the text of each
  windows: list[spans_data.Window]  # rows, in the order of the questions

  def judged(self, said: Sequence[Any], options: Any, no_answer: bool) -> dict[str, float]:
    """Returns the scores of what a head gave of each window, see `objectives/spans.said`; it may be
    longer than the window. `options` has the limits of `Options`."""
    limits = decoding.Limits(options.best, options.longest)
    decoded = decoding.decode(self.windows, self.contexts, said, limits)
    answered = [
      scores.Answered([a.text for a in record.values['answers']], each.answer(None), each.odds)
      for record, each in zip(self.records, decoded, strict=True)
    ]
    threshold = options.threshold if no_answer else None
    return scores.judge(answered, threshold, programs.named(options.program))


def open_questions(config: Any, path: str, key: str, limit: int, store: Store) -> Questions:
  """Returns the questions of a file; arguments and errors as `from_config.open_rows`."""
  records = from_config.read_records(config, path, key, limit)
  _, task = from_config.task_of(config.data.task)
  vocabulary = read_vocabulary(store.path / 'vocab')
  found = spans_data.contexts(records, vocabulary)
  cls_last = rows_lib.is_cls_last(config.model)
  return Questions(
    records, found, spans_data.windows(records, found, task, vocabulary, config.length, cls_last)
  )


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of questions. Raises UserError if the file is not of the task, or
  a batch_size that the devices do not divide."""
  path, key = labelled.file_of(subject, options)
  config = subject.config
  questions = open_questions(config, path, key, options.examples, subject.store)
  rows = rows_lib.Rows(
    subject.store, spans_data.labelled(questions.windows, {}), config.length, config.seed,
    options.batch_size, stands_last=rows_lib.stands_last(config.model),
    extra_ids=extra_ids.ids(config, options.language),
  )  # fmt: skip

  def function(variables: Variables, batch):
    return objective.said(subject.objective.predict(variables, (), batch))

  said = labelled.outputs(subject, rows, options.batch_size, function)
  no_answer = config.data.task.no_answer

  def run(variables: Variables, step: int) -> Report:
    return Report(questions.judged(list(said(variables)), options, no_answer))

  return Evaluation(scores.names(no_answer), run)


EVALUATOR = Evaluator(Options, make)
