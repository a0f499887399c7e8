"""ALBERT's n-gram masking (google-research/albert, create_pretraining_data.py).

Every word starts n-grams of 1 to `mask.ngram` words; the starts are shuffled and tried one by one
until max(1, round(rate * length)) tokens are chosen. A start draws its n with P(n) ~ 1/n; takes
fewer words while they exceed what is left, down to one; and is skipped if that is still too much,
or if any of its tokens is chosen already. Each token is then decided by itself as in BERT.

[CLS] and [SEP] are no candidates but end no n-gram either: one may straddle the inner [SEP]. What
begins a word is the vocabulary's to say (`vocabulary.py` has ALBERT's test for SentencePiece); with
whole_word off every token is a word.

The original draws n from NumPy's global state, so its runs differ; here n follows from the example
like every other draw. Its loop over the covered tokens of a start has no effect and is left out.
"""

import dataclasses

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.examples import targets
from bertjax.examples.layout import Rows, ragged, starts
from bertjax.field_types import Count

_LENGTH = targets.FREE


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    whole_word: n-grams are of words, not of pieces.
    ngram: the longest, in words.
  """

  whole_word: bool = True
  ngram: Count = 3


def pmf(ngram: int) -> np.ndarray:
  """Returns the probability of 1, 2, .. ngram words, float64."""
  share_n = 1 / np.arange(1, ngram + 1)
  return share_n / share_n.sum()


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`."""
  limit = targets.slots(options, rows.shape[1])
  candidate_n = targets.not_special(rows, store)
  words = targets.tokens_or_words(rows, options.whole_word, store, candidate_n)
  candidates_E = targets.count(words.example_n, words.size_n, len(rows.row_E))
  asked_E = np.minimum(targets.bert_count(rows, options.rate), candidates_E)
  room_E = targets.share(asked_E, rows.row_E, limit)

  lead_n = candidate_n[words.first_n]
  u_n = counter_rng.uniform(targets.at_tokens(rows, _LENGTH, lead_n))
  until = np.cumsum(pmf(options.ngram))[:-1]
  length_n = 1 + np.searchsorted(until, u_n, 'right')
  order_n = targets.shuffle(rows, words, candidate_n)
  taken_n = np.flatnonzero(_cover(words, order_n, length_n, room_E))
  index_n, _ = targets.tokens_of(words, taken_n, candidate_n)
  return targets.decided(rows, options, limit, store, index_n, asked_E - room_E)


def _cover(words, order_n, length_n, room_E):
  """Returns which words are chosen: one n-gram of length_n words is tried per iteration and
  example."""
  words_E = targets.count(words.example_n, 1, len(room_E))
  try_E, stop_E = starts(words_E), np.cumsum(words_E)
  token_n = np.append(words.first_n, words.first_n[-1:] + words.size_n[-1:])
  covered_n = np.zeros(len(length_n), bool)
  left_E, open_E = room_E.copy(), np.flatnonzero((room_E > 0) & (words_E > 0))
  while open_E.size:
    word_E = order_n[try_E[open_E]]
    length_E = np.minimum(length_n[word_E], stop_E[open_E] - word_E)
    for _ in range(length_E.max() - 1):
      length_E -= (token_n[word_E + length_E] - token_n[word_E] > left_E[open_E]) & (length_E > 1)
    size_E = token_n[word_E + length_E] - token_n[word_E]
    owner_n, offset_n = ragged(length_E)
    member_n = word_E[owner_n] + offset_n
    clash_E = np.bincount(owner_n, covered_n[member_n], len(open_E)) > 0
    taken_E = ~clash_E & (size_E <= left_E[open_E])
    covered_n[member_n[taken_E[owner_n]]] = True
    left_E[open_E] -= size_E * taken_E
    try_E[open_E] += 1
    open_E = open_E[(left_E[open_E] > 0) & (try_E[open_E] < stop_E[open_E])]
  return covered_n


MASKING = Masking(Options, ('pad', 'cls', 'sep', 'mask'), targets.check, corrupt)
