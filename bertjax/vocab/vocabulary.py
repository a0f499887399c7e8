"""Vocabularies: text to ids and back, whatever files they are read from (`formats.py`).

Ids equal those of the `transformers` tokenizer of the same files, of GPT-1 those of OpenAI's; but
text that spells one of the five roles, `[MASK]` or `<s>`, is text and gets the ids of ordinary
pieces (`special.py`). Only NumPy, tokenizers and sentencepiece are imported here: the workers of
`prepare` start in a moment, and so does training.
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
from tokenizers import Tokenizer

from bertjax.errors import UserError
from bertjax.machine import copies
from bertjax.vocab import as_text, beside, formats, refusals, special, whole_words

_SENTINEL = re.compile(r'▁?<extra_id_(\d+)>')  # SentencePiece's with its sign of a space
# Texts that vocabularies of the same files cut otherwise where other rules stand beside them.
_LETTERS = ('a', 'A', 'é', 'É', '今天', 'ใต้', "``a''", 'ａ ')
MUCH_UNKNOWN = 0.01  # of the tokens; vocabularies made for a text leave far less


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Text to ids and back."""

  type: str  # wordpiece, bpe, unigram, ...
  lowercase: bool  # whether text is lowercased
  files: tuple[pathlib.Path, ...]  # what it was read from
  pieces: Sequence[str] = dataclasses.field(repr=False)  # V strings, by id
  # bool [V], False for ids that continue a word
  word_starts: np.ndarray = dataclasses.field(repr=False)
  # cls, sep, pad, mask, unk -> id, or None where the vocabulary has none; eod where it has one;
  # eos, the end of a line, of words, characters and bytes
  special: Mapping[str, int | None]
  sha256: str  # of the files
  _encode: Callable[..., list[list[int]]] = dataclasses.field(repr=False)
  _decode: Callable[[list[int]], str] = dataclasses.field(repr=False)
  _spans: Callable[[list[str]], list[Any]] | None = dataclasses.field(repr=False, default=None)
  # raises UserError where words of a language cannot be cut; None where text is encoded whatever
  # its language
  check_language: Callable[[str], object] | None = dataclasses.field(repr=False, default=None)
  language: str = 'en'  # of texts that come without one, where it matters; see `of_language`
  # the Rust tokenizer behind it, where there is one
  tokenizer: Tokenizer | None = dataclasses.field(repr=False, default=None)
  accents: bool = True  # whether text keeps them, and the vowel signs and tones of other scripts

  @property
  def size(self) -> int:
    """V, the number of ids."""
    return len(self.pieces)

  @functools.cached_property
  def index(self) -> dict[str, int]:
    """Piece -> id, the last one of a piece that comes again."""
    return {piece: i for i, piece in enumerate(self.pieces)}

  @property
  def ends_lines(self) -> bool:
    """True if each line of a text ends with a token of its own, `special['eos']`."""
    return 'eos' in self.special

  @functools.cached_property
  def reads_first_space(self) -> bool:
    """True if a leading space changes the ids of a text, as in byte-level BPE, in which a space
    belongs to the word behind it. False if lines have an end of their own, <eos>."""
    if self.ends_lines:
      return False
    plain, spaced = self.encode_batch(['a', ' a'])
    return plain.tolist() != spaced.tolist()

  def of_language(self, language: str) -> 'Vocabulary':
    """Returns the same, whose texts are in that language where they come without one. Raises
    UserError if its words cannot be cut."""
    if self.check_language is not None:
      self.check_language(language)
    return dataclasses.replace(self, language=language)

  def reads_as(self, other: 'Vocabulary') -> bool:
    """Returns whether both give a text the same ids: they have the same files, and what stands
    beside these, or was asked for, lets them cut letters of all kinds alike."""
    if self.check_language is not None:  # its words are cut by packages, which may not be here
      return self.meta == other.meta
    cut = lambda vocabulary: [ids.tolist() for ids in vocabulary.encode_batch(_LETTERS)]
    return self.meta == other.meta and cut(self) == cut(other)

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    """Returns the int32 ids of each text, without special tokens around them."""
    return [np.array(ids, np.int32) for ids in self._ids(texts, None)]

  def encode_unended(self, texts: Sequence[str]) -> list[np.ndarray]:
    """Encodes as `encode_batch`, without the token that ends a line where the vocabulary writes
    one: texts that others go on."""
    return [ids[:-1] if self.ends_lines else ids for ids in self.encode_batch(texts)]

  def encode_flat(
    self, texts: Sequence[str], languages: Sequence[str] | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Encodes as `encode_batch`, but end to end: the ids of all texts, int32, and the number of ids
    of each, int64 [texts]. The languages of the texts matter where `check_language` is given; None:
    all are in `language`."""
    ids = self._ids(texts, languages)
    length_n = np.fromiter(map(len, ids), np.int64, len(ids))
    flat = itertools.chain.from_iterable(ids)
    return np.fromiter(flat, np.int32, int(length_n.sum())), length_n

  def _ids(self, texts: Sequence[str], languages: Sequence[str] | None) -> list[list[int]]:
    if languages is None:
      languages = [self.language] * len(texts)
    said = () if self.check_language is None else (languages,)
    with refusals.panics(self.files[0]):
      return self._encode(list(texts), *said)

  def count_spelled(self, documents: Iterable[bytes]) -> int:
    """Counts the special tokens that some texts, as UTF-8, spell out."""
    pattern = self._spelled
    return sum(len(pattern.findall(document)) for document in documents) if pattern else 0

  @functools.cached_property
  def _spelled(self) -> re.Pattern[bytes] | None:
    names = as_text.names(self.pieces, self.special)
    return re.compile(b'|'.join(re.escape(name.encode()) for name in names)) if names else None

  def encode_spans(self, texts: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Encodes as `encode_flat`, and finds the characters of its text that each token covers.
    Returns int32 ids, int64 [texts] how many each has, int64 begin and int64 end of each token,
    which may cover the space before it or a part of a character's bytes. Raises UserError if the
    vocabulary keeps no offsets."""
    if self._spans is None:
      raise UserError(
        f'{self.files[0]}: units and spans need the offsets of tokens, which {self.type} '
        'does not keep: expected a WordPiece vocab.txt, byte-level BPE, or a tokenizer.json'
      )
    with refusals.panics(self.files[0]):
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

  @functools.cached_property
  def sentinels(self) -> list[int]:
    """Ids of <extra_id_0>, <extra_id_1>, .., which stand for spans of a text (T5)."""
    numbered = {int(m[1]): i for i, p in enumerate(self.pieces) if (m := _SENTINEL.fullmatch(p))}
    return [numbered[i] for i in range(len(numbered)) if i in numbered]

  @property
  def meta(self) -> dict[str, Any]:
    """The vocabulary block of store.json."""
    marks = dict(sentinels=self.sentinels) if self.sentinels else {}
    return marks | dict(
      type=self.type,
      size=self.size,
      sha256=self.sha256,
      special=dict(self.special),
      lowercase=self.lowercase,
      accents=self.accents,
    )

  def save(self, directory: pathlib.Path) -> None:
    """Copies the files to a directory from which `load_vocabulary` makes the same vocabulary. A
    file of its own name, bert-vocab.txt, gets the one that is looked for in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    alone = {'.txt': 'vocab.txt', '.json': 'tokenizer.json'} if len(self.files) == 1 else {}
    for file in self.files:
      (directory / alone.get(file.suffix, file.name)).write_bytes(file.read_bytes())
    config = dict(formats.settings_of(self.files[0]), do_lower_case=self.lowercase)
    if self.files[0].suffix == '.txt':
      config['strip_accents'] = not self.accents
    if self.type == 'bpe' and self.lowercase:
      config['tokenizer_class'] = 'PreTrainedTokenizerFast'  # RobertaTokenizer would not lowercase
    if added := special.inside(self.files[0], self.index):  # read instead of the other files
      config['added_tokens_decoder'] = {
        i: {key: getattr(token, key) for key in ('content', *special.FLAGS)}
        for i, token in added.items()
      }
    (directory / formats.CONFIG).write_text(json.dumps(config, indent=1), encoding='utf-8')


def load_vocabulary(path: str | pathlib.Path, lowercase: bool | None = None) -> Vocabulary:
  """Reads a vocabulary that a user names, wherever: the same path has the same ids or is refused.
  It names vocab.txt, vocab.json or merges.txt, a SentencePiece .model, tokenizer.json, codes_NAME
  of fastBPE, or a directory that holds one of them, tokenizer.json first; of a URL a copy is made.
  `lowercase` None: as the file or tokenizer_config.json says, else if no piece has a capital.
  UserError: no such file, no vocabulary, or files beside it that say of it what we do not do."""
  found = read_vocabulary(path, lowercase)
  beside.check(found, lowercase)
  return found


def read_vocabulary(path: str | pathlib.Path, lowercase: bool | None = None) -> Vocabulary:
  """Reads as `load_vocabulary` does, without a look beside: what was looked at when it came."""
  file = formats.find(copies.local(path, beside=True))
  try:
    return _vocabulary(formats.read(file, lowercase))
  except UserError as error:
    raise UserError(f'{file} cannot be read as a vocabulary: {error}') from error


def check_rows(vocabulary: Vocabulary | None, rows: int, where: str) -> None:
  """Refuses a vocabulary that is not the one of a model's word table; `where` says for people where
  both come from."""
  if vocabulary is not None and not rows / 2 <= vocabulary.size <= rows:
    raise UserError(
      f'the vocabulary of {where} has {vocabulary.size} ids, the word table {rows} rows: expected '
      'the vocabulary that the model was trained with'
    )


def much_unknown(share: float, of: str = 'tokens', remedy: str = '') -> str:
  """Returns a warning if this share of tokens, or `of` characters, is unknown; '' if it is small.
  The remedy is that of a text that `bertjax.vocab` has not read by default."""
  if share <= MUCH_UNKNOWN:
    return ''
  remedy = remedy or (
    'take one of more pieces, or of another --type (bpe has no unknown tokens); '
    '`python -m bertjax.vocab` says how many characters the text has and what --size keeps them'
  )
  return f'{share:.1%} of the {of} are unknown to the vocabulary, and lost: {remedy}'


def _vocabulary(found: formats.Found) -> Vocabulary:
  kind, coder, pieces = found.kind, found.coder, found.coder['pieces']
  index = {piece: i for i, piece in enumerate(pieces)}
  roles = special.of(index, kind)
  names = as_text.names(pieces, roles)
  symbols = special.inside(found.files[0], index)
  if rust := coder.get('tokenizer'):
    symbols |= rust.get_added_tokens_decoder()
  symbols = {i: token for i, token in symbols.items() if i < len(pieces)}
  if kind not in (*whole_words.END, 'fastbpe', 'openai_bpe'):  # which make none of text
    with refusals.theirs():  # an unknown piece, where there is no [UNK]
      coder = as_text.keep(coder, {name: index[name] for name in names})
      if kind == 'sentencepiece':
        own = {pieces[i]: i for i in symbols.keys() - {*roles.values()}}
        # A sentinel that lacks the sign of a space would leave the one before it alone, which no
        # text of the pretraining does.
        bare = {p: i for p, i in index.items() if p[:1] == '<' and _SENTINEL.fullmatch(p)}
        coder = dict(coder, _encode=as_text.with_symbols(coder['_encode'], own | bare, bare))
  starts = np.array([found.starts_word(piece) for piece in pieces], bool)
  starts[[*symbols, *(i for i in roles.values() if i is not None)]] = True
  return Vocabulary(
    type=kind,
    lowercase=found.lowercase,
    accents=found.accents,
    files=found.files,
    word_starts=starts,
    special=roles,
    sha256=hashlib.sha256(b''.join(file.read_bytes() for file in found.files)).hexdigest(),
    **coder,
  )
