"""Token stores of documents that a test writes down."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.store.writer import Writer, remove_sides


def write_store(
  path: str | pathlib.Path,
  documents: Sequence[Sequence[Sequence[int]]],
  vocabulary: Mapping[str, Any],
  word_starts: np.ndarray | None = None,
  units: Sequence[Sequence[Sequence[int]]] = (),
  columns: Mapping[str, Sequence[Sequence[int]]] = {},
  languages: Sequence[str] = (),
) -> None:
  """Writes a small store from memory.

  Args:
    documents: ids of each sentence of each document; none is empty.
    vocabulary: {'type', 'size', 'sha256', 'special'}.
    word_starts: bool [V]; all True if None.
    units: as the documents, of a store with units.
    columns: name -> an integer for each sentence of each document.
    languages: names, by their number in the column `language`.
  """
  writer = Writer(pathlib.Path(path), vocabulary['size'], (), bool(units), tuple(columns))
  flat = lambda nested: [value for each in nested for value in each]
  sentences = flat(documents)
  writer.add(
    np.array(flat(sentences), np.int64),
    np.array([*map(len, sentences)], np.int64),
    np.array([*map(len, documents)], np.int64),
    np.array(flat(flat(units)), np.uint8) if units else None,
    {name: np.array(flat(values), np.uint8) for name, values in columns.items()},
  )
  writer.cut()
  starts = np.ones(vocabulary['size'], bool) if word_starts is None else word_starts
  writer.finish(
    starts, dict(name='memory', vocabulary=vocabulary, source=[], languages=list(languages))
  )
  remove_sides(writer.path)
