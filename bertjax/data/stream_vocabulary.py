"""Vocabularies of whole words, and of characters: what Transformer-XL's streams are made of.

kimiyoung/transformer-xl, pytorch/utils/vocabulary.py: words are what white space sets apart, their
ids sorted by frequency, as adaptive softmax needs them, and each line ends with <eos>. Characters
include the space, and each line ends with its newline. So every unit of a token store ends with
that token, which is read and predicted as any other, and is counted as one: `special['eos']`.

Both are a tokenizer.json: a WordLevel model, and a BPE model that merges nothing. White space at
the ends of a line and empty lines are lost before either sees them.
"""

import collections
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

WORDS, CHARACTERS = 'words', 'characters'
END = {WORDS: '<eos>', CHARACTERS: '\n'}  # of a line
_UNK, _PAD = '<unk>', '<pad>'


def kind_of(model: dict[str, Any]) -> str | None:
  """Whether the `model` of a tokenizer.json is one of words or of characters."""
  named = dict(WordLevel=WORDS, BPE=CHARACTERS)
  kind = named.get(model['type'])
  if kind is None or END[kind] not in model['vocab'] or model.get('merges'):
    return None
  return kind


def coder(kind: str, pieces: Sequence[str], lowercase: bool) -> dict[str, Any]:
  """The pieces and functions of a vocabulary, as `vocabulary._vocabulary` takes them.

  Raises:
    ValueError: there is no <unk> among the pieces.
  """
  index = {piece: i for i, piece in enumerate(pieces)}
  if _UNK not in index:
    raise ValueError(
      f'a vocabulary of {kind} needs {_UNK}, which is not among its {len(index)} ids'
    )
  end, unk = index[END[kind]], index[_UNK]
  cut = _cut(kind)

  def encode(texts: Sequence[str]) -> list[list[int]]:
    parts = (cut(text.lower() if lowercase else text) for text in texts)
    return [[*(index.get(part, unk) for part in found), end] if found else [] for found in parts]

  def decode(ids: list[int]) -> str:
    if kind == CHARACTERS:
      return ''.join(pieces[i] for i in ids)
    return re.sub(' ?\n ?', '\n', ' '.join('\n' if i == end else pieces[i] for i in ids))

  return dict(pieces=pieces, _encode=encode, _decode=decode)


def train(
  kind: str, sentences: Sequence[str], size: int, lowercase: bool, directory: pathlib.Path
) -> None:
  """Writes tokenizer.json: by falling frequency, ties in the order of Unicode.

  Args:
    kind: 'words' or 'characters'.
    sentences: the sample, a line each.
    size: ids, with <unk>, <pad>, which is the last, and the end of a line; fewer if the sample has
      no more. Of words the end of a line and <unk> have the ids 0 and 1.
    lowercase: whether text is lowercased first.
    directory: exists.

  Raises:
    ValueError: so few characters that the newline is not among them.
  """
  counts: collections.Counter[str] = collections.Counter()
  for sentence in sentences:
    counts.update(_cut(kind)(sentence.lower() if lowercase else sentence))
  first = [END[kind], _UNK] if kind == WORDS else []
  if kind == CHARACTERS:
    counts[END[kind]] = len(sentences)
  last = [_PAD] if kind == WORDS else [_UNK, _PAD]
  found = sorted(counts.keys() - {*first, *last}, key=lambda piece: (-counts[piece], piece))
  if kind == CHARACTERS and END[kind] not in found[: size - len(last)]:
    raise ValueError(f'{size} characters leave out the newline: raise --size')
  pieces = [*first, *found[: size - len(first) - len(last)], *last]
  index = {piece: i for i, piece in enumerate(pieces)}
  if kind == WORDS:
    tokenizer = Tokenizer(models.WordLevel(index, unk_token=_UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  else:
    tokenizer = Tokenizer(models.BPE(index, [], unk_token=_UNK))
    tokenizer.decoder = decoders.Fuse()
  if lowercase:
    tokenizer.normalizer = normalizers.Lowercase()
  tokenizer.save(str(directory / 'tokenizer.json'))


def _cut(kind: str) -> Callable[[str], Sequence[str]]:
  return str.split if kind == WORDS else list
