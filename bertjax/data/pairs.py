"""BERT's sentence pairs: `create_pretraining_data.py` of google-research/bert, as a plan.

Every pass over a document draws one target length and walks its sentences: a chunk reaches the
target or the end of the document; a part of it becomes A, and B is the rest of the chunk (next) or
text of another document (random), in which case the sentences that A left over are put back. A pair
that is too long loses tokens one by one from its longer side, at random from the front or the back.

All documents of a window and all passes advance in lockstep, one chunk per iteration, by binary
search in the sentence offsets. Each draw is keyed by (seed, pass, sentence where the chunk starts),
so the plan does not depend on the window. `dupe_factor` passes make one epoch; examples are ordered
by document, pass and place.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertjax.data import draws, rows

SPECIAL = ('cls', 'sep')
WINDOW = 1 << 21  # sentences, times passes, in the lockstep at once
DRAWS = 10  # of another document; the last one counts even if it is the same document

# Sites of a pass, then of a chunk.
_TARGET, _CHUNK = 0, 1
_A_END, _COIN, _OTHER, _START, _FRONT_A, _FRONT_B = range(6)


class _Lanes(NamedTuple):
  """One walk over one document each; sentences are numbered from the start of the corpus."""

  order_n: np.ndarray  # of the output
  document_n: np.ndarray
  at_n: np.ndarray  # the next sentence
  end_n: np.ndarray  # the sentence after the document's last
  target_n: np.ndarray  # tokens of A and B together that a chunk aims at
  key_n: np.ndarray


def build(store, recipe, length: int, seed: int, window: int = WINDOW) -> Iterator[tuple]:
  """Makes the plan in pieces.

  Args:
    store: the token store; only its offsets are read.
    recipe: `config.data`, with dupe_factor and short_prob.
    length: tokens per example, special tokens included.
    seed: of all draws.
    window: sentences times passes per piece; changes the pieces, not the plan.

  Returns:
    An iterator of (columns, counts): columns a_start, b_start int64 (into the tokens), a_length,
    length int32 (length counts the three special tokens), next int8 (0 next, 1 random); counts of
    random_next and truncated_tokens.

  Raises:
    ValueError: a store with fewer than two documents, a length below 5, no pass, no probability.
  """
  documents = len(store.documents) - 1
  if documents < 2:
    raise ValueError(
      'pairs need another document to draw a random next segment from: expected at least 2 '
      f'documents, got {documents} in {store.path}. Separate documents by blank lines, give more '
      'text, or use config.data.plan=full_sentences'
    )
  if length < 5:
    raise ValueError(f'pairs need length >= 5 ([CLS] a [SEP] b [SEP]), got {length}')
  if recipe.dupe_factor < 1 or not 0 <= recipe.short_prob <= 1:
    raise ValueError(
      'expected config.data.dupe_factor >= 1 and short_prob from 0 to 1, got '
      f'{recipe.dupe_factor} and {recipe.short_prob}'
    )
  windows = _windows(store.documents, max(window // recipe.dupe_factor, 1))
  return (_window(store, recipe, length - 3, seed, window) for window in windows)


def assemble(store, column: dict[str, np.ndarray]) -> rows.Text:
  """Makes [CLS] A [SEP] B [SEP] of the given examples (columns as `build` yields them)."""
  a_E, length_E = column['a_length'].astype(np.int64), column['length'].astype(np.int64)
  b_E, start_E = length_E - a_E - 3, rows.starts(length_E)
  two = lambda a, b: np.stack([a, b], 1).ravel()
  body = store.gather(two(column['a_start'], column['b_start']), two(a_E, b_E))
  special = np.stack([start_E, start_E + a_E + 1, start_E + length_E - 1], 1).ravel()
  cls, sep = store.special['cls'], store.special['sep']
  return rows.Text(
    token_n=rows.fill(int(length_E.sum()), special, np.tile([cls, sep, sep], len(a_E)), body),
    type_n=np.repeat(np.tile(np.array([0, 1], np.int32), len(a_E)), two(a_E + 2, b_E + 1)),
    length_E=length_E,
    label={'next': column['next'].astype(np.int32)},
  )


def truncated(a_n: np.ndarray, b_n: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns how many tokens A and B lose, one by one from the longer (B in a tie), to the limit."""
  excess_n = np.maximum(a_n + b_n - limit, 0)
  a_first_n = np.clip(a_n - b_n, 0, excess_n)
  b_first_n = np.clip(b_n - a_n, 0, excess_n)
  rest_n = excess_n - a_first_n - b_first_n  # by now both are equally long
  return a_first_n + rest_n // 2, b_first_n + (rest_n + 1) // 2


def _windows(documents, sentences):
  """Yields ranges (first, last) of documents with about this many sentences, or one document."""
  first = 0
  while first < len(documents) - 1:
    full = np.searchsorted(documents, documents[first] + sentences, 'right') - 1
    last = max(first + 1, int(full))
    yield first, last
    first = last


def _window(store, recipe, usable, seed, documents):
  lanes = _open_lanes(store, recipe, usable, seed, documents)
  base = int(store.documents[documents[0]])
  offset = np.asarray(store.sentences[base : int(store.documents[documents[1]]) + 1])
  pieces, order = [], []
  while lanes.at_n.size:
    columns, at_n = _chunk(store, lanes, (base, offset), usable)
    pieces.append(columns)
    order.append(lanes.order_n)
    lanes = lanes._replace(at_n=at_n)
    alive = at_n < lanes.end_n
    if not alive.all():
      lanes = _Lanes(*(value[alive] for value in lanes))
  permutation = np.argsort(np.concatenate(order), kind='stable')
  column = {name: np.concatenate([p[name] for p in pieces])[permutation] for name in pieces[0]}
  truncated_tokens = int(column.pop('removed').sum())
  return column, dict(random_next=int(column['next'].sum()), truncated_tokens=truncated_tokens)


def _open_lanes(store, recipe, usable, seed, documents) -> _Lanes:
  passes = recipe.dupe_factor
  document_n = np.repeat(np.arange(*documents), passes)
  pass_n = np.tile(np.arange(passes), documents[1] - documents[0])
  pass_key_n = draws.fold(draws.root(seed, 'pairs'), pass_n)
  key_n = draws.fold(draws.fold(pass_key_n, _TARGET), document_n)
  short_n = draws.uniform(draws.fold(key_n, 0)) < recipe.short_prob
  bound = np.asarray(store.documents[documents[0] : documents[1] + 1])
  local_n = document_n - documents[0]
  lanes = _Lanes(
    order_n=np.arange(len(document_n)),
    document_n=document_n,
    at_n=bound[local_n],
    end_n=bound[local_n + 1],
    target_n=np.where(short_n, 2 + draws.below(draws.fold(key_n, 1), usable - 1), usable),
    key_n=draws.fold(pass_key_n, _CHUNK),
  )
  return _Lanes(*(value[lanes.at_n < lanes.end_n] for value in lanes))


def _chunk(store, lanes: _Lanes, local, usable):
  """Makes one example in every lane; returns its columns and each lane's next sentence."""
  base, offset = local
  key_n = draws.fold(lanes.key_n, lanes.at_n)
  begin_n = offset[lanes.at_n - base]
  stop_n = base + np.searchsorted(offset, begin_n + lanes.target_n)
  stop_n = np.clip(stop_n, lanes.at_n + 1, lanes.end_n)
  count_n = stop_n - lanes.at_n
  a_draw_n = draws.below(draws.fold(key_n, _A_END), np.maximum(count_n - 1, 1))
  a_stop_n = lanes.at_n + 1 + a_draw_n
  a_n = offset[a_stop_n - base] - begin_n
  random_n = (count_n == 1) | (draws.uniform(draws.fold(key_n, _COIN)) < 0.5)
  b_start_n, b_end_n = offset[a_stop_n - base], offset[stop_n - base]
  pick = np.flatnonzero(random_n)
  b_start_n[pick], b_end_n[pick] = _random_segment(
    store, key_n[pick], lanes.document_n[pick], (lanes.target_n - a_n)[pick]
  )
  b_n = b_end_n - b_start_n
  a_lost_n, b_lost_n = truncated(a_n, b_n, usable)
  a_front_n = draws.coin_flips(draws.fold(key_n, _FRONT_A), a_lost_n)
  b_front_n = draws.coin_flips(draws.fold(key_n, _FRONT_B), b_lost_n)
  removed_n = a_lost_n + b_lost_n
  columns = dict(
    a_start=begin_n + a_front_n,
    b_start=b_start_n + b_front_n,
    a_length=(a_n - a_lost_n).astype(np.int32),
    length=(a_n + b_n - removed_n + 3).astype(np.int32),
    next=random_n.astype(np.int8),
    removed=removed_n,
  )
  return columns, np.where(random_n, a_stop_n, stop_n)


def _random_segment(store, key_n, document_n, wanted_n):
  """Returns token ranges of whole sentences of other documents with at least the wanted tokens."""
  other_n, open_n = document_n.copy(), np.arange(len(document_n))
  site_n = draws.fold(key_n, _OTHER)
  for attempt in range(DRAWS):
    bits = draws.fold(site_n[open_n], attempt)
    other_n[open_n] = draws.below(bits, len(store.documents) - 1)
    open_n = open_n[other_n[open_n] == document_n[open_n]]
    if not open_n.size:
      break
  first_n, last_n = store.documents[other_n], store.documents[other_n + 1]
  start_n = first_n + draws.below(draws.fold(key_n, _START), last_n - first_n)
  begin_n = store.sentences[start_n]
  stop_n = np.searchsorted(store.sentences, begin_n + wanted_n)
  stop_n = np.clip(stop_n, start_n + 1, last_n)
  return begin_n, store.sentences[stop_n]
