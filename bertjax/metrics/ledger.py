"""Seconds by part, tokens by kind, speed and MFU of a run."""

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from rich.table import Table

from bertjax.metrics.progress import verdict

PARTS = ('compute', 'input', 'checkpoint', 'eval', 'compile', 'other')
TRAINING = ('compute', 'input', 'other')  # what the speed is measured over
KINDS = ('real', 'padding', 'predicted', 'dropped')

# Dense bfloat16 FLOP/s of one jax device, by the start of its `device_kind`, longest first.
# TPU: cloud.google.com/tpu/docs, page of each version ("peak compute per chip"); a JAX device is a
# chip from v4 on. GPU: NVIDIA's data sheets of A100, H100 and H200, without sparsity.
PEAK_FLOPS = {
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5e': 197e12,
  'TPU v5p': 459e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
  'TPU v6e': 918e12,
  'NVIDIA A100': 312e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H100 NVL': 835e12,
  'NVIDIA H100': 989e12,
  'NVIDIA H200': 989e12,
}


def peak_flops(device_kind: str) -> float | None:
  """Dense bfloat16 FLOP/s of a device, None where it is not known (a CPU, a new chip)."""
  known = [name for name in PEAK_FLOPS if device_kind.startswith(name)]
  return PEAK_FLOPS[max(known, key=len)] if known else None


class Ledger:
  """Splits the wall time of this process, and counts the tokens of all of them."""

  def __init__(self, devices: Sequence[Any], saved: Mapping[str, Any] | None = None):
    """Counts on these devices of one kind, on from what `state` returned."""
    peak = peak_flops(devices[0].device_kind)
    self._peak = peak and peak * len(devices)
    self._started = self._last = perf_counter()
    self._seconds: dict[str, float] = collections.defaultdict(float)
    self._counts: dict[str, float] = dict.fromkeys((*KINDS, 'flops'), 0.0)
    self._total_seconds: dict[str, float] = collections.defaultdict(float)
    self._total_counts: dict[str, float] = dict.fromkeys((*KINDS, 'flops'), 0.0)
    self._ever: dict[str, float] = dict.fromkeys(('real', 'flops'), 0.0)  # over restarts
    # Tokens counted before the restart: in the totals, not in tokens/s.
    self._before: dict[str, float] = dict.fromkeys(self._counts, 0.0)
    if saved:
      self._ever, self._before = dict(saved['total']), dict(saved['open'])

  @contextlib.contextmanager
  def time(self, part: str) -> Iterator[None]:
    """Books the wall time of a `with` block; blocks must not be nested."""
    start = perf_counter()
    try:
      yield
    finally:
      self._seconds[part] += perf_counter() - start

  def count(self, tokens: Mapping[str, int], flops: float) -> None:
    """Adds a batch: this host's real, padding, predicted and dropped tokens, and model FLOPs of its
    rows, forward and backward."""
    for kind in KINDS:
      self._counts[kind] += tokens[kind]
    self._counts['flops'] += flops

  def interval(self) -> dict[str, float]:
    """Closes the interval since the last call, of all processes at the same step. Returns
    time/<part>, seconds of this process; tokens/<kind> over all hosts; tokens/total and flops/total
    since the first step of the run; tokens_per_second, real tokens over the time of training and
    input; mfu, model FLOPs over the devices' peak in that time, where it is known."""
    seconds, counts = self._close(), _over_hosts(self._counts)
    for kind in counts:
      self._total_counts[kind] += counts[kind]
    found = self._report(seconds, counts)
    whole = {kind: counts[kind] + self._before[kind] for kind in counts}
    for kind in self._ever:
      self._ever[kind] += whole[kind]
    self._counts, self._before = (dict.fromkeys(counts, 0.0) for _ in range(2))
    found |= {f'tokens/{kind}': whole[kind] for kind in KINDS}
    return found | {'tokens/total': self._ever['real'], 'flops/total': self._ever['flops']}

  def state(self) -> dict[str, Any]:
    """Returns the counts that are not yet logged, and the totals, as JSON values for a checkpoint;
    all processes call it at the same step."""
    counts = _over_hosts(self._counts)
    return dict(open={k: counts[k] + self._before[k] for k in counts}, total=dict(self._ever))

  def _close(self) -> dict[str, float]:
    now = perf_counter()
    self._seconds['other'] = now - self._last - sum(self._seconds.values())
    seconds = {part: self._seconds[part] for part in PARTS}
    for part in PARTS:
      self._total_seconds[part] += seconds[part]
    self._last = now
    self._seconds.clear()
    return seconds

  def summary(self) -> Table | None:
    """Returns the totals as a table, with the evaluations and the checkpoint that came after the
    last interval; None if there was no interval."""
    if not self._total_seconds:
      return None
    self._close()
    seconds = dict(self._total_seconds)
    spent, tokens = sum(seconds.values()), self._total_counts
    report = self._report(seconds, tokens)
    table = Table(title=f'{spent:,.1f} s, {verdict(seconds)}', title_justify='left')
    for name in ('time', 's', '%', 'tokens', ''):
      table.add_column(name, justify='left' if name in ('time', 'tokens') else 'right')
    rate = report['tokens_per_second']
    right = [(kind, f'{tokens[kind]:,.0f}') for kind in KINDS] + [('real per s', f'{rate:,.0f}')]
    right += [('MFU', f'{100 * report["mfu"]:.1f} %' if 'mfu' in report else 'peak unknown')]
    for part, (kind, count) in zip(PARTS, right, strict=True):
      share = 100 * seconds[part] / spent
      table.add_row(part, f'{seconds[part]:,.1f}', f'{share:.1f}', kind, count)
    return table

  def _report(self, seconds: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
    training = sum(seconds[part] for part in TRAINING)
    found = {f'time/{part}': spent for part, spent in seconds.items()}
    found['tokens_per_second'] = counts['real'] / training
    if self._peak:
      found['mfu'] = counts['flops'] / training / self._peak
    return found


def _over_hosts(counts: Mapping[str, float]) -> dict[str, float]:
  """Sums over the processes, exact: float64 travels as pairs of uint32."""
  if jax.process_count() == 1:
    return dict(counts)
  own = np.array(list(counts.values()), np.float64).view(np.uint32)
  all_hosts = np.asarray(multihost_utils.process_allgather(own))
  return dict(zip(counts, all_hosts.view(np.float64).sum(0).tolist(), strict=True))
