"""The least losses of a known language, against sums over all texts there are."""

import itertools

import numpy as np
import pytest
from mutation import mutation

from tests.known_language import language as known_language
from tests.known_language import optimum, readings
from tests.known_language.language import SPECIAL

PAD, _, CLS, SEP, MASK, _ = range(len(SPECIAL))
FIRST, WORDS = len(SPECIAL), 3
IDS = FIRST + 3 * WORDS  # under three names
LANGUAGES = {
  f'lag{lag} noise{noise}': known_language.make(
    themes=1, words=WORDS, shares=(0.7, 0.3), lag=lag, noise=noise, seed=3
  )
  for lag, noise in ((1, 0.2), (2, 0.0), (2, 0.2))
}


def chance(language, text):
  """P(text), summed over all chains of words that may stand behind it."""
  total = 0.0
  for chain in itertools.product(range(WORDS), repeat=len(text)):
    p = 1.0
    for t, word in enumerate(chain):
      p *= 1 / WORDS if t < language.lag else language.follow_WW[chain[t - language.lag], word]
    for word, spoken in zip(chain, text, strict=True):
      p *= (1 - language.noise) * (word == spoken) + language.noise / WORDS
    total += p
  return total


def every_text(language, length):
  """All texts of so many words, with their chances."""
  texts = list(itertools.product(range(WORDS), repeat=length))
  return [(text, chance(language, text)) for text in texts]


def drawn(language, rows, length, seed=0):
  return known_language.sample(language, rows, length, np.random.default_rng(seed))


def laid_out(*parts, name=0):
  """Rows [CLS] part [SEP] part [SEP] .., with types 0, 1, .. of the parts."""
  rows = len(parts[0])
  ids = lambda part: FIRST + name * WORDS + part
  special = lambda token: np.full((rows, 1), token)
  columns = [special(CLS)]
  for part in parts:
    columns += [ids(part), special(SEP)]
  types = [0, *(i for i, part in enumerate(parts) for _ in range(part.shape[1] + 1))]
  token_BT = np.concatenate(columns, 1)
  return token_BT, np.tile(types, (rows, 1))


def hidden(token_BT, type_BT, column_n, shown=MASK, **more):
  """A batch whose targets are the same columns in each row."""
  rows = len(token_BT)
  column_BP = np.tile(column_n, (rows, 1))
  shown_BT = token_BT.copy()
  shown_BT[:, column_n] = shown
  return dict(
    token_BT=shown_BT, type_BT=type_BT, example_BT=np.ones_like(token_BT),
    target_pos_BP=column_BP, target_BP=token_BT[:, column_n],
    weight_BP=np.ones(column_BP.shape, np.float32),
    example_weight_BG=np.ones((rows, 1), np.float32), **more,
  )  # fmt: skip


def rows_of(language, read, *batches, **mask):
  return optimum.Rows(language, batches, read, mask, IDS)


def mean(sums, name):
  total, weight = sums[name]
  return total / weight


ALL_HIDDEN = dict(rate=0.15, mask_share=1.0, random_share=0.0)


@pytest.mark.parametrize('name', LANGUAGES)
@mutation(
  '    belief_RTK[:, t] *= after_RK\n',
  '',
  file='tests/known_language/inference.py',
  case='lag2 noise0.0',
)
def test_hidden_words_and_pairs(name):
  language = LANGUAGES[name]
  a_BT, b_BT = np.split(drawn(language, 6, 4), 2, axis=1)
  b_BT[3:] = drawn(language, 3, 2, seed=1)
  token_BT, type_BT = laid_out(a_BT, b_BT)
  label_B1 = np.array([[0]] * 3 + [[1]] * 3)
  batch = hidden(token_BT, type_BT, [2, 4], next_BG=label_B1)  # the words a1 and b0
  rows = rows_of(language, readings.next_pairs, batch, **ALL_HIDDEN)
  found = optimum.masked(rows, 'next')

  pairs = [
    (text, share / 3 * chance(language, text) if kind == 0
     else share / 3 * chance(language, text[:2]) * chance(language, text[2:]), kind)
    for text in itertools.product(range(WORDS), repeat=4)
    for kind, share in ((0, 1), (1, 2))
  ]  # fmt: skip
  words, labels = [], []
  for a, b, label in zip(a_BT, b_BT, label_B1[:, 0], strict=True):
    seen = [(text, p, kind) for text, p, kind in pairs if text[0] == a[0] and text[3] == b[1]]
    whole = sum(p for _, p, _ in seen)
    words += [sum(p for text, p, _ in seen if text[1] == a[1]) / whole]
    words += [sum(p for text, p, _ in seen if text[2] == b[0]) / whole]
    labels += [sum(p for _, p, kind in seen if kind == label) / whole]
  assert mean(found, 'mlm') == pytest.approx(-np.log(words).mean(), rel=1e-9)
  assert mean(found, 'next') == pytest.approx(-np.log(labels).mean(), rel=1e-9)
  alone = optimum.masked(rows._replace(alone=True), 'next')
  assert mean(alone, 'mlm') == pytest.approx(np.log(WORDS))
  assert mean(alone, 'next') == pytest.approx(-(np.log(1 / 3) + np.log(2 / 3)) / 2)


@mutation('place_BT + second_B1)', 'place_BT)', file='tests/known_language/readings.py')
def test_the_order_of_two_sentences():
  language = LANGUAGES['lag2 noise0.2']
  text_BT = drawn(language, 8, 5)
  a_BT, b_BT = text_BT[:, :2], text_BT[:, 2:]
  token_BT, type_BT = laid_out(b_BT, a_BT)
  batch = hidden(token_BT, type_BT, [2], order_BG=np.ones((8, 1), int))
  rows = rows_of(language, readings.ordered_pairs, batch, **ALL_HIDDEN)
  found = optimum.masked(rows, 'order')
  shares = []
  for first, second in zip(b_BT, a_BT, strict=True):
    ways = []
    for there in range(WORDS):
      shown = (first[0], there, first[2])
      ways.append([chance(language, (*shown, *second)), chance(language, (*second, *shown))])
    shares.append(np.sum(ways, 0)[1] / np.sum(ways))
  assert mean(found, 'order') == pytest.approx(-np.log(shares).mean(), rel=1e-9)


@pytest.mark.parametrize('name', LANGUAGES)
@mutation(
  'own_BTW = channel(kept, other)',
  'own_BTW = channel(1.0, other)',
  file='tests/known_language/optimum.py',
  case='lag2 noise0.0',
)
def test_words_that_coins_corrupt(name):
  language, rate, mask = LANGUAGES[name], 0.4, dict(rate=0.4, mask_share=0.5, random_share=0.3)
  text_BT = drawn(language, 5, 4)
  token_BT, type_BT = laid_out(text_BT)
  shown_BP = np.stack([np.full(5, MASK), FIRST + (text_BT[:, 2] + np.arange(5)) % WORDS], 1)
  batch = hidden(token_BT, type_BT, [1, 3], shown=shown_BP)
  batch['token_BT'][0, 3] = FIRST + 2 * WORDS  # a word under another name: certainly random
  found = optimum.masked(rows_of(language, readings.one_text, batch, **mask))

  def shows(shown, word, chosen):
    """P(shown, and chosen or not | word)."""
    random = rate * 0.3 / IDS
    as_target = rate * 0.5 * (shown == MASK) + rate * 0.2 * (shown == FIRST + word) + random
    return as_target + (not chosen) * (1 - rate) * (shown == FIRST + word)

  shares, texts = [], every_text(language, 4)
  for text, shown in zip(text_BT, batch['token_BT'][:, 1:5], strict=True):
    for place in (0, 2):
      ways = [
        (other, p * np.prod([shows(shown[t], other[t], t == place) for t in range(4)]))
        for other, p in texts
      ]
      right = sum(p for other, p in ways if other[place] == text[place])
      shares.append(right / sum(p for _, p in ways))
  assert mean(found, 'mlm') == pytest.approx(-np.log(shares).mean(), rel=1e-9)


def test_replaced_words():
  language, rate = LANGUAGES['lag2 noise0.2'], 0.3
  text_BT = drawn(language, 7, 4)
  token_BT, type_BT = laid_out(text_BT)
  batch = hidden(token_BT, type_BT, [1, 4])
  found = optimum.detected(rows_of(language, readings.one_text, batch, rate=rate))
  fake_BT = text_BT.copy() + FIRST
  fake_BP = np.random.default_rng(0).integers(IDS, size=14).reshape(7, 2)
  fake_BT[:, [0, 3]] = fake_BP
  shares = []
  for text, fake in zip(text_BT + FIRST, fake_BT, strict=True):
    show = lambda shown, word: (1 - rate) * (shown == FIRST + word) + rate / IDS
    ways = [
      (other, p * np.prod([show(fake[t], other[t]) for t in range(4)]))
      for other, p in every_text(language, 4)
    ]
    for place in range(4):
      same = sum(p for other, p in ways if FIRST + other[place] == fake[place])
      share = same / sum(p for _, p in ways)
      shares.append(share if fake[place] == text[place] else 1 - share)
  expected = -np.log(shares).sum() / (7 * 6)  # [CLS] and [SEP] are tokens that cost nothing
  assert mean(found, 'rtd') == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize('name', LANGUAGES)
def test_a_row_and_a_stream_from_left_to_right(name):
  language = LANGUAGES[name]
  text_BT = drawn(language, 4, 5)
  starts = lambda text, n: chance(language, text[:n])
  expected = [
    -np.log(starts(text, n) / starts(text, n - 1) if n > 1 else starts(text, 1))
    for text in text_BT for n in range(1, 6)
  ]  # fmt: skip
  token_BT, _ = laid_out(text_BT)
  row = dict(
    token_BT=token_BT, target_BP=np.roll(token_BT, -1, 1),
    weight_BP=np.tile([1.0] * 6 + [0.0], (4, 1)),
  )  # fmt: skip
  found = optimum.causal(rows_of(language, readings.one_text, row))
  assert mean(found, 'mlm') == pytest.approx(np.sum(expected) / (4 * 6), rel=1e-9)

  ids_BT, pad_B2 = FIRST + text_BT, np.zeros((4, 2), int)  # the last batch is not full
  token_BT, target_BT = (np.concatenate([x, pad_B2], 1) for x in (ids_BT[:, :-1], ids_BT[:, 1:]))
  weight_BT = (target_BT > 0).astype(float)
  halves = [
    dict(token_BT=token_BT[:, at], target_BP=target_BT[:, at], weight_BP=weight_BT[:, at])
    for at in (slice(0, 3), slice(3, 6))
  ]
  found = optimum.stream(rows_of(language, readings.one_text, *halves))
  first = np.log(WORDS) * 4  # is no target
  assert mean(found, 'lm') == pytest.approx((np.sum(expected) - first) / (4 * 4), rel=1e-9)


@mutation('[:, None, :]', '[:, None, :] - 99', file='tests/known_language/optimum.py')
def test_permuted_words():
  language = LANGUAGES['lag2 noise0.2']
  text_BT = drawn(language, 6, 5)
  token_BT, type_BT = laid_out(text_BT[:, :3], text_BT[:, 3:])
  batch = hidden(token_BT, type_BT, [1, 3, 5])
  batch['token_BT'] = token_BT
  order_BT = np.tile([-1, 1, -1, 2, -1, 0, -1, -1], (6, 1))  # of targets; the others come first
  batch |= dict(order_q_BT=np.where(order_BT < 0, 0, order_BT), order_k_BT=order_BT)
  found = optimum.permuted(rows_of(language, readings.even_followers, batch))
  places, shares = [0, 2, 3], []
  ways = [
    (text, chance(language, text) / 2 + chance(language, text[:3]) * chance(language, text[3:]) / 2)
    for text in itertools.product(range(WORDS), repeat=5)
  ]
  for text in text_BT:
    for place, earlier in ((0, [3]), (2, [0, 3]), (3, [])):
      seen = [t for t in range(5) if t not in places or t in earlier]
      like = [(other, p) for other, p in ways if all(other[t] == text[t] for t in seen)]
      shares.append(sum(p for o, p in like if o[place] == text[place]) / sum(p for _, p in like))
  assert mean(found, 'plm') == pytest.approx(-np.log(shares).mean(), rel=1e-9)


def test_a_translation_tells_the_word():
  language = LANGUAGES['lag2 noise0.0']
  text_BT = drawn(language, 6, 3)
  token_BT, _ = laid_out(text_BT, text_BT)
  token_BT[:, 5:8] += 2 * WORDS
  language_BT = np.tile([0] * 5 + [1] * 4, (6, 1))
  batch = hidden(token_BT, None, [1, 2, 6], language_BT=language_BT)
  found = optimum.masked(rows_of(language, readings.translations, batch, **ALL_HIDDEN))
  both_hidden = []  # the middle word, on both sides
  for text in text_BT:
    ways = [chance(language, (text[0], middle, text[2])) for middle in range(WORDS)]
    both_hidden.append(ways[text[1]] / sum(ways))
  assert mean(found, 'mlm') == pytest.approx(-2 * np.log(both_hidden).sum() / 18, rel=1e-9)


def test_a_reply_of_another_dialogue():
  language = LANGUAGES['lag1 noise0.2']
  turn_BS = [drawn(language, 6, 1, seed) for seed in range(3)]
  token_BT, _ = laid_out(*turn_BS)
  label_B1 = np.arange(6)[:, None] % 2
  batch = hidden(token_BT, None, [1], fake_BG=label_B1)
  batch['token_BT'] = token_BT
  mask = dict(rate=0.5, mask_share=0.0, random_share=0.0)
  found = optimum.masked(rows_of(language, readings.dialogues, batch, **mask), 'fake')
  shares = []
  for text, label in zip(np.concatenate(turn_BS, 1), label_B1[:, 0], strict=True):
    second = [chance(language, (text[0], middle, text[2])) for middle in range(WORDS)]
    fake = sum(second) / WORDS + chance(language, text[:2]) / WORDS
    real = chance(language, text)
    shares.append([real, fake / 2][label] / (real + fake / 2))
  assert mean(found, 'fake') == pytest.approx(-np.log(shares).mean(), rel=1e-9)


def two_texts(text, sizes):
  """What T5 reads and writes of a text that is cut into clean and hidden runs in turn."""
  reads, writes, at = [], [], 0
  for number, size in enumerate(sizes):
    part = [FIRST + word for word in text[at : at + size]]
    sentinel = [FIRST + WORDS + number // 2] if number % 2 else []
    reads += sentinel or part
    writes += [*sentinel, *part] if sentinel else []
    at += size
  return (*reads, 3), (*writes, 3)


@pytest.mark.parametrize('name', LANGUAGES)
@mutation('sum() + stop', 'sum()', file='tests/known_language/optimum.py', case='lag1 noise0.2')
def test_spans_and_their_ends(name):
  language, cuts = LANGUAGES[name], [(1, 1, 1, 2), (1, 2, 1, 1)]
  ways = [(two_texts(text, cut), p) for text, p in every_text(language, 5) if p for cut in cuts]
  rows, shares = [two_texts(text, cut) for text in drawn(language, 6, 5) for cut in cuts], []
  for reads, writes in rows:
    like = [(other[1], p) for other, p in ways if other[0] == reads]
    for n in range(len(writes)):
      before, now = (sum(p for w, p in like if w[:m] == writes[:m]) for m in (n, n + 1))
      shares.append(now / before)
  token_BT, target_BU = (np.array(x) for x in zip(*rows, strict=True))
  weight_BU = np.ones(target_BU.shape)
  batch = dict(token_BT=token_BT, target_BU=target_BU, weight_BU=weight_BU)
  found = optimum.spans(rows_of(language, readings.one_text, batch))
  assert mean(found, 'seq2seq') == pytest.approx(-np.log(shares).mean(), rel=1e-9)


@mutation(
  '(weight_BP * np.log(',
  '(1.0 * np.log(',
  file='tests/known_language/optimum.py',
  case='lag2 noise0.0',
)
@pytest.mark.parametrize('name', LANGUAGES)
def test_the_least_loss_of_masked_diffusion_is_the_likelihood_of_a_text(name):
  """Over all sets of hidden words, each k of L as often and weighed L / k: the chain rule in every
  order of reading."""
  language = LANGUAGES[name]
  text_BT = drawn(language, 1, 4)
  token_BT, type_BT = laid_out(text_BT)
  total = 0.0
  for count in range(1, 5):
    sets = list(itertools.combinations(range(1, 5), count))
    for columns in sets:
      batch = hidden(token_BT, type_BT, list(columns), divisor_B=np.float32([4.0]))
      batch['weight_BP'] = batch['weight_BP'] * 4 / count
      found = optimum.diffused(rows_of(language, readings.one_text, batch))
      total += mean(found, 'mlm') / len(sets) / 4
  assert 4 * total == pytest.approx(-np.log(chance(language, text_BT[0])), rel=1e-6)
