"""Rows of a language model with memory: columns of the corpus, each row where the last one stopped.

  step 0   | a0 a1 a2 |     column 0 of the stream a0 a1 .. a8, b0 .. b8, of three tokens a row
           | b0 b1 b2 |     column 1
  step 1   | a3 a4 a5 |     each row predicts b3 after b2: `Ranges.ahead`

kimiyoung/transformer-xl, pytorch/data_utils.py:LMOrderedIterator. The last row of a column holds
what is left of it. Every epoch reads the documents in the order of the corpus, as the original;
with `shuffle_documents` each has an order of its own. With `ends` each
document ends with that special token.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.examples.column_stream import ColumnStream
from bertjax.examples.plans.chunks import end_of


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    ends: name of the special token behind each document; '' for none.
    shuffle_documents: every epoch has an order of its own; LMOrderedIterator has one for all.
  """

  ends: str = ''
  shuffle_documents: bool = False


def build(store, spec: Spec) -> Iterator[Piece]:
  """Makes the plan, how many rows an epoch has; see `Plan.build`. Where their tokens lie follows
  from `ranges`. Raises UserError: the vocabulary lacks the special token."""
  predicted, length = max(_stream(store, spec).size - 1, 0), spec.length
  length_t = np.full(-(-predicted // length), length, np.int32)
  length_t[-1:] -= -predicted % length
  return iter([(dict(length=np.repeat(length_t, spec.rows)), {})])


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some rows of an epoch, each with the token after it."""
  stream = _stream(store, spec)
  order = stream.order(chosen.epoch if chosen.shuffle and spec.options.shuffle_documents else None)
  step_E, lane_E = np.divmod(chosen.index_E, spec.rows)
  begin_E = lane_E * stream.size + step_E * spec.length
  length_E = np.minimum(spec.length, stream.size - 1 - step_E * spec.length)
  start_r, length_r, end_s = stream.ranges(order, begin_E, length_E + 1)
  return Ranges(
    start_r=start_r,
    length_r=length_r,
    special_s=end_s,
    id_s=np.full(len(end_s), stream.ends),
    length_E=length_E,
    row=dict(start=step_E == 0),
    ahead=True,
  )


def _stream(store, spec: Spec) -> ColumnStream:
  return ColumnStream(store, spec.rows, end_of(store, spec.options.ends), spec.seed)


PLAN = Plan(Options, (), build, ranges, ordered=True, row=('start',))
