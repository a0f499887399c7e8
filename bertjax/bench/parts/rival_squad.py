"""Questions to rows as transformers' question-answering example makes them to be learned.

examples/pytorch/question-answering/run_qa.py:prepare_train_features, on the batches of 1,000 in
which `datasets` hands them over, written anew: a call of the fast tokenizer for windows of
questions and texts, and a walk over the offsets of each window for the ends of its answer. Padding
is off, and nothing is written to a file.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bertjax.data.labelled.common.records import Record

BATCH = 1000  # of datasets.Dataset.map


class Row(NamedTuple):
  """A window.

  Attributes:
    question: number of the record.
    ids: of the row.
    ends: first and last column of the answer; those of [CLS] where the window lacks it.
  """

  question: int
  ids: list[int]
  ends: tuple[int, int]


def tokenizer_of(path: str, lowercase: bool) -> Any:
  """The fast tokenizer of a directory of transformers, or of BERT's vocab.txt."""
  import transformers

  if pathlib.Path(path).is_dir():
    return transformers.AutoTokenizer.from_pretrained(path)
  return transformers.BertTokenizer(path, do_lower_case=lowercase)


def prepare(
  tokenizer: Any, records: Sequence[Record], length: int, overlap: int
) -> Callable[[], list[Row]]:
  """The preparation of all questions as a call.

  Args:
    tokenizer: of `tokenizer_of`.
    records: the questions, ready in memory.
    length: tokens of a row.
    overlap: tokens that a window shares with the one before it: --doc_stride.
  """

  def call() -> list[Row]:
    rows = []
    for start in range(0, len(records), BATCH):
      rows += _batch(tokenizer, records[start : start + BATCH], start, length, overlap)
    return rows

  return call


def _batch(tokenizer: Any, records: Sequence[Record], start: int, length: int, overlap: int):
  """The rows of a batch, whose questions are numbered from `start` on."""
  made = tokenizer(
    [record.values['question'].lstrip() for record in records],
    [record.values['context'] for record in records],
    truncation='only_second', max_length=length, stride=overlap, padding=False,
    return_overflowing_tokens=True, return_offsets_mapping=True,
  )  # fmt: skip
  of_window, offsets = made['overflow_to_sample_mapping'], made['offset_mapping']
  for window, ids in enumerate(made['input_ids']):
    answers = records[of_window[window]].values['answers']
    cls = ids.index(tokenizer.cls_token_id)
    ends = _ends(made.sequence_ids(window), offsets[window], answers[0]) if answers else None
    yield Row(start + of_window[window], ids, ends or (cls, cls))


def _ends(sides: list[int | None], offsets: list[tuple[int, int]], answer: Any):
  """The columns of an answer; None where the window does not hold all of it."""
  begin, end = answer.begin, answer.begin + len(answer.text)
  first, last = 0, len(sides) - 1
  while sides[first] != 1:
    first += 1
  while sides[last] != 1:
    last -= 1
  if offsets[first][0] > begin or offsets[last][1] < end:
    return None
  while first < len(offsets) and offsets[first][0] <= begin:
    first += 1
  while offsets[last][1] >= end:
    last -= 1
  return first - 1, last + 1
