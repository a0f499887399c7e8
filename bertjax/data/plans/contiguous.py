"""Blocks of equal length, cut anywhere: fairseq `--sample-break-mode none`.

See `bertjax.data.plans.blocks`.
"""

from collections.abc import Iterator

from bertjax.data.plans.blocks import SPECIAL, assemble, contiguous_blocks

__all__ = ['SPECIAL', 'assemble', 'build']


def build(store, recipe, length: int, seed: int) -> Iterator[tuple]:
  """Makes the plan in pieces, as `blocks.contiguous_blocks`; no draws, so no seed."""
  del recipe, seed
  return contiguous_blocks(store, length)
