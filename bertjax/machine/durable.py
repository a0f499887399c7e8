"""Files that are there whole or not at all, also after a power cut."""

import json
import os
import pathlib
from typing import Any


def write_json(path: pathlib.Path, value: Any) -> None:
  """Replaces a JSON file in one durable step."""
  temporary = path.with_name(path.name + '.tmp')
  # Half a surrogate pair, which names of files may hold, becomes JSON's own escape for it.
  with open(temporary, 'w', encoding='utf-8', errors='backslashreplace') as file:
    json.dump(value, file, indent=1, ensure_ascii=False)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)
  sync(path.parent)


def sync(path: pathlib.Path) -> None:
  """Flushes a file or a directory to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
