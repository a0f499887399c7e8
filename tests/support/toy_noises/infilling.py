"""Spans of any length become one [MASK] each, and the second text is the whole: BART's."""

import dataclasses

import numpy as np

from bertjax.data_contracts import Masking, Stream


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`."""

  rate: float
  mean: float
  static: bool


def _budget(options, tokens):
  return np.ceil(options.rate * np.asarray(tokens)).astype(int)


def sizes(options, tokens):
  # At worst every span is empty: as many masks are inserted as tokens would be hidden.
  return dict(T=tokens + _budget(options, tokens), U=tokens)


def raw(options, length):
  return max(n for n in range(1, length) if sizes(options, n)['T'] <= length)


def corrupt(rows, options, store):
  token_m, source_m = [], []
  start_E = np.cumsum(rows.length_E) - rows.length_E
  for start, length, key in zip(start_E, rows.length_E, rows.key_E, strict=True):
    draw, budget = np.random.default_rng(int(key)), int(_budget(options, length))
    size_s = draw.poisson(options.mean, budget)
    size_s = size_s[: int(np.searchsorted(np.cumsum(size_s), budget)) + 1]
    spans = dict(zip(draw.permutation(int(length)), size_s, strict=False))
    hidden_until = 0
    for offset in range(int(length)):
      if offset in spans:
        token_m.append(store.special['mask'])
        source_m.append(start + offset)
        hidden_until = max(hidden_until, offset + spans[offset])
      if offset >= hidden_until:
        token_m.append(rows.token_n[start + offset])
        source_m.append(start + offset)
  every_u = np.arange(len(rows.token_n))
  read_u = np.where(rows.position_n == 0, store.special['sep'], np.roll(rows.token_n, 1))
  field = dict(target=rows.token_n, weight=np.ones(len(every_u), np.float32))
  return dict(T=Stream(np.array(token_m), np.array(source_m)), U=Stream(read_u, every_u, field))


MASKING = Masking(
  Options, ('sep', 'mask'), lambda options, store, length: None, corrupt, raw=raw, sizes=sizes
)
