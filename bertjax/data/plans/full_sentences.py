"""RoBERTa's FULL-SENTENCES: blocks of whole sentences that run across document boundaries.

Liu et al. 2019, section 4.2; fairseq `--sample-break-mode complete`. See `bertjax.data.plans.blocks`.
"""

from collections.abc import Iterator

from bertjax.data.plans.blocks import SPECIAL, assemble, blocks

__all__ = ['SPECIAL', 'assemble', 'build']


def build(store, recipe, length: int, seed: int) -> Iterator[tuple]:
  """Makes the plan in pieces, as `bertjax.data.plans.blocks.blocks`; no draws, so no seed."""
  del recipe, seed
  return blocks(store, length, within_documents=False)
