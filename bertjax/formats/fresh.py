"""Initial values of heads that a checkpoint comes without."""

import zlib
from collections.abc import Callable

import numpy as np

from bertjax.formats.tables import Row


def heads_of(std: float) -> Callable[[Row, tuple[int, ...]], np.ndarray]:
  """Returns a function that makes absent heads: kernels and tables normal with this standard
  deviation, biases 0, scales 1; the same each time."""

  def make(row: Row, shape: tuple[int, ...]) -> np.ndarray:
    leaf = row.ours.rpartition('/')[2]
    if leaf in ('bias', 'scale'):
      return np.full(shape, float(leaf == 'scale'), np.float32)
    rng = np.random.default_rng(zlib.crc32(row.ours.encode()))
    return rng.normal(0, std, shape).astype(np.float32)

  return make
