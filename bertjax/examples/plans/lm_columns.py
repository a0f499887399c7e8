"""Rows of a language model with memory: columns of the corpus, each row where the last one stopped.

  step 0   | a0 a1 a2 |     column 0 of the stream a0 a1 .. a8, b0 .. b8, of three tokens a row
           | b0 b1 b2 |     column 1
  step 1   | a3 a4 a5 |     each row predicts b3 after b2: `Ranges.ahead`

kimiyoung/transformer-xl, pytorch/data_utils.py:LMOrderedIterator. The last row of a column holds
what is left of it. Every epoch reads the documents in the order of the corpus, as the original;
with `shuffle_documents` each has an order of its own. With `ends` each
document ends with that special token. With `drawn` the steps of an epoch have lengths of their own.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples.column_stream import ColumnStream
from bertjax.examples.plans.chunks import end_of
from bertjax.field_types import Natural

UNIT = 16  # rows are as long as a drawn length asks for, in multiples of it


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    ends: name of the special token behind each document; '' for none.
    shuffle_documents: every epoch has an order of its own; LMOrderedIterator has one for all.
    drawn: columns of a step, but for one in twenty half as many, and a normal draw around them
      (fastai 0.7, text.py:LanguageModelLoader); at most config.length. 0: all have config.length.
  """

  ends: str = ''
  shuffle_documents: bool = False
  drawn: Natural = 0


def build(store, spec: Spec) -> Iterator[Piece]:
  """Makes the plan, how many rows an epoch has; see `Plan.build`. Where their tokens lie follows
  from `ranges`. Raises UserError: the vocabulary lacks the special token, or steps are longer than
  a row."""
  if spec.options.drawn > spec.length:  # the end of each column would never be read
    raise UserError(
      f'config.data.plan.drawn={spec.options.drawn} is the usual length of a step, and rows have '
      f'config.length={spec.length} columns: raise config.length, or lower config.data.plan.drawn'
    )
  begin_T = _begins(_stream(store, spec).size, spec, 0)
  return iter([(dict(length=np.repeat(np.diff(begin_T).astype(np.int32), spec.rows)), {})])


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows of an epoch, each with the token after it."""
  stream = _stream(store, spec)
  order = stream.order(chosen.epoch if chosen.shuffle and spec.options.shuffle_documents else None)
  step_E, lane_E = np.divmod(chosen.index_E, spec.rows)
  begin_T = _begins(stream.size, spec, chosen.epoch)
  length_E = begin_T[step_E + 1] - begin_T[step_E]
  start_r, length_r, end_s = stream.ranges(
    order, lane_E * stream.size + begin_T[step_E], length_E + 1
  )
  return Ranges(
    start_r=start_r,
    length_r=length_r,
    special_s=end_s,
    id_s=np.full(len(end_s), stream.ends),
    length_E=length_E,
    row=dict(start=step_E == 0),
    ahead=True,
  )


@functools.lru_cache(maxsize=4)  # training, and evaluation in between
def _begins(size: int, spec: Spec, epoch: int) -> np.ndarray:
  """Returns where each step of an epoch begins in a column of `size` tokens, and the last ends,
  int64; what is drawn leaves the end of a column unread, as in the original."""
  predicted, mean = max(size - 1, 0), spec.options.drawn
  if not mean:
    return np.minimum(np.arange(-(-predicted // spec.length) + 1) * spec.length, predicted)
  steps = size // mean - 1
  key = counter_rng.fold(counter_rng.root(spec.seed, 'lengths'), epoch)
  half_T, radius_T, angle_T = (
    counter_rng.uniform(counter_rng.fold(counter_rng.fold(key, site), np.arange(steps)))
    for site in range(3)
  )
  normal_T = np.sqrt(-2 * np.log1p(-radius_T)) * np.cos(2 * np.pi * angle_T)
  length_T = np.maximum(np.where(half_T < 0.05, mean / 2, mean) + 5 * normal_T, 5).astype(np.int64)
  length_T[:1] = mean + 25  # as there, whatever the mean
  end_T = np.cumsum(np.minimum(length_T, spec.length))
  # However long they are drawn, each step has a token.
  end_T = np.minimum(end_T, predicted - np.arange(steps)[::-1])
  return np.concatenate([[0], end_T])


def _stream(store, spec: Spec) -> ColumnStream:
  return ColumnStream(store, spec.rows, end_of(store, spec.options.ends), spec.seed)


PLAN = Plan(
  Options, (), build, ranges, ordered=True, row=('start',),
  unit=lambda options: UNIT if options.drawn else 0,
)  # fmt: skip
