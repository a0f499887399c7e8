"""Terms of a model's `flops`: model FLOPs of forward and backward, over real tokens only.

A matrix weight costs 6 FLOPs (forward 2, backward 4) for each token that it meets, attention 12 * N
* H FLOPs per layer for each (query, visible key) pair, 18 where the score has a product by distance
too. Heads count on the positions they run on; lookups, norms and dropout count nothing.
"""

from typing import Any

import numpy as np


def attended_pairs(example_BT: Any, window: int | None = None, causal: bool = False) -> int:
  """Returns the number of (query, key) pairs of one text that see each other. Pairs at the distance
  `window` and further do not; causal, a query sees no later key."""
  lengths_RG = _lengths(example_BT)
  reach_RG = lengths_RG if window is None else np.minimum(lengths_RG, window)
  # On each side of itself a token reaches window - 1 others, fewer near the ends of its example.
  pairs = int((lengths_RG * (2 * reach_RG - 1) - reach_RG * (reach_RG - 1)).sum())
  return (pairs + int(lengths_RG.sum())) // 2 if causal else pairs


def _lengths(example_BT: Any, groups: int = 0) -> np.ndarray:
  """Returns the tokens of each example, int64 [rows, examples]."""
  example_BT = np.asarray(example_BT)
  rows, groups = len(example_BT), groups or int(example_BT.max(initial=0)) + 1
  flat = (np.arange(rows)[:, None] * groups + example_BT).reshape(-1)
  found = np.bincount(flat, minlength=rows * groups).reshape(rows, groups)
  return found[:, 1:].astype(np.int64)


def block_flops(
  example_BT: Any, width: int, ffn: int, *, inner: int = 0, gated: bool = False,
  window: int | None = None, causal: bool = False, other_BS: Any = None,
) -> float:  # fmt: skip
  """Returns the FLOPs of forward and backward through one `Block`: `inner` is N * H, 0: D; window
  and causal are as of `attended_pairs`; other_BS are example ids of the text that cross-attention
  sees, None: there is no such attention."""
  real, inner = int(np.sum(np.asarray(example_BT) > 0)), inner or width
  weights = 4 * width * inner + (3 if gated else 2) * width * ffn
  pairs, count = attended_pairs(example_BT, window, causal), head_flops(real, weights)
  if other_BS is not None:
    groups = 1 + max(int(np.max(x, initial=0)) for x in (example_BT, other_BS))
    pairs += int((_lengths(example_BT, groups) * _lengths(other_BS, groups)).sum())
    read = int(np.sum(np.asarray(other_BS) > 0))
    count += head_flops(real + read, 2 * width * inner)
  return count + 12.0 * inner * pairs


def real(batch: Any) -> float:
  """Returns the number of tokens of a batch, padding left out."""
  return float(np.sum(np.asarray(batch['example_BT']) > 0))


def examples(batch: Any) -> float:
  """Returns the number of packed examples of a batch."""
  return float(np.sum(batch['example_weight_BG']))


def targets(batch: Any) -> float:
  """Returns the number of predicted tokens of a batch, whatever they weigh."""
  return float(np.count_nonzero(batch['weight_BP']))


def head_flops(positions: float, *weights: int) -> float:
  """Returns the FLOPs of forward and backward through matrices of so many entries at so many
  places."""
  return 6.0 * positions * sum(weights)
