"""Two texts of an example by a mask of its tokens: T5's, google-research/text-to-text-transfer-
transformer, t5/data/preprocessors.py. The noises `t5_*` are made of it.

  tokens   a b c d e f      mask   . . x x . x
  inputs   a b <0> e <1> </s>      targets   <0> c d <1> f </s>

A run of hidden tokens becomes a sentinel, numbered from the first run of its text on, so the two
texts agree where a text begins with what is not hidden. Both end with </s> (`sep`); the second is
read one token late, behind START.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Masking, Stream
from bertjax.errors import UserError
from bertjax.examples import targets
from bertjax.examples.layout import Rows, in_turn, ragged, ranks, shifted, starts

START = 0  # T5's padding; models/t5.py begins to write with it in any vocabulary


def hidden(tokens: Any, rate: float) -> np.ndarray:
  """Returns the number of hidden tokens of so many, int64: float32 and half to even, at least 1 and
  not all, as the original's mask."""
  tokens = np.asarray(tokens, np.int64)
  rounded = np.rint(tokens.astype(np.float32) * np.float32(rate)).astype(np.int64)
  return np.clip(rounded, 1, np.maximum(tokens - 1, 1))


def spans(hidden_n: np.ndarray, mean: float) -> np.ndarray:
  """Returns the number of runs that so many hidden tokens are cut into, at least 1."""
  rounded = np.rint(hidden_n.astype(np.float32) / np.float32(mean)).astype(np.int64)
  return np.maximum(rounded, 1)


def promised(tokens: int, rate: float, mean: float) -> tuple[int, int]:
  """Returns the lengths that the original's `random_spans_helper` promises for both texts. Its
  arithmetic is Python's float64 and has no least number of runs, so the texts may be longer."""
  hidden_tokens = int(round(tokens * rate))
  runs = int(round(hidden_tokens / mean))
  return tokens - hidden_tokens + runs + 1, hidden_tokens + runs + 1


def taken(length: int, rate: float, mean: float) -> int:
  """Returns the tokens of text that the helper puts into inputs of so many columns: 568 for 512."""
  tokens = length - 1
  while promised(tokens + 1, rate, mean)[0] <= length:
    tokens += 1
  inputs, targets = promised(tokens, rate, mean)
  return tokens - (rate == 0.5 and targets > inputs)


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask` of a noise by which either text may get all tokens.

  Attributes:
    static: the same texts in every epoch.
  """

  static: bool


def of_all_tokens(corrupt: Callable[[Rows, Options, Any], dict[str, Any]]) -> Masking:
  """Returns such a noise, which needs no sentinels."""
  none = lambda options, store, length: None
  return Masking(Options, ('sep', 'pad'), none, corrupt, raw=raw, sizes=sizes, targets=('written',))


def raw(options: Any, length: int) -> int:
  """Returns the tokens of text that fill rows of so many columns if either text may have all of
  them, and its end: `Masking.raw`."""
  return length - 1


def sizes(options: Any, tokens: Any) -> dict[str, Any]:
  """Returns the columns of both texts if either may have all tokens, and its end."""
  return dict(T=tokens + 1, U=tokens + 1)


def cut(key_E: np.ndarray, site: int, total_E: np.ndarray, parts_E: np.ndarray) -> np.ndarray:
  """Cuts each total into so many parts of 1 and more, every way equally likely. Returns int64, the
  sizes of all parts, example by example."""
  between_E = total_E - 1
  example_n, place_n = ragged(between_E)
  drawn_n = counter_rng.fold(counter_rng.fold(key_E, site)[example_n], place_n)
  ends_n = ranks(drawn_n, example_n) < (parts_E - 1)[example_n]
  end_n = place_n[ends_n] + 1 + starts(total_E)[example_n[ends_n]]
  edge_n = np.sort(np.concatenate([end_n, starts(total_E), [total_E.sum()]]))
  return np.diff(edge_n)


def span_mask(rows: Rows, rate: float, mean: float, sites: tuple[int, int]) -> np.ndarray:
  """Returns which tokens are hidden, bool [n]: clean and hidden runs of random lengths in turn, a
  clean one first. An example of one token keeps it."""
  length_E = np.maximum(rows.length_E, 2)
  hidden_E = hidden(length_E, rate)
  runs_E = np.minimum(spans(hidden_E, mean), length_E - hidden_E)
  clean_s = cut(rows.key_E, sites[0], length_E - hidden_E, runs_E)
  hidden_s = cut(rows.key_E, sites[1], hidden_E, runs_E)
  sizes_s = in_turn(clean_s, hidden_s)
  mask_n = np.repeat(np.arange(len(sizes_s)) % 2 == 1, sizes_s)
  example_n, place_n = ragged(length_E)
  return mask_n[place_n < rows.length_E[example_n]]


def collapsed(
  rows: Rows, mask_n: np.ndarray, sentinel_k: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Puts a sentinel in place of each run of the mask, in their order; of one alone every run is
  that one. Returns ids of the text, and the token of `rows` that each stands for."""
  follows_n = np.append(False, mask_n[:-1]) & (rows.position_n > 0)  # runs end with their example
  first_n = mask_n & ~follows_n
  number_n = targets.running(first_n, rows.example_n, len(rows.length_E)) - 1
  number_n = np.minimum(number_n, len(sentinel_k) - 1)
  id_n = np.where(first_n, sentinel_k[np.maximum(number_n, 0)], rows.token_n)
  (kept_m,) = np.nonzero(first_n | ~mask_n)
  return id_n[kept_m].astype(np.int32), kept_m


def text(rows: Rows, id_m: np.ndarray, source_m: np.ndarray, store: Any) -> Stream:
  """Returns a text whose examples end with </s>, those without tokens of their own too."""
  example_m = rows.example_n[source_m]
  examples = len(rows.length_E)
  last_E = starts(rows.length_E) + rows.length_E - 1
  at_E = np.searchsorted(example_m, np.arange(examples), 'right')
  id_m = np.insert(id_m, at_E, store.special['sep']).astype(np.int32)
  return Stream(id_m, np.insert(source_m, at_E, last_E))


def target(rows: Rows, id_m: np.ndarray, source_m: np.ndarray, store: Any) -> Stream:
  """Returns `text` as a decoder's, see `layout.shifted`."""
  return shifted(rows, text(rows, id_m, source_m, store), START)


def check(store, needed: int, length: int) -> None:
  """Refuses a vocabulary with fewer sentinels than a row may have runs. Raises UserError, which
  says how many there are, and what brings them."""
  have = len(store.sentinels)
  if needed > have:
    raise UserError(
      f'{store.path}: {length} tokens may have {needed} hidden runs, each with a sentinel of its '
      'own: expected a vocabulary with as many pieces <extra_id_0>, <extra_id_1>, .., got '
      f'{have}; train one of type t5, or take shorter rows'
    )
