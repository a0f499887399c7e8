"""SpanBERT as a BERT; its boundary head, which no class has, is a file of its own."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Layout
from bertjax.formats.tables import Row, dense, heads, norm
from bertjax.models.span_boundary import POSITION_WIDTH, POSITIONS

BOUNDARY = heads(
  (
    Row('boundary/position', 'boundary.position', 'R,A->RA'),
    *dense('boundary/dense1', 'boundary.dense1', 'E', 'X'),
    *norm('boundary/norm1', 'boundary.norm1', 'E'),
    *dense('boundary/dense2', 'boundary.dense2', 'O', 'E'),
    *norm('boundary/norm2', 'boundary.norm2', 'E'),
    Row('boundary/bias', 'boundary.bias', 'V->V'),
  )
)


def layout(model: Any) -> Layout:
  """Returns BERT's layout with the span boundary head added."""
  sizes = dict(R=POSITIONS, A=POSITION_WIDTH, X=2 * model.width + POSITION_WIDTH)
  return bert.FAMILY.layout(model)._replace(side=heads(BOUNDARY, **sizes))


FAMILY = bert.FAMILY._replace(
  model='span_boundary', recipe='spanbert', layout=layout, read_as='bert'
)
