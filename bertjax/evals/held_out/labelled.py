"""Labelled examples to be judged, each once, and what a model gives for them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.examples import loader
from bertjax.examples.labelled.common import from_config
from bertjax.examples.labelled.common.rows import Rows
from bertjax.field_types import Count, Natural
from bertjax.metrics.progress import passing
from bertjax.types import Batch, Evaluation, Report, Subject, Variables

CUT = 'cut'  # the score that says how many examples are longer than a row


class Options(NamedTuple):
  """The labelled examples of an evaluation.

  Attributes:
    file: file of the examples; '': config.data.dev.
    examples: number of examples, from the first one on; 0: all.
    batch_size: rows of a batch.
    language: language of the examples, if the model has several; '': config.data.language.
  """

  file: str = ''
  examples: Natural = 0
  batch_size: Count = 64
  language: str = ''


def file_of(subject: Subject, options: Any) -> tuple[str, str]:
  """Returns the path of the examples, and the key that names it; `options` has the fields of
  `Options`. Raises UserError: as `check_batch`."""
  check_batch(subject, options.batch_size)
  if options.file:
    return options.file, f'{subject.key}.file'
  return subject.config.data.dev, 'config.data.dev'


def check_batch(subject: Subject, batch_size: int) -> None:
  """Refuses a batch_size that the devices do not divide."""
  if batch_size % subject.ways:
    raise UserError(
      f'config.evals: expected a batch_size that is a multiple of {subject.ways}, the devices and '
      f'hosts that share it, got {batch_size}'
    )


def judge(
  subject: Subject, options: Any, function: Callable[[Variables, Batch], Any],
  names: Iterable[str], scores: Callable[[Iterator[Any], Labelled], dict[str, float]],
) -> Evaluation:  # fmt: skip
  """Returns an evaluation of the file, with CUT beside the scores. Raises UserError if the file is
  not of the task, a batch_size that the devices do not divide, or no language where the model needs
  one.

  Args:
    subject, options: as of an evaluator's `make`; the options have the fields of `Options`.
    function: (variables, batch) -> what is judged, as of `outputs`.
    names: of the scores.
    scores: (what was found of each example, the examples) -> the scores.
  """
  path, key = file_of(subject, options)
  rows = from_config.open_rows(
    subject.config, path, key, subject.store, options.examples, options.batch_size,
    options.language, judged=True,
  )  # fmt: skip
  found = outputs(subject, rows, function)

  def run(variables: Variables, step: int) -> Report:
    made = scores(found(variables), rows.examples)
    return Report({CUT: float(rows.examples.cut)} | made)

  return Evaluation(frozenset((*names, CUT)), run)


def outputs(
  subject: Subject, rows: Rows, function: Callable[..., Any]
) -> Callable[[Variables], Iterator[Any]]:
  """Returns variables -> for each row, in their order, what a function of (variables, batch) gives
  for it, in NumPy; it makes a tree of arrays, B first, and is compiled once for each length."""
  passes = subject.config.total_steps // subject.config.eval_steps + 1
  seen, platform = passes * rows.rows, jax.default_backend()
  rows = rows.fewer(subject.objective.flops, subject.template, seen, platform)
  compiled = subject.compile(function)
  # Rows of like lengths lie together, so that batches have little padding.
  number_n = rows.by_length()

  def run(variables: Variables) -> Iterator[Any]:
    found: list[Any] = []
    batches = loader.eval_batches(rows, rows.together, chosen_n=number_n)
    for batch in passing(subject.key, batches, -(-rows.rows // rows.together)):
      output = jax.tree.map(np.asarray, compiled(variables, subject.put(batch)))
      found += (
        jax.tree.map(lambda x, place=place: x[place], output) for place in range(rows.together)
      )
    return (found[place] for place in np.argsort(number_n))

  return run
