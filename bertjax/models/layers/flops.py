"""Terms of a model's `flops`: model FLOPs of forward and backward, over real tokens only.

A matrix weight costs 6 FLOPs (forward 2, backward 4) for each token that it meets, attention 12 * D
FLOPs per layer for each (query, visible key) pair, 18 * D where the score has a product by distance
too. Heads count on the positions they run on; lookups, norms and dropout count nothing.
"""

import numpy as np

from bertjax.types import Batch


def attended_pairs(example_BT: np.ndarray, window: int | None = None) -> int:
  """The (query, key) pairs that see each other: length squared, summed over packed examples.

  Args:
    example_BT: example ids, 0 is padding.
    window: pairs at this distance and further do not; None: all of an example do.
  """
  rows, _ = example_BT.shape
  groups = int(example_BT.max(initial=0)) + 1
  flat = (np.arange(rows)[:, None] * groups + example_BT).reshape(-1)
  lengths_RG = np.bincount(flat, minlength=rows * groups).reshape(rows, groups)[:, 1:]
  lengths_RG = lengths_RG.astype(np.int64)
  reach_RG = lengths_RG if window is None else np.minimum(lengths_RG, window)
  # On each side of itself a token reaches window - 1 others, fewer near the ends of its example.
  return int((lengths_RG * (2 * reach_RG - 1) - reach_RG * (reach_RG - 1)).sum())


def encoder_flops(batch: Batch, *, layers: int, width: int, ffn: int) -> float:
  """FLOPs of forward and backward through a stack of transformer layers, for a host batch."""
  example_BT = np.asarray(batch['example_BT'])
  real = int((example_BT > 0).sum())
  weights = layers * (4 * width * width + 2 * width * ffn)
  return 6.0 * weights * real + 12.0 * layers * width * attended_pairs(example_BT)


def head_flops(positions: float, *weights: int) -> float:
  """FLOPs of forward and backward through matrices of `weights` entries at `positions` places."""
  return 6.0 * positions * sum(weights)


def lstm_flops(positions: float, inputs: int, width: int) -> float:
  """FLOPs of forward and backward through the four gates of an LSTM's cell at so many places."""
  return head_flops(positions, 4 * width * (inputs + width))
