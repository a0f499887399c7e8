"""Texts as the rows that a model takes."""

import pathlib
from collections.abc import Iterable, Sequence

from bertjax.errors import UserError, warn
from bertjax.formats.sentence_modules import ANY
from bertjax.text import sentences as sentences_lib
from bertjax.text.sentences import Frame, Sentence
from bertjax.vocab.vocabulary import Vocabulary


def listed(texts: Iterable[str], first: int = 1) -> list[str]:
  """Returns texts as a list; the first has the number `first` in messages. Raises UserError if it
  is none: a text alone would be a list of characters; or a text has half of a surrogate pair, as
  what a shell hands on of bytes that are no UTF-8."""
  if isinstance(texts, str):
    raise UserError(f'expected a list of texts, got the text {texts[:40]!r}: write [text]')
  if not isinstance(texts, Iterable):
    raise UserError(f'expected a list of texts, got {texts!r:.40}')
  found = list(texts)
  for number, text in enumerate(found, first):
    if not isinstance(text, str):
      raise UserError(f'expected a list of texts, got {text!r} in place {number}')
    try:
      text.encode()
    except UnicodeEncodeError as error:
      raise UserError(
        f'text {number} is no text in UTF-8: character {error.start + 1} is {text[error.start]!r}'
      ) from error
  return found


class Texts:
  """Encodes texts for one model.

  Attributes:
    vocabulary: of the texts.
  """

  def __init__(self, source: pathlib.Path, vocabulary: Vocabulary, frame: Frame, room: int | None):
    """Takes the source of the model, for messages, and the tokens that it takes at most, special
    ones included; None: any number."""
    self.vocabulary = vocabulary
    self._source, self._frame, self._room = source, frame, room
    self._said = False

  def plain(self, texts: Iterable[str], cut: bool, first: int, length: int = ANY) -> list[Sentence]:
    """Returns the texts as they are, of at most `length` tokens where the model takes more; with
    `cut` one that is too long is cut, which is said once. Raises UserError: as `listed`; without
    `cut`, a text that is too long."""
    found = sentences_lib.encode(listed(texts, first), self.vocabulary, self._frame)
    return self._fitting(found, cut, first, length)

  def with_blanks(self, texts: Iterable[str], cut: bool, first: int) -> list[Sentence]:
    """Encodes texts as `plain` does; each has one blank or more. Raises UserError: as `plain`; a
    text without a blank, a vocabulary without a mask token."""
    blank = sentences_lib.BLANK
    whole = sentences_lib.encode_blanks(listed(texts, first), self.vocabulary, self._frame)
    found = self._fitting(whole, cut, first)
    for number, (given, sentence) in enumerate(zip(whole, found, strict=True), first):
      if not given.blanks:
        raise UserError(f'text {number} has nothing to fill in: expected {blank} in it')
      if not sentence.blanks:
        raise UserError(
          f'text {number} has its {blank} after the {self._room} tokens that {self._source} takes: '
          'shorten it'
        )
    return found

  def piece(self, number: int) -> str:
    """Returns a token as the vocabulary spells it; '' for a row of the table that it does not
    use."""
    pieces = self.vocabulary.pieces
    return pieces[number] if number < len(pieces) else ''

  def text(self, number: int) -> str:
    """Returns a token as it stands in a text."""
    if self.vocabulary.type != 'bpe' or number in self.vocabulary.special.values():
      return self.piece(number)
    return self.vocabulary.decode([number]) if self.piece(number) else ''

  def check_rows(self, sizes: Sequence[int], room: int | None, cut: bool, first: int) -> None:
    """Refuses texts of more tokens, special ones included, than `room`, None: any number; with
    `cut` says once that such are cut."""
    for number, size in enumerate(sizes, first):
      if room is None or size <= room:
        continue
      said = f'text {number} has {size} tokens with the special ones'
      if not cut:
        raise UserError(
          f'{said}, and {self._source} takes {room}: shorten it, or ask for texts to be cut '
          '(--cut, cut=True)'
        )
      if not self._said:
        warn('%s: it is cut to %d, and so is all that is longer', said, room)
        self._said = True

  def _fitting(
    self, found: list[Sentence], cut: bool, first: int, length: int = ANY
  ) -> list[Sentence]:
    room = min(self._room or length, length)
    self.check_rows([len(sentence.id_n) for sentence in found], room, cut, first)
    return [sentences_lib.cut(sentence, room, self._frame) for sentence in found]
