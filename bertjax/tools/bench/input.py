"""python -m bertjax.bench input: masked batches.

  python -m bertjax.bench input --config=configs/bert.py:base --batch_size=256 --length=128

Ours builds batches through the loader in one process and one thread, from the token store that
`config.data.store` names or from made-up text in memory. Its rival is
`DataCollatorForLanguageModeling` of transformers, fed the same rows as ready lists from memory.
`ratio` is our real tokens/s over that of the collator's torch path, its default.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from bertjax.config import command_line
from bertjax.examples import loader, recipes
from bertjax.store.reader import open_store
from bertjax.tools.bench.parts import own_step, rivals, synthetic, timing

_CONFIG = command_line.define_config()
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 256, 'Rows per batch.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens per row.', lower_bound=8)
_CALLS = flags.DEFINE_integer('calls', 30, 'Timed batches of each side.', lower_bound=1)
flags.mark_flag_as_required('config')


def run(config: Any, calls: int) -> dict[str, Any]:
  """Times both sides on a config's store, or made-up text, so many calls each in alternation.
  Returns of each the median seconds of a batch and its real tokens/s, and the ratios."""
  store = open_store(config.data.store) if config.data.store else None
  examples, warmup = synthetic.examples_of(config, store), timing.WARMUP
  stream = loader.stream(loader.Batches(examples, config.batch_size), threads=0)
  rows = rivals.features(examples, config.batch_size, warmup + calls)
  real = sum(len(row['input_ids']) for batch in rows[warmup:] for row in batch) / calls
  mask = config.data.mask
  rate = mask.rate if 'rate' in mask else recipes.BERT_MASK['rate']
  arms = dict(
    ours=lambda: next(stream),
    transformers=_collate(examples.store, rate, rows, 'pt'),
    transformers_numpy=_collate(examples.store, rate, rows, 'np'),
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
  collator = rivals.collator(store, rate, kind)
  turn: Iterator = iter(rows)
  return lambda: collator(next(turn))


def main() -> None:
  """Times batches, and prints one JSON line."""
  config = own_step.sized(_CONFIG.value, _BATCH_SIZE.value, _LENGTH.value)
  result: dict[str, Any] = dict(
    bench='input', config=config.name, batch_size=config.batch_size, length=config.length,
    store=config.data.store or 'made up', calls=_CALLS.value, **run(config, _CALLS.value),
  )  # fmt: skip
  print(json.dumps(result | timing.environment()))
