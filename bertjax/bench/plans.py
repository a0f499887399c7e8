"""python -m bertjax.bench plans: building a plan of sentences that are only offsets, no text.

  python -m bertjax.bench plans --plan=pairs --sentences=20000000 --cores=1,2

Made-up offsets are written to a temporary directory and mapped, and the plan is built as a run
builds it, column by column to disk, in a new process each time. `memory_mb` is the most that it had
resident, the pages of the offsets included; `sha256` is of the plan's files, and the same for all.
"""

import hashlib
import json
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from bertjax.bench.parts import timing
from bertjax.data.plans import order_pairs, pairs
from bertjax.data.store import npy_files
from bertjax.data.types import Spec
from bertjax.errors import UserError
from bertjax.storage import checksums

_PLANS = {
  'pairs': (pairs, lambda passes: pairs.Options(passes, 0.1)),
  'order_pairs': (order_pairs, lambda passes: order_pairs.Options(passes, 0.1, random_b=False)),
}
_PLAN = flags.DEFINE_enum('plan', 'pairs', list(_PLANS), 'Which.')
_SENTENCES = flags.DEFINE_integer('sentences', 20_000_000, 'Of the store.', lower_bound=100)
_PASSES = flags.DEFINE_integer('passes', 1, 'Of an epoch: dupe_factor.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens of an example.', lower_bound=5)
_CORES = flags.DEFINE_list('cores', ['1', '2'], 'How many cores a build may use, one build each.')
_CALLS = flags.DEFINE_integer('calls', 3, 'Builds for each number of cores, in turn.', 1)


class _Offsets(NamedTuple):
  """As much of a store as plans of sentences read."""

  path: pathlib.Path
  sentences: np.ndarray
  documents: np.ndarray
  columns: dict[str, np.ndarray]


def write_offsets(directory: pathlib.Path, sentences: int) -> None:
  """Writes sentences of 1 to 59 tokens in documents of 1 to 39, as a store has them."""
  rng = np.random.default_rng(0)
  size_D = rng.integers(1, 40, sentences // 20 + 1).astype(np.uint8)
  end_D = np.minimum(np.cumsum(size_D, dtype=np.int64), sentences)
  document_d = np.unique(np.append(0, end_D))
  np.save(directory / 'documents.npy', document_d)
  length_S = rng.integers(1, 60, document_d[-1]).astype(np.uint8)
  np.save(directory / 'sentences.npy', np.append(0, np.cumsum(length_S, dtype=np.int64)))


def _build(directory: pathlib.Path, plan: str, passes: int, length: int, cores: int) -> dict:
  """Builds the plan of some offsets in this process; returns seconds and the most memory."""
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
  mapped = lambda name: np.asarray(np.load(directory / f'{name}.npy', mmap_mode='r'))
  store = _Offsets(directory, mapped('sentences'), mapped('documents'), {})
  module, options = _PLANS[plan]
  (directory / 'plan').mkdir()
  start = time.perf_counter()
  npy_files.write_columns(
    directory / 'plan', module.build(store, Spec(options(passes), length, 0, 0))
  )
  seconds = time.perf_counter() - start
  files = sorted((directory / 'plan').iterdir())
  sha256 = hashlib.sha256(''.join(map(checksums.of_file, files)).encode()).hexdigest()
  examples = len(np.load(files[0], mmap_mode='r'))
  shutil.rmtree(directory / 'plan')
  peak = dict(line.split(':', 1) for line in pathlib.Path('/proc/self/status').open())['VmHWM']
  return dict(
    seconds=seconds, memory_mb=int(peak.split()[0]) / 1024, sha256=sha256, examples=examples
  )


def main() -> None:
  """Builds and prints one JSON line."""
  found: dict[int, list] = {int(cores): [] for cores in _CORES.value}
  if max(found) > len(os.sched_getaffinity(0)):
    raise UserError(f'--cores={max(found)}, but this process has {len(os.sched_getaffinity(0))}')
  with tempfile.TemporaryDirectory() as name:
    directory = pathlib.Path(name)
    write_offsets(directory, _SENTENCES.value)
    asked = (directory, _PLAN.value, _PASSES.value, _LENGTH.value)
    for _ in range(_CALLS.value):
      for cores, builds in found.items():
        with multiprocessing.get_context('spawn').Pool(1) as pool:
          builds.append(pool.apply(_build, (*asked, cores)))
  every = [build for builds in found.values() for build in builds]
  if len({build['sha256'] for build in every}) != 1:
    raise AssertionError('the plan depends on the number of cores')
  seconds = {n: float(np.median([b['seconds'] for b in builds])) for n, builds in found.items()}
  result: dict[str, Any] = dict(
    bench='plans', plan=_PLAN.value, sentences=_SENTENCES.value, passes=_PASSES.value,
    examples=every[0]['examples'], sha256=every[0]['sha256'], calls=_CALLS.value,
    seconds={n: round(s, 2) for n, s in seconds.items()},
    all_seconds={n: [round(b['seconds'], 2) for b in builds] for n, builds in found.items()},
    speedup=round(seconds[min(found)] / seconds[max(found)], 3),
    memory_mb={n: round(max(b['memory_mb'] for b in builds)) for n, builds in found.items()},
  )  # fmt: skip
  json.dump(result | timing.environment(), sys.stdout)
  sys.stdout.write('\n')
