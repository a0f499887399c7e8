"""Every piece of a vocabulary has one id: files that say a piece twice are refused."""

from collections.abc import Iterable
from typing import Any

from bertjax.errors import UserError
from bertjax.vocab import refusals


def unique_pieces(pieces: Iterable[str], what: str = 'line') -> dict[str, int]:
  """piece -> its number, from 0. Raises UserError if a piece comes twice; both places are named,
  the first is 1.

  Args:
    what: each of them is in its file.
  """
  index: dict[str, int] = {}
  for number, piece in enumerate(pieces):
    before = index.setdefault(piece, number)
    if before != number:
      raise UserError(
        f'the piece {piece!r} is {what} {before + 1} and again {what} {number + 1}: expected every '
        'piece once. Mend the file, or train a vocabulary with `python -m bertjax.vocab`'
      )
  return index


def unique_keys(text: str) -> Any:
  """Returns a JSON value, in whose objects every key comes once. Raises UserError if it is none, or
  a key comes twice; both places are named."""
  return refusals.json_of(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  found = dict(pairs)
  if len(found) < len(pairs):
    seen: dict[str, Any] = {}
    for number, (key, value) in enumerate(pairs, 1):
      if key in seen:
        raise UserError(
          f'{key!r} is entry {seen[key][0]} of its object, with the value {seen[key][1]!r}, and '
          f'again entry {number}, with {value!r}: expected every piece once'
        )
      seen[key] = number, value
  return found
