"""SpanBERT's blocks against the loop of BlockDataset."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, spans, spec_of

from bertjax.examples.plans import spanbert_blocks
from bertjax.store.npy_files import join_columns


def block_dataset(store, block):
  """(first token, token after the last) of each block: BlockDataset, break_mode 'doc'."""
  blocks = []
  for d in range(len(store.documents) - 1):
    doc = range(store.documents[d], store.documents[d + 1])
    doc = [(int(store.sentences[s]), int(store.sentences[s + 1])) for s in doc]
    chunk, at = [], 0
    while at < len(doc):
      if doc[at][1] - doc[at][0] <= block:
        chunk.append(doc[at])
        length = chunk[-1][1] - chunk[0][0]
        if at == len(doc) - 1 or length > block:
          if length > block:
            chunk.pop()
            at -= 1
          if chunk:
            blocks.append((chunk[0][0], chunk[-1][1]))
          chunk = []
      at += 1
  return blocks


@pytest.mark.parametrize('length', [6, 14, 64, 300])
@mutation("'right') - 1, document_end)", "'right') - 1, sentences)")
def test_blocks_are_those_of_the_original(length):
  store = random_store(150)
  _, spec = spec_of(spans(), length)
  column, count = join_columns(spanbert_blocks.build(store, spec))
  got = [(int(a), int(a + n - 2)) for a, n in zip(column['start'], column['length'], strict=True)]
  assert got == block_dataset(store, length - 2)
  size = np.diff(store.sentences)
  assert count['long_sentences'] == (size > length - 2).sum()
  assert count['lost_tokens'] == size.sum() - sum(b - a for a, b in got)
  assert (count['lost_blocks'] > 0) == (length == 14) or length == 6
