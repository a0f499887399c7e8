"""ELECTRA's examples: up to two segments of text that follow each other, no next-sentence label.

google-research/electra, build_pretraining_dataset.py. Sentences of one document are collected until
they reach the target length: the row's, or with probability `short_prob` one drawn
uniformly from 5 to it. With probability one_segment_prob they make one segment. Otherwise the first
segment aims at (target - 3) // 2 tokens and takes sentences while it stays below that; the one that
would exceed it goes to it or to the second by a coin. A later sentence that still fits joins the
first segment, over the head of those in the second: a quirk. What is too long is cut at its end.
[CLS] first [SEP] second [SEP], or [CLS] first [SEP].

Documents advance in lockstep, one example per iteration. Each draw is keyed by (seed, sentence
where the example starts), so the plan does not depend on the window; the original keeps a target
over the end of a document, and its first one is never short.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Chosen, Piece, Plan, Ranges, Spec
from bertjax.examples import layout
from bertjax.field_types import Share

WINDOW = 1 << 20  # sentences whose offsets are held at once, unless a document has more
ENDLESS = 100_000  # the target of a first segment that takes all

_SHORT, _TARGET, _ONE, _COIN = range(4)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.plan`.

  Attributes:
    short_prob: chance of an example to aim at a shorter length.
    one_segment_prob: chance of an example to have one segment.
  """

  short_prob: Share
  one_segment_prob: Share = 0.1


def build(store, spec: Spec, window: int = WINDOW) -> Iterator[Piece]:
  """Makes the plan of whole documents; see `Plan.build`.

  Columns: sentence int64 (the first one), sentences int32, first_target int32 (what the first
  segment aims at), coin int8 (whether it takes the sentence that exceeds that), a_length int32 (of
  the first segment, cut), length with special tokens. Counts two_segments and truncated_tokens.
  """
  return _pieces(store, spec.options, spec.length, counter_rng.root(spec.seed, 'segments'), window)


def ranges(store, spec: Spec, chosen: Chosen) -> Ranges:
  """Returns the `Ranges` of some examples: [CLS] first [SEP] second [SEP]."""
  column = chosen.column
  length_E, a_E = column['length'].astype(np.int64), column['a_length'].astype(np.int64)
  b_E = np.maximum(length_E - a_E - 3, 0)
  two_E = b_E > 0
  example_n, number_n = layout.ragged(column['sentences'])
  sentence_n = column['sentence'][example_n] + number_n
  begin_n = store.sentences[sentence_n]
  size_n = store.sentences[sentence_n + 1] - begin_n
  segment_n = 2 * example_n + second(
    size_n, column['sentences'], column['first_target'], column['coin']
  )
  order_n = np.argsort(segment_n, kind='stable')
  cls, sep = store.special['cls'], store.special['sep']
  return Ranges(
    start_r=begin_n[order_n],
    length_r=_cut(size_n[order_n], segment_n[order_n], layout.in_turn(a_E, b_E)),
    type_n=layout.segments(a_E + 2, b_E + two_E),
    **layout.joined((cls, 1), (layout.TEXT, a_E), (sep, 1), (layout.TEXT, b_E), (sep, two_E)),
  )


def second(
  size_n: np.ndarray, sentences_E: np.ndarray, target_E: np.ndarray, coin_E: np.ndarray
) -> np.ndarray:
  """Chooses the sentences that go to the second segment of their example: bool [n], by the tokens
  of the sentences, example by example, the sentences of each (1 at least), and columns of
  `build`."""
  start_E = layout.starts(sentences_E)
  out_n = np.zeros(len(size_n), bool)
  first_E = size_n[start_E].astype(np.int64)  # an empty first segment takes any sentence
  begun_E = np.zeros(len(start_E), bool)  # whether the second has a sentence
  open_n, number = np.flatnonzero(sentences_E > 1), 1
  while open_n.size:
    size, first, begun = size_n[start_E[open_n] + number], first_E[open_n], begun_E[open_n]
    fits, coin = first + size < target_E[open_n], coin_E[open_n] > 0
    taken = fits | (~begun & (first < target_E[open_n]) & coin)
    first_E[open_n] += size * taken
    begun_E[open_n] = begun | ~taken
    out_n[start_E[open_n] + number] = ~taken
    number += 1
    open_n = open_n[sentences_E[open_n] > number]
  return out_n


def _cut(size_n, segment_n, limit_S):
  """Returns the number of tokens of each sentence that fit in its segment; segments ascend."""
  total_S = np.bincount(segment_n, size_n, len(limit_S)).astype(np.int64)
  before_n = np.cumsum(size_n) - size_n - layout.starts(total_S)[segment_n]
  return np.clip(limit_S[segment_n] - before_n, 0, size_n)


def _pieces(store, options, length, key, window):
  for low, high in layout.windows(store.documents, window):
    bound = np.asarray(store.documents[low : high + 1])
    offset = np.asarray(store.sentences[bound[0] : bound[-1] + 1])
    yield _columns(offset, *_walk(bound, offset, options, length, key), options, length, key)


def _targets(key_n, options, length) -> np.ndarray:
  """Tokens that the examples of these keys aim at."""
  short_n = counter_rng.uniform(counter_rng.fold(key_n, _SHORT)) < options.short_prob
  return np.where(
    short_n, 5 + counter_rng.below(counter_rng.fold(key_n, _TARGET), length - 4), length
  )


def _walk(bound, offset, options, length, key):
  """Returns the window's first sentence, and each example's (first sentence, sentences)."""
  at_n, end_n = bound[:-1], bound[1:]
  found = []
  while (alive_n := at_n < end_n).any():
    at_n, end_n = at_n[alive_n], end_n[alive_n]
    target_n = _targets(counter_rng.fold(key, at_n), options, length)
    stop_n = bound[0] + np.searchsorted(offset, offset[at_n - bound[0]] + target_n)
    stop_n = np.clip(stop_n, at_n + 1, end_n)
    found.append(np.stack([at_n, stop_n - at_n]))
    at_n = stop_n
  first_E, sentences_E = np.concatenate(found or [np.zeros((2, 0), np.int64)], 1)
  by_place = np.argsort(first_E)
  return bound[0], first_E[by_place], sentences_E[by_place]


def _columns(offset, base, first_E, sentences_E, options, length, key):
  key_E = counter_rng.fold(key, first_E)
  one_E = counter_rng.uniform(counter_rng.fold(key_E, _ONE)) < options.one_segment_prob
  column = dict(
    sentence=first_E,
    sentences=sentences_E.astype(np.int32),
    first_target=np.where(one_E, ENDLESS, (_targets(key_E, options, length) - 3) // 2),
    coin=(counter_rng.uniform(counter_rng.fold(key_E, _COIN)) < 0.5).astype(np.int8),
  )
  column['first_target'] = column['first_target'].astype(np.int32)
  example_n, number_n = layout.ragged(sentences_E)
  sentence_n = first_E[example_n] + number_n - base
  size_n = offset[sentence_n + 1] - offset[sentence_n]
  second_n = second(size_n, *(column[k] for k in ('sentences', 'first_target', 'coin')))
  total_S = np.bincount(2 * example_n + second_n, size_n, 2 * len(first_E)).astype(np.int64)
  a_E = np.minimum(total_S[::2], length - 2)
  b_E = np.minimum(total_S[1::2], np.maximum(length - 3 - a_E, 0))
  column['a_length'] = a_E.astype(np.int32)
  column['length'] = (a_E + 2 + b_E + (b_E > 0)).astype(np.int32)
  cut = int(total_S.sum() - a_E.sum() - b_E.sum())
  return column, dict(two_segments=int((b_E > 0).sum()), truncated_tokens=cut)


# The shortest row: [CLS] a [SEP] b [SEP].
PLAN = Plan(Options, ('cls', 'sep'), build, ranges, least=lambda options: 5)
