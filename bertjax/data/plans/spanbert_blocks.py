"""SpanBERT's blocks: [CLS] whole sentences of one document [SEP], no pairs.

facebookresearch/SpanBERT, no_nsp_span_bert_dataset.py, break mode "doc". A block takes as many
sentences as fit. A sentence too long for a block is dropped and ends the block before it. Where
nothing but such sentences follow in the document, that block is lost too: `config.data.keep_block`
keeps it.
"""

from collections.abc import Iterator

import numpy as np

from bertjax.data import layout
from bertjax.errors import UserError

SPECIAL = ('cls', 'sep')
OPTIONS = ('keep_block',)
WINDOW = 1 << 19  # sentences whose offsets are held at once, unless a document has more


def build(store, recipe, length: int, seed: int, window: int = WINDOW) -> Iterator[tuple]:
  """Makes the plan in pieces of whole documents; no draws.

  Args:
    store: the token store; only its offsets are read.
    recipe: `config.data`; keep_block is used.
    length: tokens per row, [CLS] and [SEP] included.
    seed: not used.
    window: sentences per piece; changes the pieces, not the plan.

  Returns:
    An iterator of (columns, counts): columns start int64 (into the tokens), length int32 (with the
    two special tokens); counts of long_sentences, lost_blocks and lost_tokens, of both together.

  Raises:
    UserError: a length below 3.
  """
  del seed
  if length < 3:
    raise UserError(f'one_segment needs length >= 3 ([CLS] token [SEP]), got {length}')
  return _pieces(store, length - 2, bool(recipe.keep_block), window)


def assemble(store, column: dict[str, np.ndarray]) -> layout.Text:
  """Makes [CLS] tokens [SEP] of some examples (columns as `build` yields them)."""
  length_E = column['length'].astype(np.int64)
  total, start_E = int(length_E.sum()), layout.starts(length_E)
  special_n = np.concatenate([start_E, start_E + length_E - 1])
  ids = np.repeat([store.special['cls'], store.special['sep']], len(length_E))
  body = store.gather(column['start'], length_E - 2)
  return layout.Text(
    token_n=layout.fill(total, special_n, ids, body),
    type_n=np.zeros(total, np.int32),
    length_E=length_E,
    label={},
    source=layout.Source(column['start'], length_E - 2, special_n),
  )


def _pieces(store, block, keep_block, window):
  documents, low = store.documents, 0
  while low < len(documents) - 1:
    high = max(np.searchsorted(documents, documents[low] + window, 'right') - 1, low + 1)
    bound = np.asarray(documents[low : high + 1]) - documents[low]
    place = np.asarray(store.sentences[documents[low] : documents[high] + 1])
    yield _blocks(place, bound, block, keep_block)
    low = int(high)


def _blocks(place, bound, block, keep_block):
  """The blocks of the sentences place[i] .. place[i + 1], in documents that begin at `bound`."""
  size = np.diff(place)
  sentences, long = len(size), size > block
  document_end = bound[1:][np.searchsorted(bound, np.arange(sentences), 'right') - 1]
  number = np.arange(sentences)
  # The next sentence, from each on, that is not too long.
  short = np.minimum.accumulate(np.where(long, sentences, number)[::-1])[::-1]
  # No block reaches over one that is: together they would not fit.
  end = np.minimum(np.searchsorted(place, place[:-1] + block, 'right') - 1, document_end)
  first = np.array(_chain(np.where(long, number + 1, end)), np.int64)
  first = first[~long[first]]
  last, own_end = end[first], document_end[first]
  lost = (last < own_end) & (np.append(short, sentences)[last] >= own_end) & (not keep_block)
  start, stop = place[first], place[last]
  column = dict(start=start[~lost], length=(stop - start + 2)[~lost].astype(np.int32))
  return column, dict(
    long_sentences=int(long.sum()),
    lost_blocks=int(lost.sum()),
    lost_tokens=int(size[long].sum() + (stop - start)[lost].sum()),
  )


def _chain(following: np.ndarray) -> list[int]:
  """Follows the links from 0 until the end, which is not part of the chain."""
  link, chain, at = following.tolist(), [], 0
  while at < len(link):
    chain.append(at)
    at = link[at]
  return chain
