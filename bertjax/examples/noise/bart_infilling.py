"""BART's noise: sentences change places, then spans of words become one [MASK] each.

Lewis et al. 2020, section 2.2; fairseq, data/denoising_dataset.py. Of an example of W words
ceil(rate * W) are hidden, in spans whose lengths are drawn from a Poisson distribution with mean
mean_span, the last one shortened. A span begins at a word, each word equally likely, and ends with
the text at the latest; all its tokens become one [MASK], or a random id with probability
random_share. One that another span runs over leaves none. A span of no word puts a [MASK] between
two tokens; that is left out where the text would get longer than it was.

The second text is the whole one: [CLS] text [SEP], read behind [SEP]. fairseq ends sentences at a
full stop that is glued to its word, here they are those of the store.
"""

import dataclasses
from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import framed, layout, targets
from bertjax.examples.layout import Rows, number_within, ragged, ranks, starts
from bertjax.field_types import Positive, Share

RAREST = 1e-7  # the first probability below it is the last of the distribution
_SENTENCE, _ORDER, _LENGTH, _WORD, _RANDOM, _PLACE = range(targets.FREE, targets.FREE + 6)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`.

  Attributes:
    rate: share of the words that is hidden.
    mean_span: words of a span, on average.
    permuted: share of the sentences that change places.
    random_share: chance of a span to become a random id.
    whole_words: whether spans are of words; else of tokens.
    static: the same noise in every epoch.
  """

  rate: Share
  mean_span: Positive
  permuted: Share
  random_share: Share
  whole_words: bool
  static: bool


def pmf(mean: float) -> np.ndarray:
  """Returns the probability of 0, 1, 2, .. words, float64."""
  share, found = np.exp(-mean), []
  for count in range(1, 128):
    found.append(share)
    if share < RAREST and count > mean:
      break
    share *= mean / count
  return np.array(found) / np.sum(found)


def permuted(rows: Rows, share: float, store) -> np.ndarray:
  """Returns the tokens of each example in their new order, int64 indices [n]."""
  sentence_n = layout.sentences(rows, store)
  change_n = (np.diff(sentence_n, prepend=-1) != 0) | (rows.position_n == 0)
  (first_s,) = np.nonzero(change_n)
  example_s, size_s = rows.example_n[first_s], np.diff(first_s, append=len(change_n))
  count_E = np.bincount(example_s, minlength=len(rows.length_E))
  rank_s = ranks(targets.at_tokens(rows, _SENTENCE, first_s), example_s)
  (moved_s,) = np.nonzero(rank_s < np.ceil(count_E * share)[example_s])
  drawn_s = targets.at_tokens(rows, _ORDER, first_s[moved_s])
  order_s = np.arange(len(first_s))
  order_s[moved_s] = moved_s[np.lexsort((drawn_s, example_s[moved_s]))]
  owner_n, offset_n = ragged(size_s[order_s])
  return first_s[order_s][owner_n] + offset_n


def corrupt(rows: Rows, options: Options, store) -> dict[str, Any]:
  """Makes both texts."""
  source_n = permuted(rows, options.permuted, store)
  hidden_n, begun_n, added_E = _hidden(rows, options, store, rows.token_n[source_n])
  id_n, mask = rows.token_n[source_n], store.special['mask']
  index_n = np.flatnonzero(begun_n)
  id_n[index_n] = np.where(
    counter_rng.uniform(targets.at_tokens(rows, _RANDOM, index_n)) < options.random_share,
    1 + counter_rng.below(targets.at_tokens(rows, targets.ID, index_n), store.vocabulary_size - 1),
    mask,
  )
  kept_m = np.flatnonzero(~hidden_n)
  id_m, source_m = _with_added(rows, options, store, id_n[kept_m], source_n[kept_m], added_E)
  return dict(T=framed.text(rows, id_m, source_m, store), U=framed.target(rows, store))


def _hidden(rows: Rows, options: Options, store, token_n: np.ndarray):
  """Returns which tokens go, which become a mask, both bool [n], and the number of masks that come
  in addition, int64 [E]."""
  start_n = store.word_starts[token_n] if options.whole_words else np.ones(len(token_n), bool)
  first_w, word_n = np.flatnonzero(start_n), np.cumsum(start_n) - 1
  example_w, examples = rows.example_n[first_w], len(rows.length_E)
  words_E = np.bincount(example_w, minlength=examples)
  base_E, stop_E = starts(words_E), np.cumsum(words_E)
  example_l, size_l = _spans(rows, options, words_E)
  added_E = np.bincount(example_l[size_l == 0], minlength=examples)
  example_l, size_l = example_l[size_l > 0], size_l[size_l > 0]
  order_w = np.lexsort((targets.at_tokens(rows, _WORD, first_w), example_w))
  word_l = order_w[base_E[example_l] + number_within(example_l)]
  begun_w, cover_w = np.zeros(len(first_w), bool), np.zeros(len(first_w) + 1, np.int64)
  begun_w[word_l] = True
  np.add.at(cover_w, word_l + 1, 1)
  np.add.at(cover_w, np.maximum(np.minimum(word_l + size_l, stop_E[example_l]), word_l + 1), -1)
  inside_n = word_n >= base_E[rows.example_n]  # a text may begin within a word
  pick = lambda value_w: inside_n & (value_w[np.maximum(word_n, 0)] if len(first_w) else False)
  covered_n, begun_n = pick(np.cumsum(cover_w)[:-1] > 0), pick(begun_w)
  hidden_n = covered_n | (begun_n & ~start_n)
  room_E = np.bincount(rows.example_n[hidden_n], minlength=examples)
  return hidden_n, begun_n & start_n, np.minimum(added_E, room_E)


def _spans(rows: Rows, options: Options, words_E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the example and the words of each span, 0 of those that are put in."""
  budget_E = np.ceil(words_E.astype(np.float32) * np.float32(options.rate)).astype(np.int64)
  # So many draws fill it but for one time in 10^20; the last one then takes what is left.
  draws_E = np.ceil((budget_E + 10 * np.sqrt(budget_E) + 24) / options.mean_span).astype(np.int64)
  example_l, number_l = ragged(np.where(budget_E > 0, draws_E, 0))
  drawn_l = counter_rng.uniform(targets.bits(rows, _LENGTH, example_l, number_l))
  size_l = np.searchsorted(np.cumsum(pmf(options.mean_span))[:-1], drawn_l, 'right')
  until_l = np.cumsum(size_l)
  before_l = until_l - size_l
  before_l -= before_l[np.searchsorted(example_l, example_l)]
  left_l = budget_E[example_l] - before_l
  last_l = np.diff(example_l, append=-1) != 0
  size_l = np.where(last_l, left_l, np.minimum(size_l, left_l))
  kept_l = left_l > 0
  return example_l[kept_l], size_l[kept_l]


def _with_added(rows: Rows, options: Options, store, id_m, source_m, added_E):
  """Returns the text with further masks, each place for them equally likely."""
  kept_E = np.bincount(rows.example_n[source_m], minlength=len(added_E))
  example_n, place_n = ragged(kept_E + added_E)
  rank_n = ranks(targets.bits(rows, _PLACE, example_n, place_n), example_n)
  new_n = rank_n < added_E[example_n]
  random_n = rank_n < np.ceil(added_E * options.random_share)[example_n]
  drawn_n = targets.bits(rows, targets.ID, example_n, place_n + len(rows.token_n))
  made_n = np.where(
    random_n, 1 + counter_rng.below(drawn_n, store.vocabulary_size - 1), store.special['mask']
  ).astype(np.int32)
  found_n = starts(rows.length_E)[example_n]  # any token of the example
  made_n[~new_n], found_n[~new_n] = id_m, source_m
  return made_n, found_n


MASKING = Masking(
  Options,
  ('cls', 'sep', 'mask'),
  targets.check_length,
  corrupt,
  raw=framed.raw,
  sizes=framed.sizes,
  targets=('framed',),
)
