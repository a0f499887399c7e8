"""Text of a language whose best possible losses can be computed.

Each word follows from the word `lag` places before it, and from nothing else: it keeps to that
word's theme or goes on to the next one, so that the order of two sentences shows. `noise` replaces
words by any others, so that the chain itself is hidden. Every word is as frequent as every other:
without its context nothing is known of a word, and the loss is log(words). The chain runs through
the sentences of a document, which are equally long, and begins anew with the next document.
`optimum.py` computes the losses, and `python -m tests.known_language` compares what runs reach with
them.

What `write` makes, each in DIR/NAME and, drawn anew, in DIR/heldout/NAME:

  documents.txt    documents of two sentences, a line each
  stream.txt       one document
  en.txt, fr.txt   documents in two languages, which are one language under two names for its words
  both.en.txt, both.fr.txt   aligned lines: the same words under both names
  dialogues.jsonl  documents of three turns; each says with its words' names who speaks

and for each of the kinds in NAMES, KIND/vocab.txt: special tokens, and the words under each name;
of `spans`, whose text is the stream, sentinels too.
"""

import json
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '<eod>')
# Kind of text -> how its words are called: 'w7', 'en7', ..
NAMES = dict(
  documents=('w',), stream=('w',), spans=('w',), languages=('en', 'fr'), dialogues=('asks', 'says')
)
SENTINELS = tuple(f'<extra_id_{i}>' for i in range(8))  # of spans, behind the words
SENTENCE = 8  # words
TURNS = 3


class Language(NamedTuple):
  """A chain of words."""

  # float64, P(column | row): the word that comes `lag` places after that of the row. Rows and
  # columns sum to 1, so that all words are equally frequent.
  follow_WW: np.ndarray
  lag: int  # 1 (a Markov chain) or 2 (two of them, in turn: the pair of the last words is hidden)
  noise: float  # chance of a word to be replaced by any word, each alike

  @property
  def words(self) -> int:
    """How many there are."""
    return len(self.follow_WW)


def make(
  themes: int = 8,
  words: int = 3,
  shares: tuple[float, ...] = (0.9, 0.1),
  drift: float = 0.3,
  lag: int = 2,
  noise: float = 0.0,
  seed: int = 0,
) -> Language:
  """Draws a language.

  Args:
    themes: in a circle.
    words: of each theme, in a circle too.
    shares: of the first, second, .. word after it, which a word leads to;
    drift: chance that these are of the next theme, not of its own.
    lag, noise: see `Language`.
    seed: of the words' numbers.
  """
  number_TW = np.random.default_rng(seed).permutation(themes * words).reshape(themes, words)
  follow_WW = np.zeros((themes * words, themes * words))
  for further, chance in ((0, 1 - drift), (1, drift)):
    theme_TW = np.roll(number_TW, -further, 0)
    for step, share in enumerate(shares, 1):
      follow_WW[number_TW, np.roll(theme_TW, -step, 1)] += chance * share
  return Language(follow_WW, lag, noise)


def sample(language: Language, texts: int, length: int, rng: np.random.Generator) -> np.ndarray:
  """Draws words, int64 [texts, length]."""
  words, chain_NT = language.words, np.zeros((texts, length), np.int64)
  until_WW = np.cumsum(language.follow_WW, 1)
  for t in range(length):
    if t < language.lag:
      chain_NT[:, t] = rng.integers(words, size=texts)
    else:
      until_NW = until_WW[chain_NT[:, t - language.lag]]
      drawn_N = (rng.random((texts, 1)) > until_NW).sum(1)
      chain_NT[:, t] = np.minimum(drawn_N, words - 1)
  other_NT = rng.integers(words, size=chain_NT.shape)
  return np.where(rng.random(chain_NT.shape) < language.noise, other_NT, chain_NT)


def in_twos(text: str) -> list[tuple[int, int]]:
  """A segmenter (`prepare --segmenter`): each two words of a text are a unit, whatever they say."""
  place_n = [0, *(i + 1 for i, letter in enumerate(text) if letter == ' '), len(text) + 1]
  return [(begin, end - 1) for begin, end in zip(place_n[:-2:2], place_n[2::2], strict=False)]


def write(folder: pathlib.Path, language: Language, documents: int, held_out: int = 1000) -> None:
  """Writes the vocabularies and all kinds of text.

  Args:
    folder: made if need be.
    language: to be spoken.
    documents: of each kind of text; the stream has as many words.
    held_out: documents of each kind in `folder`/heldout.
  """
  (folder / 'heldout').mkdir(parents=True, exist_ok=True)
  for kind, names in NAMES.items():
    words = [f'{name}{number}' for name in names for number in range(language.words)]
    (folder / kind).mkdir(exist_ok=True)
    _save(folder / kind / 'vocab.txt', [*SPECIAL, *words, *(SENTINELS if kind == 'spans' else ())])
  for path, number, seed in ((folder, documents, 1), (folder / 'heldout', held_out, 2)):
    rng = np.random.default_rng(seed)
    draw = lambda texts, length, rng=rng: sample(language, texts, length, rng)
    _save(path / 'documents.txt', _lines(draw(number, 2 * SENTENCE), 'w', between=''))
    _save(path / 'stream.txt', _lines(draw(1, 2 * SENTENCE * number), 'w'))
    for name in ('en', 'fr'):
      _save(path / f'{name}.txt', _lines(draw(number, 2 * SENTENCE), name, between=''))
    pair_NT = draw(number, SENTENCE)
    for name in ('en', 'fr'):
      _save(path / f'both.{name}.txt', _lines(pair_NT, name))
    role_NS = rng.integers(2, size=(number, TURNS))
    _save(path / 'dialogues.jsonl', _dialogues(draw(number, TURNS * SENTENCE), role_NS))


def _spell(word_n: np.ndarray, name: str) -> str:
  return ' '.join(f'{name}{word}' for word in word_n)


def _lines(word_NT: np.ndarray, name: str, between: str | None = None) -> Iterable[str]:
  """A line for each sentence; `between` is a line behind each document."""
  for word_T in word_NT:
    for sentence in word_T.reshape(-1, SENTENCE):
      yield _spell(sentence, name)
    if between is not None:
      yield between


def _dialogues(word_NT: np.ndarray, role_NS: np.ndarray) -> Iterable[str]:
  for word_T, role_S in zip(word_NT, role_NS.tolist(), strict=True):
    turns = zip(word_T.reshape(-1, SENTENCE), role_S, strict=True)
    text = '\n'.join(_spell(turn, NAMES['dialogues'][role]) for turn, role in turns)
    yield json.dumps(dict(text=text, role=role_S))


def _save(path: pathlib.Path, lines: Iterable[str]) -> None:
  path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
