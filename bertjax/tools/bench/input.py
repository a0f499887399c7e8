"""python -m bertjax.bench input: masked batches, and the plans behind them.

  python -m bertjax.bench input --config=configs/bert.py:base --batch_size=256 --length=128

Ours builds batches through the loader in one process and one thread, from the token store that
`config.data.store` names or from a made-up one. Its rival is `DataCollatorForLanguageModeling` of
transformers, fed the same rows as ready lists from memory. `ratio` is our real tokens/s over that
of the collator's torch path, its default. Plans are built from made-up offsets, without tokens.
"""

import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from bertjax.config import command_line
from bertjax.data_contracts import Plan, Spec
from bertjax.examples import examples as examples_lib
from bertjax.examples import loader, packing, recipes
from bertjax.examples.plans import blocks, pairs
from bertjax.store.reader import open_store
from bertjax.store.writer import Writer
from bertjax.tools.bench.parts import rival_input, timing

SIZE = 30522  # of bert-base-uncased, and its special ids
PASSES, PACK = 10, 8  # of pairs; documents of a packed row at most
SPECIAL = dict(pad=0, unk=100, cls=101, sep=102, mask=103, eod=104, eos=105)

_CONFIG = command_line.define_config()
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 256, 'Rows per batch.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens per row.', lower_bound=8)
_CALLS = flags.DEFINE_integer('calls', 30, 'Timed batches of each side.', lower_bound=1)
_SENTENCES = flags.DEFINE_integer('sentences', 3_000_000, 'Sentences to plan.', lower_bound=1000)
flags.mark_flag_as_required('config')


class Offsets(NamedTuple):
  """A store without tokens: all that plans read."""

  path: str
  sentences: np.ndarray
  documents: np.ndarray
  columns: Mapping[str, np.ndarray] = {}


def random_sizes(sentences: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns (tokens of each sentence, sentences of each document): means of 25 and 15."""
  rng = np.random.default_rng(seed)
  sizes = np.minimum(rng.geometric(1 / 15, sentences // 15), 1000)
  return 1 + rng.poisson(24, int(sizes.sum())), sizes


def random_store(path: pathlib.Path, sentences: int, seed: int) -> None:
  """Writes a store of random ids, with units of two tokens on average and two roles."""
  length_S, size_D = random_sizes(sentences, seed)
  rng = np.random.default_rng(seed)
  writer = Writer(path, SIZE, units=True, columns=('role',))
  tokens = int(length_S.sum())
  unit_n = rng.integers(0, 2, tokens).astype(np.uint8)
  unit_n[np.cumsum(length_S) - length_S] = 1
  role = dict(role=np.arange(len(length_S)) % 2)
  writer.add(rng.integers(1000, SIZE, tokens), length_S, size_D, unit_n, role)
  writer.cut()
  vocabulary = dict(type='random', size=SIZE, sha256='', special=SPECIAL)
  word_starts = rng.random(SIZE) < 0.8
  writer.finish(word_starts, dict(name='random', vocabulary=vocabulary, source=[]))


def plan_rates(length: int, sentences: int, seed: int, passes: int = PASSES) -> dict[str, Any]:
  """Returns sentences per second of building pairs, which make so many passes over them, and of
  packing document sentences into rows."""
  length_S, size_D = random_sizes(sentences, seed)
  until = lambda sizes: np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
  store = Offsets('made-up offsets', until(length_S), until(size_D))

  def made(plan: Plan, options: Any) -> np.ndarray:
    pieces = plan.build(store, Spec(options, length, seed))
    return np.concatenate([columns['length'] for columns, _ in pieces])

  def pairs_made() -> int:
    return len(made(pairs.PLAN, pairs.Options(passes, 0.1)))

  def packed() -> int:
    length_E = made(blocks.PLAN, blocks.Options('complete_doc', True))
    return sum(len(count) for _, count in packing.pack(length_E, length, PACK))

  rates: dict[str, Any] = dict(sentences=len(length_S), passes=passes)
  for name, build, read in (('pairs', pairs_made, passes), ('packed', packed, 1)):
    start = time.perf_counter()
    count = build()
    seconds = time.perf_counter() - start
    rates[name] = dict(
      seconds=round(seconds, 3),
      made=count,
      sentences_per_second=round(read * len(length_S) / seconds),
    )
  return rates


def run(config: Any, store_path: str, calls: int) -> dict[str, Any]:
  """Times both sides on a store, so many calls each in alternation. Returns of each the median
  seconds of a batch and its real tokens/s, and the ratios."""
  store = open_store(store_path)
  examples = examples_lib.make_examples(
    store, config.data, config.length, config.seed, rows=config.batch_size
  )
  warmup = 3
  stream = loader.train_batches(examples, config.batch_size, threads=0)
  rows = rival_input.features(examples, config.batch_size, warmup + calls)
  real = sum(len(row['input_ids']) for batch in rows[warmup:] for row in batch) / calls
  mask = config.data.mask
  rate = mask.rate if 'rate' in mask else recipes.BERT_MASK['rate']
  arms = dict(
    ours=lambda: next(stream),
    transformers=_collate(store, rate, rows, 'pt'),
    transformers_numpy=_collate(store, rate, rows, 'np'),
  )
  seconds = timing.alternate(arms, calls, warmup)
  median = {name: float(np.median(each)) for name, each in seconds.items()}
  return dict(
    plan=config.data.plan.name,
    real_tokens_per_batch=round(real, 1),
    **{name: timing.summary(each, real, 'real_tokens') for name, each in seconds.items()},
    ratio=round(median['transformers'] / median['ours'], 3),
    ratio_numpy=round(median['transformers_numpy'] / median['ours'], 3),
  )


def _collate(store, rate: float, rows: list, kind: str):
  collator = rival_input.collator(store, rate, kind)
  turn: Iterator = iter(rows)
  return lambda: collator(next(turn))


def main() -> None:
  """Times batches and plans, and prints one JSON line."""
  config = _CONFIG.value
  config.batch_size, config.length = _BATCH_SIZE.value, _LENGTH.value
  config = config.copy_and_resolve_references()
  with tempfile.TemporaryDirectory() as directory:
    path = config.data.store
    if not path:
      path = str(pathlib.Path(directory, 'store'))
      random_store(pathlib.Path(path), 60_000, config.seed)
    result: dict[str, Any] = dict(
      bench='input', config=config.name, batch_size=config.batch_size, length=config.length,
      store=config.data.store or 'random ids', calls=_CALLS.value,
      **run(config, path, _CALLS.value),
    )  # fmt: skip
  result['plans'] = plan_rates(config.length, _SENTENCES.value, config.seed)
  json.dump(result | timing.environment(), sys.stdout)
  sys.stdout.write('\n')
