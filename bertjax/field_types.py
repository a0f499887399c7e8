"""Types of config fields: a range of numbers each. A choice among words is a `Literal`, what may be
left out is `X | None`."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple


class Bounds(NamedTuple):
  """The range of numbers that a field of the config accepts; never NaN."""

  # low, high: the smallest and the largest number
  low: float = -math.inf
  high: float = math.inf
  # open_low, open_high: True if the bound itself is not accepted
  open_low: bool = False
  open_high: bool = False

  def hold(self, value: float) -> bool:
    """Returns True if the value lies within the bounds."""
    above = value > self.low if self.open_low else value >= self.low
    return above and (value < self.high if self.open_high else value <= self.high)

  def __str__(self) -> str:
    parts = [] if self.low == -math.inf else [f'{">" if self.open_low else ">="} {self.low}']
    parts += [] if self.high == math.inf else [f'{"<" if self.open_high else "<="} {self.high}']
    return ' and '.join(parts)


MESH_AXES = ('data', 'fsdp', 'tensor', 'sequence')  # of devices, see `config.mesh`
NONE: Mapping[str, Any] = MappingProxyType({})  # the default of a section
Count = Annotated[int, Bounds(1)]
Natural = Annotated[int, Bounds(0)]
Seed = Annotated[int, Bounds(0, 2**32 - 1)]  # jax.random.key takes no more bits
IdOfPad = Annotated[int, Bounds(-1)]  # -1: as the vocabulary says
Positive = Annotated[float, Bounds(0, open_low=True)]
NonNegative = Annotated[float, Bounds(0)]
Share = Annotated[float, Bounds(0, 1)]
PositiveShare = Annotated[float, Bounds(0, 1, open_low=True)]
Fraction = Annotated[float, Bounds(0, 1, open_high=True)]  # rates of dropout, betas
OpenShare = Annotated[float, Bounds(0, 1, open_low=True, open_high=True)]
