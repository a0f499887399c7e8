"""Language modelling in both directions: each token is predicted from what was read before it.

  row      w3 w4 </s> w1 w2 | w9 w8 </s> w7 w6
  T        w3 w4 <s>  w1      targets  w4 </s> w1 w2
  U        w9 w8 </s> w7      targets  w8 <s>  w7 w6

A row holds both texts (plans/bilm_columns.py). One token stands between two sentences, which reads
as their beginning and is predicted as their end, or the other way round, as the text is read:
allenai/bilm-tf, bilm/data.py. Words may be spelled, so that those that the softmax lacks are read.
"""

import dataclasses

import numpy as np

from bertjax.data_contracts import Masking, Stream
from bertjax.errors import UserError
from bertjax.examples import spelling
from bertjax.examples.layout import Rows
from bertjax.field_types import Natural


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`; nothing is drawn.

  Attributes:
    characters: W, of a word as the model reads it, its marks included; 0: it reads words by number.
    words: ids from this one on are predicted as <unk>, whatever is read; 0: none.
  """

  characters: Natural = 0
  words: Natural = 0


def check(options: Options, store, length: int) -> None:
  """Refuses fewer characters than a mark, a byte and a mark, and a vocabulary without <unk>."""
  if 0 < options.characters < 3:
    raise UserError(
      f'config.data.mask.characters: got {options.characters}, two of which mark the ends of a '
      'word: expected 3 at least, or 0'
    )
  if options.words and store.special['unk'] is None:
    raise UserError(
      f'config.data.mask.words={options.words} predicts rarer words as <unk>, which the vocabulary '
      'of the store lacks: set it to 0'
    )


def corrupt(rows: Rows, options: Options, store) -> dict[str, Stream]:
  """Makes both texts: what is read, with `target` and `weight`; `character` if it is spelled."""
  begin, end = store.special['cls'], store.special['sep']
  first_n = rows.position_n < rows.ranges.row['second'][rows.example_n]
  token_m, target_m, source_m = _text(rows, first_n)
  read_m = np.where(token_m == end, begin, token_m)
  other_m, other_target_m, other_source_m = _text(rows, ~first_n)
  other_target_m = np.where(other_target_m == end, begin, other_target_m)
  return dict(
    T=_stream(store, options, '', read_m, target_m, source_m),
    U=_stream(store, options, 'out_', other_m, other_target_m, other_source_m),
  )


def _text(rows: Rows, chosen_n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns tokens, the ones after them, and the places of the former, of a part of each row."""
  (at_m,) = np.nonzero(chosen_n)
  border_m = np.diff(rows.example_n[at_m]) > 0
  last_m, first_m = np.append(border_m, True), np.append(True, border_m)
  return rows.token_n[at_m[~last_m]], rows.token_n[at_m[~first_m]], at_m[~last_m]


def _stream(store, options: Options, prefix: str, token_m, target_m, source_m) -> Stream:
  if options.words:
    target_m = np.where(target_m < options.words, target_m, store.special['unk'])
  field = dict(target=target_m.astype(np.int32), weight=np.ones(len(target_m), np.float32))
  if options.characters:
    field[f'{prefix}character'] = spelling.table(store, options.characters)[token_m]
  return Stream(token_m.astype(np.int32), source_m, field)


MASKING = Masking(
  Options,
  ('cls', 'sep', 'pad'),
  check,
  corrupt,
  row=('second',),
  raw=lambda options, length: 2 * length + 2,
  sizes=lambda options, tokens: dict(T=tokens // 2 - 1, U=tokens // 2 - 1),
  targets=('both_ways',),
)
