"""The id of [PAD], which a model's config leaves to the vocabulary.

In `config.model`, -1 stands for it: `position_offset` is then the id behind it, `zero_row` the id
itself. fairseq has its pad at 1, so RoBERTa's positions begin at 2; a WordPiece vocabulary has it
at 0.
"""

from typing import Any

from bertjax.errors import UserError

UNKNOWN = -1


def fill(model: Any, pad: int | None) -> None:
  """Replaces -1 in a `config.model`, in place; pad is None where no vocabulary is known, and then
  no row starts at zero."""
  if 'zero_row' in model and model.zero_row == UNKNOWN:
    model.zero_row = pad
  if 'position_offset' in model and model.position_offset == UNKNOWN and pad is not None:
    model.position_offset = pad + 1


def check(position_offset: int, zero_row: int | None) -> None:
  """Refuses what nothing has filled in. Raises UserError, which says which field."""
  for name, value in (('position_offset', position_offset), ('zero_row', zero_row)):
    if value == UNKNOWN:
      raise UserError(
        f'config.model.{name}={UNKNOWN} is for the vocabulary to say, and there is none: give it '
        'as a number, or a vocabulary'
      )
