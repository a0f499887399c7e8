"""A SentencePiece .model as tokenizer.json, with the same ids.

The classes of transformers make user-defined pieces (XLNet's `. ( ) " - – £ €`) added tokens, which
are cut out of the text before the model sees it: other ids on most lines of prose. Here they stay
pieces of the model, with the score that SentencePiece gives them.

What differs, since the Rust library has no equal of it: SentencePiece adds scores in float32, which
decides between cuts of one sum; it leaves a letter that is composed of some of its marks and
followed by others (ê and an acute, as some Vietnamese is typed) as it is, where NFC makes one
letter; and normal forms of characters that are younger than the library's tables.
"""

import pathlib
import sys
import unicodedata
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from bertjax.errors import UserError, package
from bertjax.vocab import formats
from bertjax.vocab.sentencepiece_model import SPACE, accents_of
from bertjax.vocab.vocabulary import Vocabulary

UNIGRAM, _BPE, _WORD = 1, 2, 3  # ModelType of sentencepiece_model.proto
_NORMAL, _UNKNOWN, _CONTROL, _DEFINED, _UNUSED = 1, 2, 3, 4, 5  # Type of its pieces
# Python's lower() knows where a word ends, as Σ must; the Rust library goes by characters.
FINAL_SIGMA = r'\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})'


def tokenizer_of(vocabulary: Vocabulary) -> tuple[Tokenizer, list[str]]:
  """Returns the Rust tokenizer of a SentencePiece vocabulary, and the pieces that are added tokens:
  those that no text gives, and sentinels without the sign of a space. Raises UserError: the model
  does something that tokenizer.json cannot express; it is named."""
  file = vocabulary.files[0]
  proto = parse(file)
  _check(proto, file)
  tokenizer = Tokenizer(_model(proto, vocabulary))
  cleaning: list[normalizers.Normalizer] = []  # as `sentencepiece_model.coder`, before the model
  accents = accents_of(vocabulary.pieces, formats.settings_of(file))
  if accents is not None:
    cleaning += [normalizers.Replace('``', '"'), normalizers.Replace("''", '"')]
  if accents is False:  # not StripAccents, which takes the vowels of Thai and Hindi too
    cleaning += [normalizers.NFKD(), normalizers.Replace(Regex(_combining()), '')]
  if vocabulary.lowercase:
    cleaning += [normalizers.Replace(Regex(FINAL_SIGMA), 'ς'), normalizers.Lowercase()]
  tokenizer.normalizer = normalizers.Sequence([*cleaning, *normalizers_of(proto)])
  names = {piece.piece for piece in proto.pieces}
  whole = SPACE in names and not any(SPACE in name[1:] for name in names)
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='never', split=whole)
  parts = [decoders.ByteFallback()] if proto.trainer_spec.byte_fallback else []
  tokenizer.decoder = decoders.Sequence([*parts, decoders.Metaspace(prepend_scheme='always')])
  control = {piece.piece for piece in proto.pieces if piece.type == _CONTROL}
  control |= {p for i in vocabulary.sentinels if (p := vocabulary.pieces[i])[0] != SPACE}
  return tokenizer, [name for name in vocabulary.pieces if name in control]


def parse(file: pathlib.Path) -> Any:
  """Returns the parts of a model; raises UserError where protobuf, which reads them, is missing."""
  reader = f'{file}: the reader of a SentencePiece model'
  proto = package('sentencepiece.sentencepiece_model_pb2', reader, 'protobuf').ModelProto()
  proto.ParseFromString(file.read_bytes())
  return proto


def defined(vocabulary: Vocabulary) -> list[str]:
  """Returns the user-defined pieces of a SentencePiece vocabulary; [] of another one."""
  if vocabulary.type != 'sentencepiece':
    return []
  return [piece.piece for piece in parse(vocabulary.files[0]).pieces if piece.type == _DEFINED]


def _check(proto: Any, file: pathlib.Path) -> None:
  trainer, normal = proto.trainer_spec, proto.normalizer_spec
  defined = [piece.piece for piece in proto.pieces if piece.type == _DEFINED]
  table = normal.precompiled_charsmap
  change = normalizers.Precompiled(table).normalize_str if table else str
  changed = [p for p in (p.replace(SPACE, ' ') for p in defined) if change(p) != p]
  found = dict(
    words=trainer.model_type == _WORD,
    space_behind_words=trainer.treat_whitespace_as_suffix,
    unescaped_spaces=not normal.escape_whitespaces,
    unused_pieces=[p.piece for p in proto.pieces if p.type == _UNUSED][:5],
    user_defined_pieces_of_bpe=defined[:5] if trainer.model_type != UNIGRAM else [],
    user_defined_pieces_that_normalisation_changes=changed[:5],
  )
  wrong = [
    name.replace('_', ' ') + ('' if value is True else f' {value}')
    for name, value in found.items()
    if value
  ]
  if wrong:
    raise UserError(
      f'{file} has {"; ".join(wrong)}, which tokenizer.json cannot express. Export without the '
      'tokenizer, and use the .model with the sentencepiece package'
    )


def _model(proto: Any, vocabulary: Vocabulary) -> models.Unigram | models.BPE:
  trainer = proto.trainer_spec
  unknown = next(piece.piece for piece in proto.pieces if piece.type == _UNKNOWN)
  score = scores(proto)
  if trainer.model_type == UNIGRAM:
    scored = [(piece, score.get(piece, 0.0)) for piece in vocabulary.pieces]
    unk = vocabulary.pieces.index(unknown)
    return models.Unigram(scored, unk, trainer.byte_fallback)
  made = {p.piece: p.score for p in proto.pieces if p.type == _NORMAL}
  return models.BPE(
    vocabulary.index,
    _merges(made) if trainer.model_type == _BPE else [],
    unk_token=unknown,
    fuse_unk=True,
    byte_fallback=trainer.byte_fallback,
  )


def scores(proto: Any) -> dict[str, float]:
  """Returns the scores of the pieces that text is cut into."""
  found = [p for p in proto.pieces if p.type not in (_UNKNOWN, _CONTROL, _UNUSED)]
  # A user-defined piece is better than any cut of the same text: as in unigram_model.cc, whose
  # bonus of its length comes to nothing.
  return {p.piece: -0.1 if p.type == _DEFINED else p.score for p in found}


def _merges(score: dict[str, float]) -> list[tuple[str, str]]:
  """Returns the pairs that SentencePiece joins, those that make the best piece first."""
  number = {piece: i for i, piece in enumerate(score)}
  found = []
  for piece in sorted(score, key=lambda piece: -score[piece]):
    pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
    pairs = [pair for pair in pairs if pair[0] in score and pair[1] in score]
    found += sorted(pairs, key=lambda pair: (number[pair[0]], number[pair[1]]))
  return found


def normalizers_of(proto: Any) -> list[normalizers.Normalizer]:
  """Returns normalizers that do what the SentencePiece model itself does to the text."""
  spec = proto.normalizer_spec
  parts: list[normalizers.Normalizer] = []
  if spec.precompiled_charsmap:
    # Precompiled takes a letter and its marks for one, and drops the marks of some; composed they
    # are one.
    parts += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
  if spec.remove_extra_whitespaces:
    parts += [
      normalizers.Replace(Regex(' {2,}'), ' '),
      normalizers.Replace(Regex(rf'\A +|[ {SPACE}]+\z'), ''),
    ]
  if spec.add_dummy_prefix:
    parts.append(normalizers.Prepend(SPACE))
  return [*parts, normalizers.Replace(' ', SPACE)]


def _combining() -> str:
  """Returns a regular expression for the characters that `unicodedata.combining` says combine."""
  codes = [c for c in range(sys.maxunicode + 1) if unicodedata.combining(chr(c))]
  marks = set(codes)
  starts = [c for c in codes if c - 1 not in marks]
  ends = [c for c in codes if c + 1 not in marks]
  ranges = (f'\\x{{{a:x}}}-\\x{{{b:x}}}' for a, b in zip(starts, ends, strict=True))
  return '[' + ''.join(ranges) + ']'
