"""The lines of metrics.jsonl, as they are read back."""

import pathlib
from typing import Any

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.machine import remote


def read(path: remote.Place) -> list[tuple[bytes, dict[str, Any]]]:
  """Every line and what it says; a line torn by a kill, the last one, is left out. Raises UserError
  if a line before it is torn or damaged; it is named."""
  lines = path.read_bytes().splitlines(keepends=True)
  if lines and not lines[-1].endswith(b'\n'):
    lines.pop()
  return [(line, _row(path, number, line)) for number, line in enumerate(lines, 1)]


def of_run(workdir: pathlib.Path | str) -> list[dict[str, Any]]:
  """Returns what the lines of a run say, [] before its first one; errors as `read`."""
  path = remote.path(workdir) / 'metrics.jsonl'
  return [row for _, row in read(path)] if path.exists() else []


def _row(path: remote.Place, number: int, line: bytes) -> dict[str, Any]:
  try:
    row = json_files.loads(line)
    if type(row['step']) is not int:
      raise TypeError('its step is no whole number')
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(
      f'{path}, line {number}: expected a JSON object with a step, got {line[:60]!r} ({error}). '
      'Mend the line or remove it'
    ) from None
  return row
