"""Questions on texts, each answered once, by SQuAD's scores: see `squad/decoding.py`, `scores.py`.

Where questions may have no answer, `threshold` says by how much that must score more than the best
answer to be said, and the thresholds that would have been best for these questions are reported.
"""

from typing import NamedTuple

from bertjax.evals.held_out import labelled
from bertjax.evals.squad import decoding, programs, scores
from bertjax.examples.labelled import spans as spans_data
from bertjax.examples.labelled.common import extra_ids, from_config
from bertjax.examples.labelled.common import rows as rows_lib
from bertjax.field_types import Count, Natural
from bertjax.objectives import spans as objective
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


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of questions. Raises UserError if the file is not of the task, or
  a batch_size that the devices do not divide."""
  path, key = labelled.file_of(subject, options)
  config = subject.config
  records = from_config.read_records(config, path, key, options.examples)
  _, task = from_config.task_of(config.data.task)
  vocabulary = read_vocabulary(subject.store.path / 'vocab')
  contexts = spans_data.contexts(records, vocabulary)
  cls_last = rows_lib.is_cls_last(config.model)
  windows = spans_data.windows(records, contexts, task, vocabulary, config.length, cls_last)
  rows = rows_lib.Rows(
    subject.store, spans_data.labelled(windows, {}), config.length, config.seed,
    options.batch_size, stands_last=rows_lib.stands_last(config.model),
    extra_ids=extra_ids.ids(config, options.language, subject.store.languages),
  )  # fmt: skip

  def function(variables: Variables, batch):
    return objective.said(subject.objective.predict(variables, (), batch))

  said = labelled.outputs(subject, rows, function)
  limits = decoding.Limits(options.best, options.longest)
  program = programs.named(options.program)
  threshold = options.threshold if task.no_answer else None

  def run(variables: Variables, step: int) -> Report:
    decoded = decoding.decode(windows, contexts, list(said(variables)), limits)
    answered = [
      scores.Answered([a.text for a in record.values['answers']], each.answer(None), each.odds)
      for record, each in zip(records, decoded, strict=True)
    ]
    return Report(scores.judge(answered, threshold, program))

  return Evaluation(scores.names(task.no_answer), run)


EVALUATOR = Evaluator(Options, make)
