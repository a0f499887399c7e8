"""Vocabularies, read from their files: WordPiece, byte-level BPE, SentencePiece, tokenizer.json and
XLM's fastBPE; of words, of characters and of bytes.

Ids equal those of the `transformers` tokenizer of the same files, with `split_special_tokens`: text
that spells a special token, `[MASK]` or `<s>`, is text and gets the ids of ordinary pieces. Only
NumPy, tokenizers and sentencepiece are imported here: the workers of `prepare` start in a moment,
and so does training.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from bertjax.data.vocab import as_text, fastbpe, patterns, sentencepiece_model, whole_words
from bertjax.data.vocab.unique import unique_keys, unique_pieces
from bertjax.errors import UserError
from bertjax.storage import copies

SPECIAL = dict(
  cls=('[CLS]', '<cls>', '<s>'),
  sep=('[SEP]', '<sep>', '</s>', '<|endoftext|>'),
  pad=('[PAD]', '<pad>'),
  mask=('[MASK]', '<mask>', '<special1>'),
  unk=('[UNK]', '<unk>'),
)
CONFIG = 'tokenizer_config.json'
CODES = 'codes'  # how the names of fastBPE's files of codes begin
SPACE = sentencepiece_model.SPACE
BYTE_SPACE = 'Ġ'  # of byte-level BPE
MOST = 2**24  # ids; a file that names a larger one would fill the memory with gaps


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Text to ids and back.

  Attributes:
    type: wordpiece, bpe, unigram, ...
    lowercase: whether text is lowercased.
    files: what it was read from.
    pieces: V strings, by id.
    word_starts: bool [V], False for ids that continue a word.
    special: cls, sep, pad, mask, unk -> id, or None where the vocabulary has none; eod where it has
      one; eos, the end of a line, of words, characters and bytes.
    sha256: of the files.
    check_language: raises UserError where words of a language cannot be cut; None where text is
      encoded whatever its language.
    tokenizer: the Rust tokenizer behind it, where there is one.
  """

  type: str
  lowercase: bool
  files: tuple[pathlib.Path, ...]
  pieces: Sequence[str] = dataclasses.field(repr=False)
  word_starts: np.ndarray = dataclasses.field(repr=False)
  special: Mapping[str, int | None]
  sha256: str
  _encode: Callable[..., list[list[int]]] = dataclasses.field(repr=False)
  _decode: Callable[[list[int]], str] = dataclasses.field(repr=False)
  _spans: Callable[[list[str]], list[Any]] | None = dataclasses.field(repr=False, default=None)
  check_language: Callable[[str], None] | None = dataclasses.field(repr=False, default=None)
  tokenizer: Tokenizer | None = dataclasses.field(repr=False, default=None)

  @property
  def size(self) -> int:
    """V, the number of ids."""
    return len(self.pieces)

  def encode_batch(
    self, texts: Sequence[str], languages: Sequence[str] | None = None
  ) -> list[np.ndarray]:
    """Returns the ids of each text, int32 arrays, without special tokens around them.

    Args:
      texts: to encode.
      languages: of each text, where `check_language` is given; English if None.
    """
    return [np.array(ids, np.int32) for ids in self._ids(texts, languages)]

  def encode_flat(
    self, texts: Sequence[str], languages: Sequence[str] | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """As `encode_batch`; returns the ids of all texts end to end, int32, and how many each has,
    int64 [texts]."""
    ids = self._ids(texts, languages)
    length_n = np.fromiter(map(len, ids), np.int64, len(ids))
    flat = itertools.chain.from_iterable(ids)
    return np.fromiter(flat, np.int32, int(length_n.sum())), length_n

  def _ids(self, texts: Sequence[str], languages: Sequence[str] | None) -> list[list[int]]:
    if self.check_language is None:
      return self._encode(list(texts))
    return self._encode(list(texts), ['en'] * len(texts) if languages is None else languages)

  def count_spelled(self, documents: Iterable[bytes]) -> int:
    """How often some texts, as UTF-8, spell a special token."""
    pattern = self._spelled
    return sum(len(pattern.findall(document)) for document in documents) if pattern else 0

  @functools.cached_property
  def _spelled(self) -> re.Pattern[bytes] | None:
    names = as_text.names(self.pieces, self.special)
    return re.compile(b'|'.join(re.escape(name.encode()) for name in names)) if names else None

  def encode_spans(self, texts: Sequence[str]) -> tuple[np.ndarray, ...]:
    """As `encode_flat`, with the characters of its text that each token covers.

    Returns:
      int32 ids, int64 [texts] how many each has, int64 begin and int64 end of each token. Bytes of
      one character all cover it; a token may cover the space before it.

    Raises:
      UserError: the kind of vocabulary does not keep offsets.
    """
    if self._spans is None:
      raise UserError(
        f'{self.files[0]}: units and spans need the offsets of tokens, which {self.type} '
        'does not keep: expected a WordPiece vocab.txt, byte-level BPE, or a tokenizer.json'
      )
    encodings = self._spans(list(texts))
    length_n = np.fromiter((len(e.ids) for e in encodings), np.int64, len(encodings))
    total = int(length_n.sum())
    flat = itertools.chain.from_iterable
    token_n = np.fromiter(flat(e.ids for e in encodings), np.int32, total)
    offset_n2 = np.fromiter(flat(flat(e.offsets for e in encodings)), np.int64, 2 * total)
    return token_n, length_n, *offset_n2.reshape(-1, 2).T

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the text of these ids."""
    return self._decode([int(i) for i in ids])

  @property
  def meta(self) -> dict[str, Any]:
    """The vocabulary block of store.json."""
    return dict(
      type=self.type,
      size=self.size,
      sha256=self.sha256,
      special=dict(self.special),
      lowercase=self.lowercase,
    )

  def save(self, directory: pathlib.Path) -> None:
    """Copies the files to a directory from which `load_vocabulary` makes the same vocabulary.

    A file of its own name, bert-vocab.txt, gets the one that is looked for in a directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    alone = {'.txt': 'vocab.txt', '.json': 'tokenizer.json'} if len(self.files) == 1 else {}
    for file in self.files:
      (directory / alone.get(file.suffix, file.name)).write_bytes(file.read_bytes())
    config = dict(settings_of(self.files[0]), do_lower_case=self.lowercase)
    (directory / CONFIG).write_text(json.dumps(config, indent=1), encoding='utf-8')


def load_vocabulary(path: str | pathlib.Path, lowercase: bool | None = None) -> Vocabulary:
  """Reads a vocabulary.

  Args:
    path: vocab.txt, vocab.json or merges.txt (with the other beside it), a SentencePiece .model,
      tokenizer.json, or codes_NAME of fastBPE (with vocab_NAME beside it); or a directory that
      holds one of them, tokenizer.json before the others. Of a URL a copy is made first.
    lowercase: whether text is lowercased first. None: as `tokenizer_config.json` beside the file
      says, else if no piece has an ASCII capital; tokenizer.json says itself.

  Raises:
    UserError: no such file, not a vocabulary, or `lowercase` contradicts tokenizer.json.
  """
  file = _find(copies.local(path, beside=True))
  if file.name.startswith(CODES):
    reader = _read_fastbpe
  elif file.name in ('vocab.json', 'merges.txt'):
    reader = _read_bpe
  else:
    reader = {'.txt': _read_wordpiece, '.json': _read_tokenizer, '.model': _read_sentencepiece}[
      file.suffix
    ]
  try:
    return reader(file, lowercase)
  except Exception as error:
    # The Rust reader raises bare Exception, the C++ one RuntimeError.
    if type(error) is not Exception and not isinstance(error, ValueError | RuntimeError):
      raise
    raise UserError(f'{file} cannot be read as a vocabulary: {error}') from error


def _vocabulary(
  kind: str,
  files: tuple[pathlib.Path, ...],
  lowercase: bool,
  starts_word: Callable[[str], bool],
  coder: Mapping[str, Any],
) -> Vocabulary:
  """A vocabulary from what differs between kinds; `coder` has its pieces and functions."""
  pieces = coder['pieces']
  index = {piece: i for i, piece in enumerate(pieces)}
  special = {
    role: next((index[name] for name in names if name in index), None)
    for role, names in SPECIAL.items()
  }
  if '<special1>' in index:  # XLM, whose </s> stands at both ends
    special['cls'] = special['sep']
  if '<eod>' in index:  # XLNet, whose documents end with it
    special['eod'] = index['<eod>']
  if kind in whole_words.END:
    special['eos'] = index[whole_words.END[kind]]
  names = as_text.names(pieces, special)
  if kind not in whole_words.END and kind != 'fastbpe':  # which make none of text
    coder = as_text.keep(coder, {name: index[name] for name in names})
  starts = np.array([starts_word(piece) for piece in pieces], bool)
  starts[[i for i in special.values() if i is not None]] = True
  return Vocabulary(
    type=kind,
    lowercase=lowercase,
    files=files,
    word_starts=starts,
    special=special,
    sha256=hashlib.sha256(b''.join(file.read_bytes() for file in files)).hexdigest(),
    **coder,
  )


def _find(path: pathlib.Path) -> pathlib.Path:
  if path.is_dir():
    names = ('tokenizer.json', 'vocab.txt', 'vocab.json', '*.model', f'{CODES}*')
    found = [sorted(path.glob(name)) for name in names]
    found = next((files for files in found if files), [])
    if len(found) != 1:
      raise UserError(
        f'{path}: expected one of {", ".join(names)}, got {[f.name for f in found] or "none"}. '
        'Name the file, or train a vocabulary with `python -m bertjax.vocab`'
      )
    return found[0]
  if not path.is_file():
    raise UserError(f'no vocabulary at {path}. Train one with `python -m bertjax.vocab`')
  if path.suffix not in ('.txt', '.json', '.model') and not path.name.startswith(CODES):
    raise UserError(
      f'{path} is no vocabulary that we know: expected vocab.txt (WordPiece), vocab.json and '
      'merges.txt (byte-level BPE), a .model (SentencePiece), tokenizer.json, or codes_NAME of '
      'fastBPE'
    )
  return path


def settings_of(file: pathlib.Path) -> dict[str, Any]:
  """The tokenizer_config.json beside a file, or {}."""
  config = file.parent / CONFIG
  return json.loads(config.read_text(encoding='utf-8')) if config.is_file() else {}


def _lowercase(file: pathlib.Path, asked: bool | None, pieces: Iterable[str]) -> bool:
  if asked is not None:
    return asked
  said = settings_of(file).get('do_lower_case')
  # Capitals inside brackets, [UNK] or <S>, are names and not text.
  capitals = (any('A' <= c <= 'Z' for c in p) for p in pieces if p[:1] not in '[<')
  return not any(capitals) if said is None else said


def _rust(tokenizer: Tokenizer) -> dict[str, Any]:
  """The pieces and functions of a Rust tokenizer."""
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

  def encode(texts):
    batch = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in batch]

  tokenizer.encode_special_tokens = True  # where the text spells them it is text
  spans = functools.partial(tokenizer.encode_batch, add_special_tokens=False)
  coder = dict(pieces=pieces, _encode=encode, _decode=tokenizer.decode, _spans=spans)
  return coder | dict(tokenizer=tokenizer)


def _read_wordpiece(file: pathlib.Path, lowercase: bool | None) -> Vocabulary:
  # Not splitlines(): some pieces are line separators of Unicode.
  lines = file.read_text(encoding='utf-8-sig').removesuffix('\n').split('\n')  # without a BOM
  # ERNIE's files say the number of each piece after a TAB.
  index = unique_pieces(piece.rstrip('\r').partition('\t')[0] for piece in lines)
  if '[UNK]' not in index:
    raise UserError('expected one piece a line, [UNK] among them')
  lowercase = _lowercase(file, lowercase, index)
  settings = settings_of(file)
  tokenizer = Tokenizer(models.WordPiece(index, unk_token='[UNK]', max_input_chars_per_word=100))
  tokenizer.normalizer = normalizers.BertNormalizer(
    handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
    strip_accents=settings.get('strip_accents'),
    lowercase=lowercase,
  )
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece()
  named = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
  tokenizer.add_special_tokens([piece for piece in named if piece in index])
  starts_word = lambda piece: not piece.startswith('##')
  return _vocabulary('wordpiece', (file,), lowercase, starts_word, _rust(tokenizer))


def _read_bpe(file: pathlib.Path, lowercase: bool | None) -> Vocabulary:
  files = (file.parent / 'vocab.json', file.parent / 'merges.txt')
  for part in files:
    if not part.is_file():
      raise UserError(f'{part} is missing: byte-level BPE needs vocab.json and merges.txt')
  pieces = unique_keys(files[0].read_text(encoding='utf-8'))
  if fastbpe.MASK in pieces:  # XLM as transformers saves it
    return _read_fastbpe(files[1], lowercase, sorted(pieces, key=pieces.__getitem__))
  tokenizer = Tokenizer(models.BPE.from_file(*map(str, files)))
  lowercase = False if lowercase is None else lowercase
  if lowercase:
    tokenizer.normalizer = normalizers.Lowercase()
  spaced = bool(settings_of(file).get('add_prefix_space', False))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
  tokenizer.decoder = decoders.ByteLevel()
  index = tokenizer.get_vocab()
  # GPT-2 has one special token; RoBERTa has five, and that one is text to it.
  named = ('<s>', '<pad>', '</s>', '<unk>', '<mask>') if '<s>' in index else ('<|endoftext|>',)
  tokenizer.add_special_tokens([piece for piece in named if piece in index])
  starts_word = lambda piece: piece.startswith(BYTE_SPACE)
  return _vocabulary('bpe', files, lowercase, starts_word, _rust(tokenizer))


def _read_tokenizer(file: pathlib.Path, lowercase: bool | None) -> Vocabulary:
  spec = unique_keys(file.read_text(encoding='utf-8'))
  patterns.check(spec)
  tokenizer = Tokenizer.from_file(str(file))
  tokenizer.no_padding()
  tokenizer.no_truncation()
  if isinstance(spec['model']['vocab'], list):
    unique_pieces((piece for piece, _ in spec['model']['vocab']), 'entry')
  normalizer = json.dumps(spec.get('normalizer'))
  lowers = '"lowercase": true' in normalizer or '"type": "Lowercase"' in normalizer
  if lowercase is not None and lowercase != lowers:
    raise UserError(
      f'lowercase={lowercase} was asked for, but the file itself says lowercase={lowers}. Leave '
      'it out, or name vocab.txt, vocab.json or the .model instead'
    )
  kind = spec['model']['type'].lower()
  rust = _rust(tokenizer)
  stream = whole_words.kind_of(spec)
  if stream:
    coder = whole_words.coder(stream, rust['pieces'], lowers) | dict(tokenizer=rust['tokenizer'])
    return _vocabulary(stream, (file,), lowers, lambda piece: True, coder)
  prefix = spec['model'].get('continuing_subword_prefix')
  if prefix:
    starts_word = lambda piece: not piece.startswith(prefix)
  else:
    starting = lambda mark: sum(piece.startswith(mark) for piece in rust['pieces'])
    if starting(SPACE) > starting(BYTE_SPACE):
      starts_word = sentencepiece_model.word_starts(rust['pieces'])
    else:
      starts_word = lambda piece: piece.startswith(BYTE_SPACE)
  return _vocabulary(kind, (file,), lowers, starts_word, rust)


def _read_sentencepiece(file: pathlib.Path, lowercase: bool | None) -> Vocabulary:
  pieces = sentencepiece_model.pieces_of(file)
  lowercase = _lowercase(file, lowercase, pieces)
  coder = sentencepiece_model.read(file, lowercase, bool(settings_of(file).get('keep_accents')))
  starts_word = sentencepiece_model.word_starts(coder['pieces'])
  return _vocabulary('sentencepiece', (file,), lowercase, starts_word, coder)


def _read_fastbpe(
  file: pathlib.Path, lowercase: bool | None, pieces: Sequence[str] | None = None
) -> Vocabulary:
  settings = settings_of(file)
  if lowercase is None:  # as all of XLM's
    theirs = settings.get('do_lowercase_and_remove_accent', True)
    lowercase = bool(settings.get('do_lower_case', theirs))
  if pieces is None:
    files = (file, fastbpe.twin(file))
    pieces = fastbpe.pieces_of(files[1], settings.get('max_vocab'))
  else:
    files = (file.parent / 'vocab.json', file)
  coder = fastbpe.read(file, pieces, lowercase)
  # A piece does not say whether it begins a word: the one before it does.
  return _vocabulary('fastbpe', files, lowercase, lambda piece: True, coder)
