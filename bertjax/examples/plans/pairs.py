"""BERT's sentence pairs: `create_pretraining_data.py` of google-research/bert, as a plan.

Every pass over a document draws one target length and walks its sentences: a chunk reaches the
target or the end of the document; a part of it becomes A, and B is the rest of the chunk (next) or
text of another document (random), in which case the sentences that A left over are put back. A pair
that is too long loses tokens one by one from its longer side, at random from the front or the back.
Where the store knows languages the other document is of the same one: multilingual BERT's pairs
were made language by language. A chunk whose random text would be of its own document, since its
language has no other or the draws met none, is left out and counted.

All documents of a window and all passes advance in lockstep, one chunk per iteration, by binary
search in the sentence offsets. Each draw is keyed by (seed, pass, sentence where the chunk starts),
so the plan does not depend on the window, and several threads make windows. `dupe_factor` passes
make one epoch; examples are ordered by document, pass and place.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.errors import UserError
from bertjax.examples import languages, layout
from bertjax.field_types import Count, Share

WINDOW = 1 << 21  # sentences, times passes, in the lockstep at once
DRAWS = 10  # of another document
THREADS = 8  # that make windows, at most: each holds the arrays of one

# Sites of a pass, then of a chunk.
_TARGET, _CHUNK = 0, 1
_A_END, _COIN, _OTHER, _START, _FRONT_A, _FRONT_B = range(6)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    dupe_factor: passes over the corpus that make an epoch.
    short_prob: chance of a document to aim at a shorter length.
  """

  dupe_factor: Count
  short_prob: Share


class Task(NamedTuple):
  """A task of pretraining on pairs, by the label that it predicts."""

  name: str  # name of the label: 1 if the pair was changed
  # True: the coin swaps A and B, or draws a random B for a chunk of one sentence; False: it draws a
  # random B for any chunk
  swap: bool
  least: int  # fewest sentences of a chunk; a document's shorter rest makes no example


NEXT = Task('next', swap=False, least=1)


class _Lanes(NamedTuple):
  """One walk over one document each; sentences are numbered from the start of the corpus."""

  order_n: np.ndarray  # of the output
  document_n: np.ndarray
  at_n: np.ndarray  # the next sentence
  end_n: np.ndarray  # the sentence after the document's last
  target_n: np.ndarray  # tokens of A and B together that a chunk aims at
  key_n: np.ndarray


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan; see `Plan.build`.

  Columns: a_start, b_start int64 (into the tokens), a_length int32, length with the three special
  tokens, next int8 (0 next, 1 random), group of the document. Counts random_next, truncated_tokens
  and, where there are such, no_other_document (chunks that are left out). Raises UserError: fewer
  than two documents, of each language.
  """
  return pieces(store, spec, window, NEXT)


def pieces(store, spec: Spec, window: int, task: Task) -> Iterator[Piece]:
  """Builds a task's examples as `build` does; the label's column is 1 if the pair was changed."""
  documents = len(store.documents) - 1
  peers = languages.peers(store)
  if not task.swap and documents:
    documents = peers.size_l.max()  # only those of one language are random text for another
  if documents < 2:
    raise UserError(
      'pairs need another document, of the same language where those are known, to draw a random '
      f'next segment from: expected at least 2 documents, got {documents} in {store.path}. '
      'Separate documents by blank lines, give more text (held out: by config.data.holdout), '
      'or use config.data.plan.name=blocks'
    )
  if task.swap and np.diff(store.documents).max() < 2:
    raise UserError(
      f'{store.path}: expected documents of two sentences and more, got {len(store.documents) - 1} '
      'of at most one. Prepare the store with --split=sentences, or use config.data.plan.name=pairs'
    )
  import grain  # here, since it takes a second

  # NumPy lets other threads run while it works on an array, so that windows share the cores.
  cores = min(len(os.sched_getaffinity(0)), THREADS)
  ahead = cores if cores > 1 else 0  # one core would make two windows at a time, no faster
  windows = [*layout.windows(store.documents, max(window // spec.options.dupe_factor, 1))]
  made = grain.MapDataset.source(windows).map(lambda each: _window(store, peers, spec, each, task))
  return iter(made.to_iter_dataset(grain.ReadOptions(ahead, prefetch_buffer_size=ahead)))


def ranges(store, spec: Spec, chosen: Chosen, label: str = 'next') -> Ranges:
  """Returns the `Ranges` of some examples, [CLS] A [SEP] B [SEP], from columns that `pieces` yields
  for the task of this label."""
  column = chosen.column
  a_E = column['a_length'].astype(np.int64)
  b_E = column['length'] - a_E - 3
  cls, sep = store.special['cls'], store.special['sep']
  return Ranges(
    start_r=layout.in_turn(column['a_start'], column['b_start']),
    length_r=layout.in_turn(a_E, b_E),
    type_n=layout.segments(a_E + 2, b_E + 1),
    label={label: column[label].astype(np.int32)},
    **layout.joined((cls, 1), (layout.TEXT, a_E), (sep, 1), (layout.TEXT, b_E), (sep, 1)),
  )


def _window(store, peers, spec, documents, task):
  usable = spec.length - 3
  lanes, lone = _alive(_open_lanes(store, spec, documents), task)
  base = int(store.documents[documents[0]])
  offset = np.asarray(store.sentences[base : int(store.documents[documents[1]]) + 1])
  pieces, order = [], []
  while lanes.at_n.size or not pieces:  # an empty chunk where no document has enough
    columns, at_n = _chunk(store, peers, lanes, (base, offset), usable, task)
    pieces.append(columns)
    order.append(lanes.order_n)
    lanes, left = _alive(lanes._replace(at_n=at_n), task)
    lone += left
  permutation = np.argsort(np.concatenate(order), kind='stable')
  column = {name: np.concatenate([p[name] for p in pieces])[permutation] for name in pieces[0]}
  out_n = column.pop('out')
  column = {name: value_n[~out_n] for name, value_n in column.items()}
  removed, random = (int(column.pop(name).sum()) for name in ('removed', 'random'))
  counts = dict(random_next=random, truncated_tokens=removed)
  if task.least > 1:
    return column, counts | dict(lone_sentences=lone)
  if out_n.any() or 1 in peers.size_l:
    counts['no_other_document'] = int(out_n.sum())
  return column, counts


def _open_lanes(store, spec, documents) -> _Lanes:
  passes, usable = spec.options.dupe_factor, spec.length - 3
  document_n = np.repeat(np.arange(*documents), passes)
  pass_n = np.tile(np.arange(passes), documents[1] - documents[0])
  pass_key_n = counter_rng.fold(counter_rng.root(spec.seed, 'pairs'), pass_n)
  key_n = counter_rng.fold(counter_rng.fold(pass_key_n, _TARGET), document_n)
  short_n = counter_rng.uniform(counter_rng.fold(key_n, 0)) < spec.options.short_prob
  bound = np.asarray(store.documents[documents[0] : documents[1] + 1])
  local_n = document_n - documents[0]
  return _Lanes(
    order_n=np.arange(len(document_n)),
    document_n=document_n,
    at_n=bound[local_n],
    end_n=bound[local_n + 1],
    target_n=np.where(
      short_n, 2 + counter_rng.below(counter_rng.fold(key_n, 1), usable - 1), usable
    ),
    key_n=counter_rng.fold(pass_key_n, _CHUNK),
  )


def _alive(lanes: _Lanes, task: Task) -> tuple[_Lanes, int]:
  """Returns the lanes that have sentences enough for a chunk, and how many the others have left."""
  left_n = lanes.end_n - lanes.at_n
  alive_n = left_n >= task.least
  if alive_n.all():
    return lanes, 0
  return _Lanes(*(value[alive_n] for value in lanes)), int(left_n[~alive_n].sum())


def _chunk(store, peers, lanes: _Lanes, local, usable, task: Task):
  """Makes one example in every lane; returns its columns and each lane's next sentence."""
  base, offset = local
  key_n = counter_rng.fold(lanes.key_n, lanes.at_n)
  begin_n = offset[lanes.at_n - base]
  stop_n = base + np.searchsorted(offset, begin_n + lanes.target_n)
  stop_n = np.clip(stop_n, lanes.at_n + task.least, lanes.end_n)
  count_n = stop_n - lanes.at_n
  a_draw_n = counter_rng.below(counter_rng.fold(key_n, _A_END), np.maximum(count_n - 1, 1))
  a_stop_n = lanes.at_n + 1 + a_draw_n
  a_start_n, a_n = begin_n, offset[a_stop_n - base] - begin_n
  alone_n = count_n == 1
  changed_n = alone_n | (counter_rng.uniform(counter_rng.fold(key_n, _COIN)) < 0.5)
  random_n = alone_n if task.swap else changed_n
  b_start_n, b_end_n = offset[a_stop_n - base], offset[stop_n - base]
  pick, out_n = np.flatnonzero(random_n), np.zeros(len(random_n), bool)
  b_start_n[pick], b_end_n[pick], out_n[pick] = _random_segment(
    store, peers, key_n[pick], lanes.document_n[pick], (lanes.target_n - a_n)[pick]
  )
  b_n = b_end_n - b_start_n
  if task.swap:
    swap_n = changed_n & ~random_n
    a_start_n, b_start_n = np.where(swap_n, [b_start_n, a_start_n], [a_start_n, b_start_n])
    a_n, b_n = np.where(swap_n, [b_n, a_n], [a_n, b_n])
  a_lost_n, b_lost_n = layout.truncated(a_n, b_n, usable)
  a_front_n = counter_rng.coin_flips(counter_rng.fold(key_n, _FRONT_A), a_lost_n)
  b_front_n = counter_rng.coin_flips(counter_rng.fold(key_n, _FRONT_B), b_lost_n)
  removed_n = a_lost_n + b_lost_n
  columns = dict(
    a_start=a_start_n + a_front_n,
    b_start=b_start_n + b_front_n,
    a_length=(a_n - a_lost_n).astype(np.int32),
    length=(a_n + b_n - removed_n + 3).astype(np.int32),
    random=random_n,
    removed=removed_n,
    out=out_n,
  )
  columns[task.name] = changed_n.astype(np.int8)
  if peers.language_D is not None:
    columns['group'] = peers.language_D[lanes.document_n].astype(np.int32)
  return columns, np.where(random_n, a_stop_n, stop_n)


def _random_segment(store, peers, key_n, document_n, wanted_n):
  """Returns token ranges of whole sentences of other documents with at least the wanted tokens, and
  where there is none: then the range is of the document itself."""
  other_n, open_n = document_n.copy(), np.arange(len(document_n))
  site_n = counter_rng.fold(key_n, _OTHER)
  for attempt in range(DRAWS):
    bits = counter_rng.fold(site_n[open_n], attempt)
    other_n[open_n] = peers.draw(bits, document_n[open_n])
    open_n = open_n[other_n[open_n] == document_n[open_n]]
    if not open_n.size:
      break
  first_n, last_n = store.documents[other_n], store.documents[other_n + 1]
  start_n = first_n + counter_rng.below(counter_rng.fold(key_n, _START), last_n - first_n)
  begin_n = store.sentences[start_n]
  stop_n = np.searchsorted(store.sentences, begin_n + wanted_n)
  stop_n = np.clip(stop_n, start_n + 1, last_n)
  return begin_n, store.sentences[stop_n], other_n == document_n


# The shortest row: [CLS] a [SEP] b [SEP].
PLAN = Plan(Options, ('cls', 'sep'), build, ranges, least=lambda options: 5)
