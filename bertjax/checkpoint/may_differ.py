"""Keys of the config that may differ when a run is resumed, and those that decide its batches."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

from bertjax import dotted

# Keys that may differ when a run is resumed, with all that is below them. Whatever follows from
# total_steps by reference (warm-up, length of the schedule) follows it.
MAY_DIFFER = (
  'total_steps', 'minutes', 'log_steps', 'eval_steps', 'checkpoint_steps', 'keep_checkpoints',
  'best.metric', 'best.mode', 'best.patience', 'mesh', 'sharding_rules', 'microbatches',
  'reduce_dtype', 'model.remat', 'data.threads', 'data.workers', 'profile', 'trackers',
  'skip_nonfinite', 'skip_steps', 'spike', 'evals.*.every', 'evals.*.batch_size', 'evals.*.rows',
  'evals.*.sentences', 'evals.*.memories',
  'data.store',  # it may have moved; the sha256 of the last batch tells whether it is the same
  'preset',  # what it changes in numbers is model.dtype
)  # fmt: skip

# Keys that decide which rows a batch has, with all that is below them.
DECIDE_BATCHES = ('seed', 'batch_size', 'length', 'data', 'phases', 'temperature')


def config_differences(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
  """Returns (key, old, new) for every key that differs and must not; None stands for an absent key.
  A set of `config.evals` may come or go; what it scores may not change under its name."""
  old_flat, new_flat = dotted.flat(old), dotted.flat(new)
  sets = lambda flat: {key.split('.')[1] for key in flat if key.startswith('evals.')}
  moved = sets(old_flat) ^ sets(new_flat)
  return [
    (key, old_flat.get(key), new_flat.get(key))
    for key in sorted({*old_flat, *new_flat})
    if old_flat.get(key) != new_flat.get(key)
    and not covers(MAY_DIFFER, key)
    and not (key.startswith('evals.') and key.split('.')[1] in moved)
  ]


def covers(names: Iterable[str], key: str) -> bool:
  """Returns whether a dotted key is one of these, or below one; `*` stands for any name."""
  return any(fnmatch.fnmatchcase(key, n) or fnmatch.fnmatchcase(key, f'{n}.*') for n in names)
