"""JSON lines: an object a line, a field of which is a document. Dots lead into objects, `a.b.c`."""

import json
import re
from collections.abc import Iterable, Iterator

from bertjax.text import left_out as left_out_lib
from bertjax.text.formats import Reading, Said, joined
from bertjax.text.left_out import Wrong

_HALF = re.compile('[\ud800-\udc7f\udd00-\udfff]')  # but what stands for bytes that are not UTF-8


def documents(lines: Iterable[bytes], reading: Reading) -> Iterator[tuple[bytes, Said]]:
  """Yields the text of each object, and the columns that it has. Raises UserError: a line that is
  no object with this text, and may not be left out."""
  replace = reading.errors == 'replace'
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    place = f'{reading.path}, line {number}'
    wrong = left_out_lib.wrong_with(line, reading.errors)
    if wrong:
      reading.left_out.refuse(place, wrong)
      continue
    try:
      # Bytes that are not UTF-8 come back from the surrogates as they were.
      value = json.loads(line.decode('utf-8', 'surrogateescape'))
      text = _find(value, reading.field)
      said = {name: joined(value[name]) for name in reading.columns if name in value}
      encoded = _encoded(text, replace)
    except UnicodeEncodeError as error:
      half = error.object[error.start]
      what = f'expected text, got half of a surrogate pair, {half!r}, as where an emoji was cut'
      reading.left_out.refuse(place, Wrong(what, 'Mend the line, or take --errors=replace'))
      continue
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
      what = (
        f'expected a JSON object with a string {reading.field!r}, got {line[:60]!r} '
        f'({type(error).__name__}: {error})'
      )
      reading.left_out.refuse(place, Wrong(what, _remedy(line)))
      continue
    yield encoded, said


def _encoded(text: str, replace: bool) -> bytes:
  """Returns UTF-8; with `replace` other bytes stay, and half of a surrogate pair is U+FFFD."""
  if not replace:
    return text.encode()
  return _HALF.sub('\ufffd', text).encode('utf-8', 'surrogateescape')


def _find(value, field: str):
  """Returns the value of a field; where no field is called so, dots lead into the objects in it."""
  if field in value or '.' not in field:
    return value[field]
  for name in field.split('.'):
    value = value[name]
  return value


def _remedy(line: bytes) -> str:
  if line.strip() in (b'{', b'['):
    return 'One value over many lines is not read: make lines of it, e.g. with jq -c'
  if line.lstrip().startswith(b'['):
    return "An array is not read: make lines of it, e.g. with jq -c '.[]'"
  return 'Name another field with --field, a.b.c where it lies in objects'
