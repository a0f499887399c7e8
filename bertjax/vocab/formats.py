"""The files that vocabularies come in, each kind with its reader.

vocab.txt                  WordPiece
vocab.json and merges.txt  byte-level BPE; GPT-1's and XLM's BPE, by their pieces
NAME.model                 SentencePiece
tokenizer.json             whatever the Rust tokenizers know; of words, of characters and of bytes
codes_NAME and vocab_NAME  XLM's fastBPE
"""

import functools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from bertjax.errors import UserError, require_file, writing
from bertjax.vocab import fastbpe, openai_bpe, refusals, sentencepiece_model, special, whole_words
from bertjax.vocab.as_text import Encoding
from bertjax.vocab.refusals import check_unique, unique_keys

CONFIG = special.CONFIG
CODES = 'codes'  # how the names of fastBPE's files of codes begin
NAMES = ('tokenizer.json', 'vocab.txt', 'vocab.json', '*.model', f'{CODES}*')
BYTE_SPACE = 'Ġ'  # of byte-level BPE
_NO_ACCENTS = normalizers.BertNormalizer(False, False, strip_accents=True, lowercase=False)
MOST = 2**24  # ids; a file that names a larger one would fill the memory with gaps


class Found(NamedTuple):
  """A vocabulary as its files describe it."""

  kind: str  # wordpiece, bpe, unigram, ...
  files: tuple[pathlib.Path, ...]  # the files that it was read from
  lowercase: bool  # True if it lowercases text
  starts_word: Callable[[str], bool]  # piece -> True if it begins a word
  # the pieces, by id, and the functions of a `vocabulary.Vocabulary`, by name of its field
  coder: Mapping[str, Any]
  accents: bool = True  # True if text keeps its accents


def files_of(directory: pathlib.Path) -> list[pathlib.Path]:
  """Lists the files of NAMES in a directory, of the first of these kinds that is there."""
  there = sorted(directory.glob('*'))  # links that lead nowhere, too
  found = [[file for file in there if file.match(name)] for name in NAMES]
  return next((files for files in found if files), [])


def find(path: pathlib.Path) -> pathlib.Path:
  """Returns the file of a vocabulary that a path names; of a directory the one in it. Raises
  UserError if there is none, or of several kinds, or of none that we know."""
  if path.is_dir():
    found = files_of(path)
    if len(found) != 1:
      raise UserError(
        f'{path}: expected one of {", ".join(NAMES)}, got {[f.name for f in found] or "none"}. '
        'Name the file, or train a vocabulary with `python -m bertjax.vocab`'
      )
    path = found[0]
  require_file(path, 'a vocabulary. Train one with `python -m bertjax.vocab`')
  if path.suffix not in ('.txt', '.json', '.model') and not path.name.startswith(CODES):
    raise UserError(
      f'{path} is no vocabulary that we know: expected vocab.txt (WordPiece), vocab.json and '
      'merges.txt (byte-level BPE), a .model (SentencePiece), tokenizer.json, or codes_NAME of '
      'fastBPE'
    )
  return path


def read(file: pathlib.Path, lowercase: bool | None) -> Found:
  """Reads a file that `find` found; arguments and errors as `vocabulary.load_vocabulary`."""
  if file.name.startswith(CODES):
    return _read_fastbpe(file, lowercase)
  if file.name in ('vocab.json', 'merges.txt'):
    return _read_bpe(file, lowercase)
  readers = {'.txt': _read_wordpiece, '.json': _read_tokenizer, '.model': _read_sentencepiece}
  return readers[file.suffix](file, lowercase)


def write(directory: pathlib.Path, files: Mapping[str, str | bytes]) -> None:
  """Writes the files of a vocabulary, name -> contents. What the tokenizers write themselves would
  name no path where it fails."""
  with writing('the vocabulary', directory):
    for name, content in files.items():
      data = content.encode() if isinstance(content, str) else content
      (directory / name).write_bytes(data)


def settings_of(file: pathlib.Path) -> dict[str, Any]:
  """Returns the tokenizer_config.json beside a file, or {}; of a .model with the class that
  config.json of its model says or implies, where it says none. UserError: it is no JSON object."""
  found = special.json_beside(file, CONFIG)
  if file.suffix == '.model' and not found.get('tokenizer_class'):
    model = special.json_beside(file, 'config.json')
    implied = sentencepiece_model.CLEANED.get(str(model.get('model_type')))
    found |= dict(tokenizer_class=model.get('tokenizer_class') or implied or '')
  return found


def _case(file: pathlib.Path, asked: bool | None, pieces: Iterable[str]) -> tuple[bool, bool]:
  """Decides whether text is lowercased, and whether it keeps its accents, which BERT's then loses.
  The caller says it, else tokenizer_config.json, else the pieces: none has a capital, or one has an
  accent, a vowel sign or a syllable of Hangul, which no text without accents would give."""
  settings = settings_of(file)
  said, strip = settings.get('do_lower_case'), settings.get('strip_accents')
  plain = '\n'.join(p for p in pieces if p[:1] not in '[<')  # [UNK] or <S> are names, not text
  lowers = said if asked is None else asked
  if lowers is None:
    lowers = plain == plain.lower()
  if strip is None:
    strip = lowers and (said is True or plain == _NO_ACCENTS.normalize_str(plain))
  return lowers, not strip


def _rust(
  tokenizer: Tokenizer, file: pathlib.Path, kind: str, most: int | None = None
) -> dict[str, Any]:
  """Returns the pieces and functions of a Rust tokenizer, with the tokens that the files beside its
  own make of its pieces; those from the id `most` on are unknown."""
  index = tokenizer.get_vocab(with_added_tokens=True)
  if not index:
    raise UserError('expected pieces, got none')
  last = max(index, key=index.__getitem__)
  if index[last] >= MOST:
    raise UserError(f'the id of {last!r} is {index[last]}: expected ids below {MOST}')
  pieces = [''] * (index[last] + 1)
  for piece, i in index.items():
    if pieces[i]:
      raise UserError(f'{pieces[i]!r} and {piece!r} have the same id, {i}: expected one for each')
    pieces[i] = piece

  for token in special.inside(file, index).values():
    (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
  reader = special.reading(tokenizer, kind, index)

  def encode(texts):
    batch = reader.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in batch]

  spans = functools.partial(reader.encode_batch, add_special_tokens=False)
  coder = dict(pieces=pieces, _encode=encode, _decode=reader.decode, _spans=spans)
  if most and most < len(pieces):
    known = np.arange(len(pieces))
    known[most:] = index['<unk>']
    of = lambda ids: known[ids].tolist()
    coder |= dict(
      pieces=pieces[:most],
      _encode=lambda texts: [of(ids) for ids in encode(texts)],
      _spans=lambda texts: [Encoding(of(e.ids), e.offsets) for e in spans(texts)],
    )
  return coder | dict(tokenizer=tokenizer)


def _read_wordpiece(file: pathlib.Path, lowercase: bool | None) -> Found:
  # Not splitlines(): some pieces are line separators of Unicode. ERNIE's files say the number of
  # each piece after a TAB. A blank line is an id that no text gets, as is that of a piece that
  # comes again later: google-research/bert, tokenization.py:load_vocab.
  lines = refusals.text_of(file, 'utf-8-sig').split('\n')  # without a BOM
  pieces = [line.partition('\t')[0].strip(' ') for line in lines]
  index = {piece: i for i, piece in enumerate(pieces) if piece}
  if '[UNK]' not in index:
    raise UserError('expected one piece a line, [UNK] among them')
  lowercase, accents = _case(file, lowercase, index)
  tokenizer = Tokenizer(models.WordPiece(index, unk_token='[UNK]', max_input_chars_per_word=100))
  tokenizer.normalizer = normalizers.BertNormalizer(
    handle_chinese_chars=settings_of(file).get('tokenize_chinese_chars', True),
    strip_accents=not accents,
    lowercase=lowercase,
  )
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece()
  named = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
  tokenizer.add_special_tokens([piece for piece in named if piece in index])
  starts_word = lambda piece: not piece.startswith('##')
  coder = _rust(tokenizer, file, 'wordpiece')
  return Found('wordpiece', (file,), lowercase, starts_word, coder, accents)


def _read_bpe(file: pathlib.Path, lowercase: bool | None) -> Found:
  files = (file.parent / 'vocab.json', file.parent / 'merges.txt')
  for part in files:
    if not part.is_file():
      raise UserError(f'{part} is missing: byte-level BPE needs vocab.json and merges.txt')
  pieces = unique_keys(refusals.text_of(files[0]))
  if fastbpe.MASK in pieces:  # XLM as transformers saves it
    return _read_fastbpe(files[1], lowercase, sorted(pieces, key=pieces.__getitem__))
  if openai_bpe.MARK in pieces:
    if lowercase is False:
      raise UserError('lowercase=False was asked for, but no piece of GPT-1 has a capital')
    coder = openai_bpe.read(files[1], sorted(pieces, key=pieces.__getitem__))
    return Found('openai_bpe', files, True, lambda piece: True, coder)
  with refusals.theirs():
    tokenizer = Tokenizer(models.BPE.from_file(*map(str, files)))
  settings = settings_of(file)
  lowercase = bool(settings.get('do_lower_case')) if lowercase is None else lowercase
  if lowercase:
    tokenizer.normalizer = normalizers.Lowercase()
  spaced = bool(settings.get('add_prefix_space', False))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
  tokenizer.decoder = decoders.ByteLevel()
  index = tokenizer.get_vocab()
  # GPT-2 has one special token; RoBERTa has five, and that one is text to it.
  named = ('<s>', '<pad>', '</s>', '<unk>', '<mask>') if '<s>' in index else ('<|endoftext|>',)
  tokenizer.add_special_tokens([piece for piece in named if piece in index])
  starts_word = lambda piece: piece.startswith(BYTE_SPACE)
  coder = _rust(tokenizer, file, 'bpe', settings.get('max_vocab'))
  return Found('bpe', files, lowercase, starts_word, coder)


def _read_tokenizer(file: pathlib.Path, lowercase: bool | None) -> Found:
  spec = unique_keys(refusals.text_of(file))
  with refusals.theirs():
    tokenizer = Tokenizer.from_file(str(file))
  tokenizer.no_padding()
  tokenizer.no_truncation()
  of_words = file.with_name('vocab.json')
  if openai_bpe.MARK in (index := tokenizer.get_vocab()) and of_words.is_file():
    if index == unique_keys(refusals.text_of(of_words)):  # with tokens of its own it is another's
      return _read_bpe(of_words, lowercase)  # the other file leaves their cleaning out
  if spec['model'].get('dropout'):
    raise UserError(
      f'it cuts words at random, model.dropout={spec["model"]["dropout"]}: expected null there, '
      'with which a text always has the same ids'
    )
  if isinstance(spec['model']['vocab'], list):
    check_unique(piece for piece, _ in spec['model']['vocab'])
  normalizer = json.dumps(spec.get('normalizer'))
  lowers = '"lowercase": true' in normalizer or '"type": "Lowercase"' in normalizer
  if lowercase is not None and lowercase != lowers:
    raise UserError(
      f'lowercase={lowercase} was asked for, but the file itself says lowercase={lowers}. Leave '
      'it out, or name vocab.txt, vocab.json or the .model instead'
    )
  change = tokenizer.normalizer
  accents = change is None or change.normalize_str('é') != change.normalize_str('e')
  kind = type(tokenizer.model).__name__.lower()  # the file may leave it out
  stream = whole_words.kind_of(spec)
  rust = _rust(tokenizer, file, stream or kind, settings_of(file).get('max_vocab'))
  if stream:
    coder = whole_words.coder(stream, rust['pieces'], lowers) | dict(tokenizer=rust['tokenizer'])
    return Found(stream, (file,), lowers, lambda piece: True, coder, accents)
  prefix = spec['model'].get('continuing_subword_prefix')
  if prefix:
    starts_word = lambda piece: not piece.startswith(prefix)
  elif spec['model'].get('end_of_word_suffix'):
    starts_word = lambda piece: True  # as fastBPE's, which the piece before says
  else:
    starting = lambda mark: sum(piece.startswith(mark) for piece in rust['pieces'])
    if starting(sentencepiece_model.SPACE) > starting(BYTE_SPACE):
      starts_word = sentencepiece_model.word_starts(rust['pieces'])
    else:
      starts_word = lambda piece: piece.startswith(BYTE_SPACE)
  return Found(kind, (file,), lowers, starts_word, rust, accents)


def _read_sentencepiece(file: pathlib.Path, lowercase: bool | None) -> Found:
  model = sentencepiece_model.load(file)
  pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
  lowercase, _ = _case(file, lowercase, pieces)
  accents = sentencepiece_model.accents_of(pieces, settings_of(file))
  coder = sentencepiece_model.coder(file, model, pieces, lowercase, accents)
  starts_word = sentencepiece_model.word_starts(coder['pieces'])
  return Found('sentencepiece', (file,), lowercase, starts_word, coder, accents is not False)


def _read_fastbpe(
  file: pathlib.Path, lowercase: bool | None, pieces: Sequence[str] | None = None
) -> Found:
  settings = settings_of(file)
  if pieces is None:
    files = (file, file.with_name(file.name.replace(CODES, 'vocab', 1)))
    pieces = fastbpe.pieces_of(files[1], settings.get('max_vocab'))
  else:
    files = (file.parent / 'vocab.json', file)
  if lowercase is None:
    theirs = settings.get('do_lowercase_and_remove_accent')
    lowercase = settings.get('do_lower_case', theirs)
  if lowercase is None:  # the model of 15 languages has Russian capitals that no text gives
    lowercase = not re.search('[A-Z]', ''.join(pieces))
  coder = fastbpe.read(file, pieces, lowercase)
  # A piece does not say whether it begins a word: the one before it does.
  return Found('fastbpe', files, lowercase, lambda piece: True, coder, not lowercase)
