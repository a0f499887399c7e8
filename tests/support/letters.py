"""A vocabulary of letters, whose ids are their bytes."""

from collections.abc import Mapping, Sequence

import numpy as np


class Letters:
  """A piece for each letter; none for what is not ASCII, or stands around a text where that is
  `stripped`."""

  ends_lines = False

  def __init__(self, special: Mapping[str, int | None], stripped: bool = False):
    self.special, self._stripped = special, stripped

  def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
    pieces = (text.strip() if self._stripped else text for text in texts)
    return [np.frombuffer(each.encode('ascii', 'ignore'), np.uint8).astype('i4') for each in pieces]

  encode_unended = encode_batch
