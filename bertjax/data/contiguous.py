"""Blocks of equal length, cut anywhere: fairseq `--sample-break-mode none`.

See `bertjax.data.sentences`.
"""

from collections.abc import Iterator

from bertjax.data.sentences import SPECIAL, assemble, contiguous_blocks

__all__ = ['SPECIAL', 'assemble', 'build']


def build(store, recipe, length: int, seed: int) -> Iterator[tuple]:
  """Makes the plan in pieces: `bertjax.data.sentences.contiguous_blocks`; no draws, so no seed."""
  del recipe, seed
  return contiguous_blocks(store, length)
