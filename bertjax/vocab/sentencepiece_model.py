"""Vocabularies of SentencePiece: a .model file, and what stands around it.

XLNet's and ALBERT's models expect text that `preprocess_text` of their programs has cleaned, see
`accents_of`; all others do everything in the model. Slow tokenizers of transformers also cut a
comma off a piece that ends with a digit and one ('9,' is '9' and ','), as zihangdai/xlnet and
google-research/albert do; we and transformers' fast ones leave the model's pieces as they are.

A file named sentencepiece.bpe.model is that of a fairseq model (XLM-R), whose ids are not the
model's own: <s> 0, <pad> 1, </s> 2, <unk> 3, then its pieces, each one id later, and <mask> last.

A file named spm.model that begins with the pieces of DeBERTa-v2 and v3 and has no [MASK] has it
behind its last one (microsoft/DeBERTa, DeBERTa/deberta/spm_tokenizer.py).
"""

import pathlib
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from bertjax.errors import UserError
from bertjax.vocab import refusals

SPACE = '▁'
FAIRSEQ = 'sentencepiece.bpe.model'
DEBERTA = ('spm.model', ['[PAD]', '[CLS]', '[SEP]', '[UNK]'])  # its name and first pieces
CLEANED = dict(albert='AlbertTokenizer', xlnet='XLNetTokenizer')  # model_type: class
GENERIC = ('', 'PreTrainedTokenizer', 'TokenizersBackend', 'PythonBackend')  # classes of any model
_LAYOUTS = (  # the first pieces of their models
  ('<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]'),
  ('<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>', '<eod>', '<eop>'),
)
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')  # without ' < = >, as in albert
_ENGLISH = frozenset(string.ascii_lowercase) | _PUNCTUATION


def load(file: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
  """Reads a model. UserError: it is none."""
  with refusals.theirs():
    return sentencepiece.SentencePieceProcessor(model_file=str(file))


def accents_of(pieces: Sequence[str], settings: Mapping[str, Any]) -> bool | None:
  """Decides about the cleaning of XLNet's and ALBERT's programs, plain quotes and no accents: it is
  done if the settings say keep_accents or name a class of theirs, or name a generic one and the
  first pieces are theirs. Returns True or False, accents are kept or not, where text is cleaned;
  else None."""
  keep = settings.get('keep_accents')
  name = str(settings.get('tokenizer_class') or '').removesuffix('Fast')
  cleaned = keep is not None or name in CLEANED.values()
  if name in GENERIC:
    cleaned |= any(tuple(pieces[: len(layout)]) == layout for layout in _LAYOUTS)
  return bool(keep) if cleaned else None


def coder(
  file: pathlib.Path, processor: Any, pieces: list[str], lowercase: bool, accents: bool | None
) -> dict[str, Any]:
  """Returns the pieces and functions of a vocabulary, as `formats.Found` has them. UserError: a
  fairseq model of another form."""

  def encode(texts: Sequence[str]) -> list[list[int]]:
    if accents is not None:
      texts = [_clean_google(text, accents) for text in texts]
    if lowercase:
      texts = [text.lower() for text in texts]
    return processor.encode(texts, num_threads=1)

  if (file.name, pieces[:4]) == DEBERTA and '[MASK]' not in pieces:
    decode = lambda ids: processor.decode([i for i in ids if i < len(pieces)])
    return dict(pieces=[*pieces, '[MASK]'], _encode=encode, _decode=decode)
  if file.name != FAIRSEQ:
    return dict(pieces=pieces, _encode=encode, _decode=processor.decode)
  pieces, id_n = _fairseq(pieces)
  own = {int(i): number for number, i in enumerate(id_n)}
  return dict(
    pieces=pieces,
    _encode=lambda texts: [id_n[ids].tolist() for ids in encode(texts)],
    _decode=lambda ids: processor.decode([own[i] for i in ids if i in own]),
  )


def _fairseq(pieces: Sequence[str]) -> tuple[list[str], np.ndarray]:
  """Returns the pieces by fairseq's ids, and the fairseq id of each number of the model."""
  if list(pieces[:3]) != ['<unk>', '<s>', '</s>'] or {'<pad>', '<mask>'} & {*pieces}:
    raise UserError(
      f'a file named {FAIRSEQ} is read with the ids of fairseq, for which its first pieces must be '
      f'<unk>, <s> and </s>, without <pad> and <mask>; they are {list(pieces[:3])}. Give the file '
      'another name, if its ids are those of the model itself'
    )
  id_n = np.arange(1, len(pieces) + 1, dtype=np.int32)
  id_n[:3] = 3, 0, 2
  return ['<s>', '<pad>', '</s>', '<unk>', *pieces[3:], '<mask>'], id_n


def word_starts(pieces: Sequence[str]) -> Callable[[str], bool]:
  """Returns the test whether a piece begins a word, for a whole SentencePiece vocabulary. As
  google-research/albert has it, a piece of punctuation, or one with a character that is neither an
  English letter nor punctuation, is a word of its own; to zihangdai/xlnet only the former is."""
  plain = lambda piece: piece.startswith((SPACE, '<')) or piece in _PUNCTUATION
  if '<eop>' in pieces:
    return plain
  return lambda piece: plain(piece) or any(c.lower() not in _ENGLISH for c in piece)


def _clean_google(text: str, keep_accents: bool) -> str:
  """Quotes and accents as `preprocess_text` of zihangdai/xlnet and google-research/albert."""
  text = text.replace('``', '"').replace("''", '"')
  if keep_accents:
    return text
  text = unicodedata.normalize('NFKD', text)
  return ''.join(c for c in text if not unicodedata.combining(c))
