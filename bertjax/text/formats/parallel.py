"""Parallel text: two files of as many lines, or the first two columns of one TSV without a header;
each pair of lines is a document of two lines.
"""

import pathlib
from collections.abc import Iterator, Sequence

from bertjax.text import left_out as left_out_lib
from bertjax.text.left_out import LeftOut, Wrong


def documents(
  sides: Sequence[Iterator[bytes]],
  paths: Sequence[pathlib.Path],
  errors: str,
  left_out: LeftOut,
) -> Iterator[bytes]:
  """Yields pairs of lines, of two files or of the columns of one. Raises UserError for a line that
  is no text or has no second column, unless `left_out` takes the pair."""
  for number, lines in enumerate(zip(*sides, strict=True), 1):
    wrongs = [left_out_lib.wrong_with(line, errors) for line in lines]
    pair = [line.strip(b'\r\n') for line in lines]
    if len(pair) == 1:
      pair = pair[0].split(b'\t')[:2]
      if len(pair) < 2 and not wrongs[0]:
        what = f'expected two columns with a TAB between them, got {lines[0][:60]!r}'
        wrongs[0] = Wrong(what)
    wrong = next(((p, w) for p, w in zip(paths, wrongs, strict=True) if w), None)
    if wrong:
      left_out.refuse(f'{wrong[0]}, line {number}', wrong[1])
    else:
      yield b'\n'.join(pair)
