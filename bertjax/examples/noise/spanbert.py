"""SpanBERT's masking: spans of words, and what the boundary objective predicts them from.

facebookresearch/SpanBERT, pretraining/fairseq/data/masking.py. The text is what lies between
special tokens, and ceil(rate * its tokens) of them are masked. By `config.data.mask.rule`:

  spans   Until the budget is used up: draw a length l of 1 to max_words words, P(l) ~ p (1-p)^(l-1)
          with p = geometric_p, and a token; draw both anew where that is masked. The span is
          the word of the token and the l-1 words after it, as far as the budget goes: the last word
          may be cut. Tokens that are masked already cost nothing. With probability entity_prob it
          is instead one of the text's phrases and entities, which the store's units mark, masked
          before or not (the original's NER scheme; its adjacent entities are one, ours are not).
  tokens  ceil(rate * tokens) of them without replacement, each decided by itself.

The arms of the paper's comparison are tokens; spans with max_words=1, whole words; those with
entity_prob=.5 besides; and spans. Overlapping and adjacent spans merge. Each merged span is decided
as a whole: mask_share show [MASK], random_share a token of the corpus each, drawn as often as the
corpus has it, the others stay; all are targets.

A merged span with a neighbour in the text on both sides is also predicted from these two, by the
offset in the span; offsets from max_pair_targets on are not.
"""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking
from bertjax.errors import UserError
from bertjax.examples import targets
from bertjax.examples.layout import Rows, begins, number_within, ragged, starts, units
from bertjax.field_types import Count, Fraction, OpenShare

_TURNS = 8  # drawn at once
_LENGTH, _ANCHOR, _COIN, _ENTITY = range(targets.FREE, targets.FREE + 4)


@dataclasses.dataclass(frozen=True)
class Options(targets.MaskOptions):
  """Fields of `config.data.mask` besides those of `MaskOptions`.

  Attributes:
    rule: 'spans' of words, or single 'tokens'.
    max_words: of a span; this, geometric_p and max_pair_targets are those of its README's command.
    geometric_p: of the length of a span in words.
    entity_prob: chance of a turn to take a phrase or entity of the text.
    max_pair_targets: offsets in a span from this on are not predicted from its boundary.
  """

  rule: Literal['spans', 'tokens'] = 'spans'
  max_words: Count = 10
  geometric_p: OpenShare = 0.2
  entity_prob: Fraction = 0.0
  max_pair_targets: Count = 15


class _Texts(NamedTuple):
  """The texts S of a batch: runs of candidates c without a special token in between."""

  candidate_c: np.ndarray  # index of the token
  first_S: np.ndarray  # of its candidates
  size_S: np.ndarray
  example_S: np.ndarray
  text_c: np.ndarray


def _check(options: Options, store, length: int) -> None:
  targets.check(options, store, length)
  if options.never_drawn:
    raise UserError(
      'config.data.mask.never_drawn: random replacements of spanbert are as frequent as in the '
      f'text, special tokens too: expected (), got {options.never_drawn}'
    )
  if options.random_share and not store.counts.any():
    raise UserError(
      f'{store.path} does not know how often each id occurs, which random replacements follow: '
      'read a prepared store, or set config.data.mask.random_share=0'
    )


def pmf(max_words: int, p: float) -> np.ndarray:
  """Returns the probability of 1, 2, .. max_words words, float64."""
  share_l = (1 - p) ** np.arange(max_words)
  return share_l / share_l.sum()


def corrupt(rows: Rows, options: Options, store) -> dict[str, np.ndarray]:
  """Masks a batch; see `Masking.corrupt`. Each slot has left_BP and right_BP, int32 columns of the
  tokens around its span, offset_BP int32, its place in it, and pair_weight_BP float32, 1 where it
  is predicted from them."""
  limit = targets.slots(options, rows.shape[1])
  texts = _texts(rows, store)
  asked_S = np.ceil(options.rate * texts.size_S).astype(np.int64)
  room_S = targets.share(asked_S, rows.row_E[texts.example_S], limit)
  if options.rule == 'tokens':
    chosen_c = _choose_tokens(rows, texts, room_S)
  else:
    chosen_c = _choose_spans(rows, options, store, texts, room_S)
  at_n = np.flatnonzero(chosen_c)
  index_n, text_n = texts.candidate_c[at_n], texts.text_c[at_n]

  begin_m = np.flatnonzero(begins(at_n, text_n))
  size_m = np.diff(np.append(begin_m, len(at_n)))
  span_n, offset_n = ragged(size_m)
  first_n, last_n = at_n[begin_m][span_n], (at_n[begin_m] + size_m - 1)[span_n]
  start_n = texts.first_S[text_n]
  paired_n = (first_n > start_n) & (last_n < start_n + texts.size_S[text_n] - 1)
  paired_n &= (offset_n < options.max_pair_targets) & (options.rule == 'spans')
  column = lambda at_n: rows.cell_n[texts.candidate_c[np.where(paired_n, at_n, 0)]] % rows.shape[1]

  decide_n = texts.candidate_c[first_n] if options.rule == 'spans' else index_n
  until_V = np.cumsum(store.counts)  # a random id is that of any token of the corpus
  u_n = counter_rng.uniform(targets.at_tokens(rows, targets.ID, index_n))
  random_id_n = np.searchsorted(until_V, np.floor(u_n * until_V[-1]), 'right')
  shown = targets.show(rows, options, store, index_n, decide_n, random_id_n)
  return targets.emit(
    rows, limit, store, index_n, shown,
    np.bincount(texts.example_S, asked_S - room_S, len(rows.row_E)),
    left=(column(first_n - 1) * paired_n).astype(np.int32),
    right=(column(last_n + 1) * paired_n).astype(np.int32),
    offset=(offset_n * paired_n).astype(np.int32),
    pair_weight=paired_n.astype(np.float32),
  )  # fmt: skip


def _texts(rows, store) -> _Texts:
  candidate_c = targets.not_special(rows, store)
  example_c = rows.example_n[candidate_c]
  begins_c = begins(candidate_c, example_c)
  first_S = np.flatnonzero(begins_c)
  size_S = np.diff(np.append(first_S, len(candidate_c)))
  return _Texts(candidate_c, first_S, size_S, example_c[first_S], np.cumsum(begins_c) - 1)


def _words(rows, store, texts):
  """Returns the word of each candidate, the first candidate of each word w and one more, and the
  word after the last one of each text."""
  begins_c = store.word_starts[rows.token_n[texts.candidate_c]]
  begins_c[texts.first_S] = True
  until_c = np.cumsum(begins_c)
  first_w = np.append(np.flatnonzero(begins_c), len(begins_c))
  return until_c - 1, first_w, until_c[texts.first_S + texts.size_S - 1]


def _choose_tokens(rows, texts, room_S):
  """Returns bool [c]: room_S tokens of each text."""
  # Shuffled within their example; then those of each text in that order.
  order_c = targets.shuffle(rows, targets.single(rows, texts.candidate_c), texts.candidate_c)
  order_c = order_c[np.argsort(texts.text_c[order_c], kind='stable')]
  rank_c = np.arange(len(order_c)) - texts.first_S[texts.text_c]
  chosen_c = np.zeros(len(order_c), bool)
  chosen_c[order_c[rank_c < room_S[texts.text_c]]] = True
  return chosen_c


def _entities(rows, store, texts):
  """Returns the first candidate and the size of each phrase and entity e, and their number in each
  text."""
  unit_c = units(rows, store)[texts.candidate_c]
  ends_c = unit_c > 0
  ends_c[texts.first_S] = True
  stop_c = np.append(np.flatnonzero(ends_c), len(unit_c))
  begin_e = np.flatnonzero(unit_c == 2)
  size_e = stop_c[np.searchsorted(stop_c, begin_e, 'right')] - begin_e
  return begin_e, size_e, targets.count(texts.text_c[begin_e], 1, len(texts.first_S))


def _choose_spans(rows, options, store, texts, room_S):
  """Returns bool [c]: one span per turn and text, until all have used up their room."""
  propose = _proposals(rows, options, store, texts)
  chosen_c = np.zeros(len(texts.candidate_c), bool)
  left_S, open_S, turn = room_S.copy(), np.flatnonzero(room_S > 0), 0
  while open_S.size:
    anchor_JS, begin_JS, size_JS = propose(open_S, np.arange(turn, turn + _TURNS)[:, None])
    for anchor_S, begin_S, size_S in zip(anchor_JS, begin_JS, size_JS, strict=True):
      hit_S = (anchor_S < 0) | ~chosen_c[anchor_S]
      hit_S &= left_S[open_S] > 0
      _mask(chosen_c, left_S, open_S[hit_S], begin_S[hit_S], size_S[hit_S])
    open_S, turn = open_S[left_S[open_S] > 0], turn + _TURNS
  return chosen_c


def _proposals(rows, options, store, texts):
  """Returns (open_S, turn_J1) -> anchor_JS, begin_JS, size_JS: the spans drawn in these turns. The
  anchor is the candidate that must not be masked yet, or -1 for an entity."""
  of_c, first_w, stop_S = _words(rows, store, texts)
  if options.entity_prob:
    begin_e, size_e, count_S = _entities(rows, store, texts)
    first_S = starts(count_S)
  until = np.cumsum(pmf(options.max_words, options.geometric_p))[:-1]
  position_S = rows.position_n[texts.candidate_c[texts.first_S]]
  sites = (_LENGTH, _ANCHOR, _COIN, _ENTITY)
  key_S = {site: targets.bits(rows, site, texts.example_S, position_S) for site in sites}

  def propose(open_S, turn_J1):
    bits_JS = lambda site: counter_rng.fold(key_S[site][open_S], turn_J1)
    anchor_JS = texts.first_S[open_S] + counter_rng.below(bits_JS(_ANCHOR), texts.size_S[open_S])
    word_JS = of_c[anchor_JS]
    begin_JS = first_w[word_JS]
    last_JS = word_JS + 1
    if options.max_words > 1:
      last_JS += np.searchsorted(until, counter_rng.uniform(bits_JS(_LENGTH)), 'right')
    size_JS = first_w[np.minimum(last_JS, stop_S[open_S])] - begin_JS
    if options.entity_prob:
      known_S = count_S[open_S]
      entity_JS = (counter_rng.uniform(bits_JS(_COIN)) < options.entity_prob) & (known_S > 0)
      drawn_JS = counter_rng.below(bits_JS(_ENTITY), np.maximum(known_S, 1))
      pick_JS = first_S[open_S] + drawn_JS
      pick_n = pick_JS[entity_JS]
      begin_JS[entity_JS], size_JS[entity_JS] = begin_e[pick_n], size_e[pick_n]
      anchor_JS[entity_JS] = -1
    return anchor_JS, begin_JS, size_JS

  return propose


def _mask(chosen_c, left_S, hit_S, begin_S, size_S):
  """Chooses the ranges (begin, size) of the texts hit_S, one each, as far as their room goes."""
  owner_n, offset_n = ragged(size_S)
  at_n = begin_S[owner_n] + offset_n
  new_n = np.flatnonzero(~chosen_c[at_n])
  owner_n, at_n = owner_n[new_n], at_n[new_n]
  taken_n = number_within(owner_n) < left_S[hit_S[owner_n]]
  chosen_c[at_n[taken_n]] = True
  left_S[hit_S] -= np.bincount(owner_n[taken_n], minlength=len(hit_S))


MASKING = Masking(
  Options,
  ('pad', 'cls', 'sep', 'mask'),
  _check,
  corrupt,
  units=lambda options: options.entity_prob > 0,
  targets=('hidden', 'spans'),
)
