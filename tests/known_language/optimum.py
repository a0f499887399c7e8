"""The least losses that any model can have on rows of a known language, in nats.

Each is a mean, over the targets of these very rows, of -log P(target | what a model sees of its
row), under the law that made the rows. No model has less but by luck with these rows, or by knowing
them by heart. With `alone` it is that of a model whose tokens see themselves and no other, but know
the language of their row: what is left to a run without attention, and less than that where there
are two languages and nothing says which (XLM-E).

Special tokens always stand where they stand: as targets they cost nothing.

All functions return term -> (total, weight), under the names that the objectives give their terms.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bertjax.types import Batch
from tests.known_language import inference
from tests.known_language.inference import Reading
from tests.known_language.language import SPECIAL, Language
from tests.known_language.readings import original

Readings = Callable[[np.ndarray, Batch], list[Reading]]
Sums = dict[str, tuple[float, float]]

_FIRST = len(SPECIAL)  # of the ids of words


class Rows(NamedTuple):
  """Rows of a known language, and what is known of them."""

  language: Language
  batches: Iterable[Batch]  # of the host, as the model gets them
  readings: Readings  # of the plan: (original ids [B, T], batch) -> how they may have come about
  mask: Mapping[str, Any] = {}  # `config.data.mask`
  size: int = 0  # of the vocabulary: random ids are uniform over it
  alone: bool = False  # see above

  @property
  def chain(self) -> inference.Chain:
    return inference.chain_of(self.language)


def masked(of: Rows, label: str = '') -> Sums:
  """mlm: of the words at the targets; and of the label of the examples, if it is named.

  Reading i has label i, and those beyond the last class are of the last class. Where the mask
  leaves targets visible or shows other words there, each token must have been chosen by a coin of
  its own: the number of targets would tell of the words that seem untouched.
  """
  language, chain, mask, sums = of.language, of.chain, of.mask, {}
  rate, random = mask['rate'], mask['random_share'] if 'random_share' in mask else 0.0
  kept, other = 1 - mask['mask_share'] - random, random / of.size
  for batch in of.batches:
    token_BT, shown_BT = original(batch), batch['token_BT']
    hidden_BT1 = (shown_BT == SPECIAL.index('[MASK]'))[..., None]
    channel = lambda same, other, ids=(token_BT, shown_BT), hidden=hidden_BT1: np.where(
      hidden, 1.0, _channel(language, ids[0], ids[1], same, other)
    )
    channel_BTW = channel(1 - rate + rate * kept, rate * other)
    own_BTW = channel(kept, other)  # of a target it is known that it was chosen
    rows, column_BP = np.arange(len(token_BT))[:, None], batch['target_pos_BP']
    ways = of.readings(token_BT, batch)
    read = _apart(ways) if of.alone else ways
    beliefs = inference.believe(chain, channel_BTW, read, column_BP, own_BTW[rows, column_BP])
    _add(sums, 'mlm', *_word_loss(language, beliefs.word_RPW, batch))
    if label:
      prior_RN = np.tile([way.prior for way in ways], (len(token_BT), 1))
      _add(sums, label, *_label_loss(prior_RN if of.alone else beliefs.reading_RN, batch, label))
  return sums


def diffused(of: Rows) -> Sums:
  """mlm: of masked diffusion's hidden words, by their weights, over all tokens. Coins tell nothing,
  whatever their share, and all that is not hidden is as it was."""
  return masked(of._replace(mask=dict(rate=0.5, mask_share=1.0)))


def detected(of: Rows) -> Sums:
  """rtd: which tokens are not the original ones, where a generator drew them uniformly. The
  replacements are drawn here anew, at the targets of the batch, each of which must have been chosen
  by a coin of its own."""
  language, sums, rng = of.language, {}, np.random.default_rng(0)
  chain, size, rate = of.chain, of.size, of.mask['rate']
  for batch in of.batches:
    token_BT = original(batch)
    fake_BT = token_BT.copy()
    row_n, slot_n = np.nonzero(batch['weight_BP'] > 0)
    fake_BT[row_n, batch['target_pos_BP'][row_n, slot_n]] = rng.integers(size, size=len(row_n))
    channel_BTW = _channel(language, token_BT, fake_BT, 1 - rate, rate / size)
    ways = of.readings(token_BT, batch)
    column_BT = np.tile(np.arange(token_BT.shape[1]), (len(token_BT), 1))
    read = _apart(ways) if of.alone else ways
    word_BTW = inference.believe(chain, channel_BTW, read, column_BT, channel_BTW).word_RPW
    same_BT = (word_BTW * _channel(language, token_BT, fake_BT, 1.0, 0.0)).sum(-1)
    share_BT = np.where(fake_BT == token_BT, same_BT, 1 - same_BT)
    real_BT = batch['example_BT'] > 0
    words_BT = real_BT & (token_BT >= _FIRST)
    _add(sums, 'rtd', -np.log(share_BT[words_BT]).sum(), real_BT.sum())
  return sums


def causal(of: Rows, term: str = 'mlm') -> Sums:
  """term: of each token of a row from those before it; of rows that are read in one way."""
  language, chain, sums = of.language, of.chain, {}
  for batch in of.batches:
    token_BT = np.array(batch['token_BT'])
    (way,) = of.readings(token_BT, batch)
    word_BTW = _ahead(chain, _channel(language, token_BT, token_BT, 1.0, 0.0), way, of.alone)
    next_BTW = np.roll(word_BTW, -1, 1)  # slot t is column t, its target the token after it
    _add(sums, term, *_word_loss(language, next_BTW, batch))
  return sums


def stream(of: Rows) -> Sums:
  """lm: of each token from all before it, where each row goes on in the next batch."""
  language, batches = of.language, list(of.batches)
  # The target of a column is the token after it; there are none behind the end of the text.
  token_BT = np.concatenate([batches[0]['token_BT'][:, :1], *(b['target_BP'] for b in batches)], 1)
  (way,) = of.readings(token_BT, {})
  word_BTW = _ahead(of.chain, _channel(language, token_BT, token_BT, 1.0, 0.0), way, of.alone)
  joined = {k: np.concatenate([b[k] for b in batches], 1) for k in ('target_BP', 'weight_BP')}
  return dict(lm=_word_loss(language, word_BTW[:, 1:], joined))


def both_ways(of: Rows) -> Sums:
  """forwards, backwards: `stream` of each text of ELMo. From its end a text is of the language
  whose words follow each other the other way round, since all words are equally frequent."""
  batches, language, found = list(of.batches), of.language, {}
  turned = language._replace(follow_WW=language.follow_WW.T)
  for name, own, token, letter in (
    ('forwards', language, 'token_BT', 'T'),
    ('backwards', turned, 'out_token_BU', 'U'),
  ):
    text = [
      dict(token_BT=b[token], target_BP=b[f'target_B{letter}'], weight_BP=b[f'weight_B{letter}'])
      for b in batches
    ]
    found[name] = stream(of._replace(language=own, batches=text))['lm']
  return found


def spans(of: Rows) -> Sums:
  """seq2seq: of the words of T5's spans, and of the places where they end, from the text between
  them and what is written. Every way to cut the hidden words into as many spans is as likely."""
  language, chain, sums = of.language, of.chain, {}
  for batch in of.batches:
    some_B = batch['weight_BU'].any(1)  # others fill the last batch up
    for token_T, target_U, weight_U in zip(
      *(batch[key][some_B] for key in ('token_BT', 'target_BU', 'weight_BU')), strict=True
    ):
      clean = _cut(language, token_T)[:-1]  # behind the last sentinel there is only the end
      _, *written = _cut(language, target_U * (weight_U > 0))
      loss = _spelt_loss(chain, written) if of.alone else _span_loss(chain, clean, written)
      _add(sums, 'seq2seq', loss, weight_U.sum())
  return sums


def permuted(of: Rows) -> Sums:
  """plm: of each target from what its permutation lets it see, in rows without memory."""
  language, chain, sums = of.language, of.chain, {}
  for batch in of.batches:
    token_BT, column_BP = np.array(batch['token_BT']), batch['target_pos_BP']
    slots = column_BP.shape[1]
    query_BP = np.take_along_axis(batch['order_q_BT'], column_BP, 1)
    seen_BPT = query_BP[:, :, None] > batch['order_k_BT'][:, None, :]
    channel_BTW = _channel(language, token_BT, token_BT, 1.0, 0.0)
    channel_BPTW = np.where(seen_BPT[..., None] & (not of.alone), channel_BTW[:, None], 1.0)
    ways = [
      Reading(way.prior, *(np.repeat(x, slots, 0) for x in (way.place_RC, way.restart_RT)))
      for way in of.readings(token_BT, batch)
    ]
    channel_RTW = channel_BPTW.reshape(-1, *channel_BTW.shape[1:])
    word_R1W = inference.believe(chain, channel_RTW, ways, column_BP.reshape(-1, 1)).word_RPW
    word_BPW = word_R1W.reshape(*column_BP.shape, -1)
    _add(sums, 'plm', *_word_loss(language, word_BPW, batch))
  return sums


def _channel(language, token_BT, shown_BT, same, other) -> np.ndarray:
  """P(what a column shows | its word) up to a factor: `same` where it shows it, and `other`."""
  words = language.words
  name_BT = np.maximum(token_BT - _FIRST, 0) // words
  same_BTW = shown_BT[..., None] == _FIRST + name_BT[..., None] * words + np.arange(words)
  return same * same_BTW + other


def _ahead(chain, channel_RTW, way: Reading, alone: bool) -> np.ndarray:
  """P(word of a column | the words before it), [R, T, W]."""
  restart_RT = way.restart_RT | alone
  before_RTK, _ = inference.forward(chain, inference.seen(chain, channel_RTW, way), restart_RT)
  rows = np.arange(len(before_RTK))[:, None]
  return before_RTK[rows, way.place_RC] @ chain.emit_KW


def _cut(language, id_n: np.ndarray) -> list[np.ndarray]:
  """The words between sentinels."""
  word_n = id_n[id_n >= _FIRST] - _FIRST
  parts = np.split(word_n, np.flatnonzero(word_n >= language.words))
  return [part[part < language.words] for part in parts]


def _span_loss(chain, clean: list[np.ndarray], written: list[np.ndarray]) -> float:
  """-log P(spans | the words before each), of one text."""
  left, loss, before_K = sum(map(len, written)), 0.0, chain.start_K
  # With h hidden words to come: P(the text behind a span, and its cuts | its last word's state),
  # and the same of a word behind which its span goes on.
  ends_SHK = np.zeros((len(written), left + 1, len(before_K)))
  on_SHK = np.zeros_like(ends_SHK)
  ends_SHK[-1, 0] = 1.0
  for span in reversed(range(len(written))):
    if span + 1 < len(written):
      ends_SHK[span] = on_SHK[span + 1]
      for word in clean[span + 1][::-1]:
        ends_SHK[span] = (chain.step_KK @ (ends_SHK[span] * chain.emit_KW[:, word]).T).T
    for h in range(left):
      on_SHK[span, h + 1] = chain.step_KK @ (ends_SHK[span, h] + on_SHK[span, h])
  for span, words in enumerate(written):
    for word in clean[span]:
      here_K = before_K * chain.emit_KW[:, word]
      before_K = here_K @ chain.step_KK / here_K.sum()
    for place, word in enumerate(words):
      ahead_K = before_K * (ends_SHK[span, left - 1] + on_SHK[span, left - 1])
      stop = here_K @ ends_SHK[span, left] / here_K.sum() if place else 0.0
      loss -= np.log(ahead_K @ chain.emit_KW[:, word] / (ahead_K.sum() + stop))
      here_K, left = before_K * chain.emit_KW[:, word], left - 1
      before_K = here_K @ chain.step_KK / here_K.sum()
    stop, on = (here_K @ x_SHK[span, left] for x_SHK in (ends_SHK, on_SHK))
    loss -= np.log(stop / (stop + on))
  return loss


def _spelt_loss(chain, written: list[np.ndarray]) -> float:
  """The same where the token before is all that is known."""
  hidden, loss = sum(map(len, written)), 0.0
  for words in written:
    loss += np.log(hidden) - np.log(chain.start_K @ chain.emit_KW[:, words[0]])
    for last, word in itertools.pairwise(words):
      here_K = chain.start_K * chain.emit_KW[:, last]
      share = (here_K @ chain.step_KK @ chain.emit_KW[:, word]) / here_K.sum()
      loss -= np.log(share * (1 - len(written) / hidden))
  return loss


def _word_loss(language, word_BPW, batch) -> tuple[float, float]:
  target_BP, weight_BP = batch['target_BP'], batch['weight_BP']
  word_BP = (target_BP - _FIRST) % language.words
  share_BP = np.take_along_axis(word_BPW, word_BP[..., None], 2)[..., 0]
  counted_BP = (weight_BP > 0) & (target_BP >= _FIRST)
  loss = -float((weight_BP * np.log(np.where(counted_BP, share_BP, 1.0))).sum())
  return loss, float(batch.get('divisor_B', weight_BP).sum())


def _label_loss(share_RN, batch, label) -> tuple[float, float]:
  class_B, used_B = batch[f'{label}_BG'][:, 0], batch['example_weight_BG'][:, 0] > 0
  mine_BN = np.minimum(np.arange(share_RN.shape[1]), 1) == class_B[:, None]
  return -np.log((share_RN * mine_BN).sum(1)[used_B]).sum(), used_B.sum()


def _apart(ways: list[Reading]) -> list[Reading]:
  """The reading in which no word tells anything of another one."""
  rows, columns = ways[0].place_RC.shape
  place_RC = np.where(ways[0].place_RC >= 0, np.arange(columns), -1)
  return [Reading(1.0, place_RC, np.ones((rows, columns), bool))]


def _add(sums: Sums, name: str, total: float, weight: float) -> None:
  before = sums.get(name, (0.0, 0.0))
  sums[name] = float(before[0] + total), float(before[1] + weight)
