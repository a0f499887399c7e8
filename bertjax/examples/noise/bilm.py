"""Language modelling in both directions: each token is predicted from what was read before it.

  row      w3 w4 </s> w1 w2 | w9 w8 </s> w7 w6
  T        w3 w4 <s>  w1      targets  w4 </s> w1 w2
  U        w9 w8 </s> w7      targets  w8 <s>  w7 w6

A row holds both texts (plans/bilm_columns.py). One token stands between two sentences, which reads
as their beginning and is predicted as their end, or the other way round, as the text is read:
allenai/bilm-tf, bilm/data.py.
"""

import dataclasses

import numpy as np

from bertjax.data_contracts import Masking, Stream
from bertjax.examples.layout import Rows


@dataclasses.dataclass(frozen=True)
class Options:
  """Nothing is drawn and nothing is to be chosen."""


def corrupt(rows: Rows, options: Options, store) -> dict[str, Stream]:
  """Makes both texts: what is read, with `target` and `weight`."""
  del options
  begin, end = store.special['cls'], store.special['sep']
  first_n = rows.position_n < rows.ranges.row['second'][rows.example_n]
  token_m, target_m, source_m = _text(rows, first_n)
  read_m = np.where(token_m == end, begin, token_m)
  other_m, other_target_m, other_source_m = _text(rows, ~first_n)
  other_target_m = np.where(other_target_m == end, begin, other_target_m)
  return dict(
    T=_stream(read_m, target_m, source_m), U=_stream(other_m, other_target_m, other_source_m)
  )


def _text(rows: Rows, chosen_n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns tokens, the ones after them, and the places of the former, of a part of each row."""
  (at_m,) = np.nonzero(chosen_n)
  border_m = np.diff(rows.example_n[at_m]) > 0
  last_m, first_m = np.append(border_m, True), np.append(True, border_m)
  return rows.token_n[at_m[~last_m]], rows.token_n[at_m[~first_m]], at_m[~last_m]


def _stream(token_m: np.ndarray, target_m: np.ndarray, source_m: np.ndarray) -> Stream:
  field = dict(target=target_m.astype(np.int32), weight=np.ones(len(target_m), np.float32))
  return Stream(token_m.astype(np.int32), source_m, field)


MASKING = Masking(
  Options,
  ('cls', 'sep', 'pad'),
  lambda options, store, length: None,
  corrupt,
  row=('second',),
  raw=lambda options, length: 2 * length + 2,
  sizes=lambda options, tokens: dict(T=tokens // 2 - 1, U=tokens // 2 - 1),
)
