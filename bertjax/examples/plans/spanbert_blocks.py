"""SpanBERT's blocks: [CLS] whole sentences of one document [SEP], no pairs.

facebookresearch/SpanBERT, no_nsp_span_bert_dataset.py, break mode "doc". A block takes as many
sentences as fit. A sentence too long for a block is dropped and ends the block before it. Where
nothing but such sentences follow in the document, that block is lost too: a quirk.
"""

from collections.abc import Iterator

import numpy as np

from bertjax.data_contracts import Piece, Plan, Spec
from bertjax.examples import layout
from bertjax.examples.plans import blocks
from bertjax.examples.plans.sequences import ranges  # [CLS] tokens [SEP]
from bertjax.options import NoOptions

WINDOW = 1 << 19  # sentences whose offsets are held at once, unless a document has more


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan of whole documents without draws; see `Plan.build`. Columns: start int64 (into
  the tokens), length with the two special tokens. Counts long_sentences, lost_blocks and
  lost_tokens, of both together."""
  parts = layout.windows(store.documents, window)
  return (_blocks(store, *part, spec.length - 2) for part in parts)


def _blocks(store, low, high, block):
  bound = np.asarray(store.documents[low : high + 1])
  place = np.asarray(store.sentences[bound[0] : bound[-1] + 1])
  bound = bound - bound[0]
  size = np.diff(place)
  sentences, long = len(size), size > block
  document_end = bound[1:][np.searchsorted(bound, np.arange(sentences), 'right') - 1]
  number = np.arange(sentences)
  # The next sentence, from each on, that is not too long.
  short = np.minimum.accumulate(np.where(long, sentences, number)[::-1])[::-1]
  # No block reaches over one that is: together they would not fit.
  end = np.minimum(np.searchsorted(place, place[:-1] + block, 'right') - 1, document_end)
  chain = blocks.chain(np.where(long, number + 1, end), 0, sentences)
  first = np.array(chain[:-1], np.int64)
  first = first[~long[first]]
  last, own_end = end[first], document_end[first]
  lost = (last < own_end) & (np.append(short, sentences)[last] >= own_end)
  start, stop = place[first], place[last]
  column = dict(start=start[~lost], length=(stop - start + 2)[~lost].astype(np.int32))
  return column, dict(
    long_sentences=int(long.sum()),
    lost_blocks=int(lost.sum()),
    lost_tokens=int(size[long].sum() + (stop - start)[lost].sum()),
  )


PLAN = Plan(NoOptions, ('cls', 'sep'), build, ranges, least=lambda options: 3)
