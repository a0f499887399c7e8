"""The held-out text scored with memories of several lengths, at the end of a run."""

from typing import NamedTuple

from bertjax.evals import loss
from bertjax.evals.held_out import rows as rows_lib
from bertjax.field_types import Natural
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables


class Options(NamedTuple):
  """The lengths of memory to compare.

  Attributes:
    memories: lengths of memory, in tokens, with which the rows of `config.evals.held_out` are
      scored; 0: no memory.
  """

  memories: tuple[Natural, ...] = ()


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of the held-out rows with each memory, named memory_<tokens>/<score>."""
  subject, base = rows_lib.main_set(subject)
  each = {
    memory: loss.make(
      subject, base._replace(model=dict(base.model, mem_len=memory, same_length=False))
    )
    for memory in options.memories
  }

  def run(variables: Variables, step: int) -> Report:
    return Report(
      {
        f'memory_{memory}/{name}': value
        for memory, evaluation in each.items()
        for name, value in evaluation.run(variables, step).scores.items()
      }
    )

  names = (f'memory_{memory}/{name}' for memory, e in each.items() for name in e.names)
  return Evaluation(frozenset(names), run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.memories, at_end=True)
