"""Spans become sentinels, and a second text says what each stood for: T5's sizes.

Ids of sentinels count down from the last of the vocabulary; both texts end with [SEP], and the
second begins with id 0.
"""

import dataclasses

import numpy as np

from bertjax.data_contracts import Masking, Stream


@dataclasses.dataclass(frozen=True)
class Options:
  """Fields of `config.data.mask`."""

  rate: float
  mean: float
  static: bool
  short: int = 0  # columns by which `sizes` is wrong


def _hidden(options, tokens):
  tokens = np.asarray(tokens)
  hidden = np.clip(np.rint(tokens * options.rate), 1, np.maximum(tokens - 1, 1)).astype(int)
  return hidden, np.maximum(np.rint(hidden / options.mean), 1).astype(int)


def sizes(options, tokens):
  hidden, spans = _hidden(options, tokens)
  return dict(T=tokens - hidden + spans + 1, U=hidden + spans + 1 - options.short)


def raw(options, length):
  return max(n for n in range(1, 2 * length) if sizes(options, n)['T'] <= length)


def _cut(draw, total, parts):
  """Random sizes of so many parts, none empty where there is enough."""
  inner = np.sort(draw.permutation(total - 1)[: parts - 1]) + 1 if total > 1 else []
  return np.diff([0, *inner, total])


def corrupt(rows, options, store):
  made = {letter: ([], []) for letter in 'TU'}
  put = lambda letter, ids, sources: [
    x.extend(y) for x, y in zip(made[letter], (ids, sources), strict=True)
  ]
  start_E = np.cumsum(rows.length_E) - rows.length_E
  for start, length, key in zip(start_E, rows.length_E, rows.key_E, strict=True):
    hidden, spans = _hidden(options, length)
    draw, at = np.random.default_rng(int(key)), int(start)
    clean_s, noise_s = (_cut(draw, n, spans) for n in (int(length) - int(hidden), int(hidden)))
    for span, (clean, noise) in enumerate(zip(clean_s, noise_s, strict=True)):
      sentinel = store.vocabulary_size - 1 - span
      put('T', [*rows.token_n[at : at + clean], sentinel], [*range(at, at + clean), at + clean])
      at += clean
      put('U', [sentinel, *rows.token_n[at : at + noise]], [at, *range(at, at + noise)])
      at += noise
    for letter in 'TU':
      put(letter, [store.special['sep']], [at - 1])
  (token_m, source_m), (target_u, source_u) = (
    tuple(map(np.array, made[letter])) for letter in 'TU'
  )
  first_u = np.diff(rows.example_n[source_u], prepend=-1) > 0
  read_u = np.where(first_u, 0, np.roll(target_u, 1))
  field = dict(target=target_u, weight=np.ones(len(target_u), np.float32))
  return dict(T=Stream(token_m, source_m), U=Stream(read_u, source_u, field))


def check(options, store, length):
  """Asks for a sentinel of every span."""
  assert _hidden(options, length)[1] < store.vocabulary_size - max(store.special.values())


MASKING = Masking(Options, ('sep',), check, corrupt, raw=raw, sizes=sizes)
