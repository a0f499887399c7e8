"""ALBERT's pairs: are A and B in order? `create_pretraining_data.py` of google-research/albert.

Chunks, target lengths and truncation are BERT's (`pairs.py`). A chunk of several sentences is cut
into A and B, and a coin swaps the two: label 1. `random_b` says what becomes of a chunk
of one sentence:

  True   the original's quirk: B is random text of another document, and the label is 1, so that
         label 1 mixes swapped and unrelated pairs.
  False  mended: a chunk takes a second sentence even beyond its target, and a document's last
         sentence alone makes no example (counted in lone_sentences). Label 1 is swapped, always.
"""

import dataclasses
import functools
from collections.abc import Iterator

from bertjax.data_contracts import Piece, Spec
from bertjax.examples.plans import pairs


@dataclasses.dataclass(frozen=True)
class Options(pairs.Options):
  """Fields of `config.data.plan` besides those of pairs.

  Attributes:
    random_b: a chunk of one sentence gets a B of another document, of label 1, as the original's.
  """

  random_b: bool = True


def build(store, spec: Spec, window: int = pairs.WINDOW) -> Iterator[Piece]:
  """Makes the plan as `pairs.build` does, with the column order (0 in order, 1 not) for next; with
  random_b off it counts lone_sentences too. Raises UserError: no document of two sentences."""
  task = pairs.Task('order', swap=True, least=1 if spec.options.random_b else 2)
  return pairs.pieces(store, spec, window, task)


ranges = functools.partial(pairs.ranges, label='order')
PLAN = pairs.PLAN._replace(options=Options, build=build, ranges=ranges)
