"""Vocabularies of whole words, characters and bytes: what Transformer-XL's streams are made of.

kimiyoung/transformer-xl, pytorch/utils/vocabulary.py: words are what white space sets apart, their
ids sorted by frequency, as adaptive softmax needs them, and each line ends with <eos>. Characters
and bytes (enwik8's) include the space, and each line ends with its newline. So every line of a
token store ends with that token, which is read and predicted as any other, and is counted as one:
`special['eos']`. With `--split=verbatim` blank lines are lines too.

All are a tokenizer.json: a WordLevel model, and a BPE model that merges nothing, of bytes behind
GPT-2's alphabet. Marked words are those of ELMo (allenai/bilm-tf, bilm/data.py): lines end with
</S>, and <S>, which no line has, is what a model reads before one.
"""

import collections
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from bertjax.errors import UserError

WORDS, MARKED, CHARACTERS, BYTES = 'words', 'marked_words', 'characters', 'bytes'
_UNK, _PAD, _BEGIN = '<unk>', '<pad>', '<S>'
_SHOWN = {*range(33, 127), *range(161, 173), *range(174, 256)}  # bytes that stand for themselves
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
_LETTER = {byte: chr(256 + i) for i, byte in enumerate(_HIDDEN)}  # GPT-2's, of the other bytes
_BYTE = {ord(letter): byte for byte, letter in _LETTER.items()}
END = {WORDS: '<eos>', MARKED: '</S>', CHARACTERS: '\n', BYTES: _LETTER[ord('\n')]}  # of a line
OF_WORDS = (WORDS, MARKED)  # what white space sets apart


def kind_of(spec: dict[str, Any]) -> str | None:
  """Returns the kind of a tokenizer.json: words, marked or not, characters or bytes; None: another
  one."""
  model, before = spec['model'], spec.get('pre_tokenizer')
  letters = BYTES if before and before['type'] == 'ByteLevel' else CHARACTERS
  words = MARKED if END[MARKED] in model['vocab'] and _BEGIN in model['vocab'] else WORDS
  kind = dict(WordLevel=words, BPE=letters).get(model.get('type'))
  if kind is None or END[kind] not in model['vocab'] or model.get('merges'):
    return None
  return kind


def coder(kind: str, pieces: Sequence[str], lowercase: bool) -> dict[str, Any]:
  """Returns the pieces and functions of a vocabulary, as `formats.Found` has them. Raises UserError
  if there is no <unk> among the pieces."""
  index = {piece: i for i, piece in enumerate(pieces)}
  if _UNK not in index:
    raise UserError(f'a vocabulary of {kind} needs {_UNK}, which is not among its {len(index)} ids')
  end, unk = index[END[kind]], index[_UNK]
  cut = _cut(kind, lowercase)

  marks = (_PAD, END[kind], *[_BEGIN] * (kind == MARKED))
  index = {piece: i for piece, i in index.items() if piece not in marks}

  def encode(texts: Sequence[str]) -> list[list[int]]:
    return [[*(index.get(part, unk) for part in cut(text)), end] if text else [] for text in texts]

  def decode(ids: list[int]) -> str:
    if kind in OF_WORDS:
      return re.sub(' ?\n ?', '\n', ' '.join('\n' if i == end else pieces[i] for i in ids))
    text = ''.join(pieces[i] for i in ids)
    if kind == CHARACTERS:
      return text
    return text.translate(_BYTE).encode('latin-1').decode('utf-8', 'replace')

  return dict(pieces=pieces, _encode=encode, _decode=decode)


def train(kind: str, lines: Iterable[str], size: int, lowercase: bool) -> str:
  """Returns the text of tokenizer.json: pieces by falling frequency, ties in the order of Unicode,
  with <unk>, <pad>, which is the last, and the end of a line; of words the latter is 0 and <unk> 1,
  of marked words </S>, <S> and <unk> are 0 to 2.
  Raises UserError if the newline is not among so few characters."""
  counts: collections.Counter[str] = collections.Counter()
  cut, end = _cut(kind, lowercase), END[kind]
  for line in lines:
    counts.update(cut(line))
    counts[end] += 1
  first = {WORDS: [end, _UNK], MARKED: [end, _BEGIN, _UNK]}.get(kind, [])
  last = [_PAD] if first else [_UNK, _PAD]
  found = sorted(counts.keys() - {*first, *last}, key=lambda piece: (-counts[piece], piece))
  if not first and end not in found[: size - len(last)]:
    raise UserError(f'{size} {kind} leave out the newline: raise --size')
  pieces = [*first, *found[: size - len(first) - len(last)], *last]
  if first:
    tokenizer = of_words(pieces)
  else:
    index = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(index, [], unk_token=_UNK))
    tokenizer.decoder = decoders.Fuse()
  if kind == BYTES:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
  if lowercase:
    tokenizer.normalizer = normalizers.Lowercase()
  return tokenizer.to_str(pretty=True)


def of_words(pieces: Sequence[str]) -> Tokenizer:
  """Returns the tokenizer of whole words by id, among them <eos> and <unk>."""
  index = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = Tokenizer(models.WordLevel(index, unk_token=_UNK))
  tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  return tokenizer


def _cut(kind: str, lowercase: bool) -> Callable[[str], Sequence[str]]:
  """Cuts a line, with or without its newline, into pieces without its end."""

  def cut(line: str) -> Sequence[str]:
    line = line.removesuffix('\n')
    line = line.lower() if lowercase else line
    if kind in OF_WORDS:
      return line.split()
    return line if kind == CHARACTERS else line.encode().decode('latin-1').translate(_LETTER)

  return cut
