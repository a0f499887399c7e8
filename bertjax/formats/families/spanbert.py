"""SpanBERT as a BERT; its boundary head, which no class has, is a file of its own."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Layout
from bertjax.formats.tables import Row, dense, heads, norm

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
  width = model.boundary_width
  sizes = dict(R=model.boundary_positions, A=width, X=2 * model.width + width)
  return bert.FAMILY.layout(model)._replace(side=heads(BOUNDARY, **sizes))


FAMILY = bert.FAMILY._replace(
  model='span_boundary', recipe='spanbert', layout=layout, read_as='bert'
)
