"""XLM's vocabularies: fastBPE codes over words that Moses finds, by the rules of each language.

facebookresearch/XLM, tools/tokenize.sh and lower_and_remove_accent.py, and `XLMTokenizer` of
transformers: punctuation is normalised, words are cut by the language's rules (sacremoses; Chinese,
Thai and Japanese by packages of their own), lowercased and stripped of accents, then merged from
characters by the codes. Ids are those of XLM's Dictionary: <s>, </s>, <pad>, <unk>, <special0> to
<special9>, of which <special1> masks, then the vocabulary file line by line; `max_vocab` of
tokenizer_config.json cuts it (95,000 for the published model of 15 languages). transformers saves
the same as vocab.json, which says every id, and merges.txt, which are the codes.
"""

import functools
import pathlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from bertjax.errors import UserError, package
from bertjax.vocab import refusals

SPECIAL = ('<s>', '</s>', '<pad>', '<unk>', *(f'<special{i}>' for i in range(10)))
MASK = '<special1>'
_UNK = SPECIAL.index('<unk>')
_END = '</w>'  # of a word's last piece; the vocabulary file marks all others with @@

# Language -> package that cuts its words, its name on PyPI, and how it is called.
_CUTTERS: dict[str, tuple[str, str, Callable[[Any, str], Sequence[str]]]] = {
  'zh': ('rjieba', 'rjieba', lambda package, text: package.cut(text)),
  'th': ('pythainlp', 'pythainlp', lambda package, text: package.word_tokenize(text)),
  'ja': ('Mykytea', 'kytea', lambda package, text: list(package.Mykytea('').getWS(text))),
}


def pieces_of(vocabulary: pathlib.Path, max_vocab: int | None) -> list[str]:
  """Returns the pieces of a vocabulary file, lines of a piece and its count, by id; at most
  `max_vocab` with the special ones. Lines of other kinds and pieces that came before have no id, as
  in XLM, src/data/dictionary.py:read_vocab. UserError: no such file, or no piece in it."""
  if not vocabulary.is_file():
    raise UserError(f'{vocabulary} is missing: fastBPE needs its codes and its vocabulary')
  lines = refusals.text_of(vocabulary).split('\n')
  fields = [line.split() for line in lines if '\u2028' not in line]
  words = dict.fromkeys(f[0] for f in fields if len(f) == 2 and f[0] not in SPECIAL)
  if not words:
    raise UserError(f'{vocabulary}: expected lines of a piece and its count, got {lines[0][:60]!r}')
  return [*SPECIAL, *(w[:-2] if w.endswith('@@') else w + _END for w in words)][:max_vocab]


def merges_of(codes: pathlib.Path) -> list[tuple[str, ...]]:
  """Returns the pairs of a file of codes, best first: lines of two pieces and, mostly, their count.
  Raises UserError: a line that is not of this kind."""
  lines = refusals.text_of(codes).removesuffix('\n').split('\n')
  merges = [tuple(line.split(' ')[:2]) for line in lines if not line.startswith('#version')]
  if any(len(merge) != 2 for merge in merges):
    raise UserError('expected two pieces and a count on every line of the codes')
  return merges


def read(codes: pathlib.Path, pieces: Sequence[str], lowercase: bool) -> dict[str, Any]:
  """Returns the pieces and functions of a vocabulary, as `formats.Found` has them; with lowercase
  accents are stripped too. Raises UserError for lines of another kind."""
  index = {piece: i for i, piece in enumerate(pieces) if i >= len(SPECIAL)}
  spaces = pre_tokenizers.WhitespaceSplit()
  tokenizer, id_n = merger(index, merges_of(codes), _UNK, spaces)

  def encode(texts: Sequence[str], languages: Sequence[str]) -> list[list[int]]:
    pairs = zip(texts, languages, strict=True)
    cut = [' '.join(_words(text, language, lowercase)) for text, language in pairs]
    batch = tokenizer.encode_batch_fast(cut, add_special_tokens=False)
    return [id_n[encoding.ids].tolist() for encoding in batch]

  plain = functools.partial(decode, pieces)
  return dict(pieces=pieces, _encode=encode, _decode=plain, check_language=_moses)


def decode(pieces: Sequence[str], ids: Sequence[int]) -> str:
  """Returns the words of these ids, with spaces between them."""
  return ''.join(pieces[i] for i in ids).replace(_END, ' ').strip()


def merger(
  index: Mapping[str, int], merges: Any, unk: int, spaces: Any
) -> tuple[Tokenizer, np.ndarray]:
  """Returns a Rust BPE over all that the merges make, whose words a pre-tokenizer, `spaces`, tells,
  and the id of each of its pieces by `index`, else unk."""
  letters = [piece for piece in index if len(piece.removesuffix(_END)) == 1]
  made = [part for a, b in merges for part in (a, b, a + b)]
  inner = {piece: i for i, piece in enumerate(dict.fromkeys(('<unk>', *letters, *made)))}
  with refusals.theirs():
    bpe = models.BPE(inner, merges, unk_token='<unk>', end_of_word_suffix=_END)
  tokenizer = Tokenizer(bpe)
  tokenizer.pre_tokenizer = spaces
  return tokenizer, np.array([index.get(piece, unk) for piece in inner], np.int32)


def _words(text: str, language: str, lowercase: bool) -> list[str]:
  normalise, cut = _moses(language)
  if language == 'zh':  # cut before the punctuation is normalised
    words = normalise(' '.join(cut(text))).split()
  else:
    words = list(cut(normalise(text)))
  if not lowercase:
    return words
  plain = unicodedata.normalize('NFD', ' '.join(words).lower())
  return ''.join(c for c in plain if unicodedata.category(c) != 'Mn').lower().split(' ')


@functools.cache
def _moses(language: str) -> tuple[Callable[[str], str], Callable[[str], Sequence[str]]]:
  """Returns Moses' normalizer of a language, and the function that cuts its text into words. Raises
  UserError where the package that does is not installed."""
  words = f'the words of the language {language!r}'
  sacremoses = package('sacremoses', words, 'sacremoses, or leave the language out')
  normalizer = sacremoses.MosesPunctNormalizer(
    lang=language, pre_replace_unicode_punct=True, post_remove_control_chars=True
  )
  if language in _CUTTERS:
    module, name, cut = _CUTTERS[language]
    cutter = package(module, words, f'{name}, or leave the language out')
    return normalizer.normalize, functools.partial(cut, cutter)
  tokenize = sacremoses.MosesTokenizer(lang=language).tokenize
  return normalizer.normalize, functools.partial(tokenize, escape=False)
