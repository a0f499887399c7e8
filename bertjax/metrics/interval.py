"""Training metrics as means over the steps since the last log.

The sums are part of every checkpoint: a run that was interrupted between two logs writes the line
that an uninterrupted one writes, bit for bit. They are float64, added up on the host in the order
of the steps.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

AT_ONCE = 100  # steps whose metrics may wait on the device
_KEPT = ('loss', 'grad_norm', 'lr', 'sums', 'skipped')


class Interval:
  """Sums of the metrics of all steps since the last log."""

  def __init__(self, saved: Mapping[str, Any] | None = None):
    self._waiting: list[tuple[str, Mapping[str, Any]]] = []
    self._clear()
    if saved:
      self._of |= {key: value for key, value in saved.items() if key != 'sums'}
      self._sums = {
        phase: {k: (np.float64(total), np.float64(weight)) for k, (total, weight) in sums.items()}
        for phase, sums in saved['sums'].items()
      }

  def add(self, phase: str, found: Mapping[str, Any]) -> None:
    """Adds a step, without waiting for the device: its loss, grad_norm, lr, sums (term -> total and
    weight) and, where steps can be skipped, whether this one was."""
    self._waiting.append((phase, {k: found[k] for k in _KEPT if k in found}))
    if len(self._waiting) >= AT_ONCE:
      self._fetch()

  def leave_out(self) -> None:
    """Counts a step whose batch is left out."""
    self._of['left_out'] += 1

  def close(
    self, finish: Mapping[str, Callable[[Any], dict[str, float]]], interleaved: bool
  ) -> dict[str, float]:
    """Returns the metrics of the interval, which ends here: loss and grad_norm, means over the
    steps; lr of the last step; each phase's metrics by its `finish`, named <phase>/<metric> if
    phases take turns, else a later phase's before an earlier one's; and skipped and left_out, steps
    that trained nothing and are in no mean."""
    self._fetch()
    found = {name: self._of[name] for name in ('skipped', 'left_out') if self._of[name]}
    if steps := self._of['steps']:
      found |= {name: self._of[name] / steps for name in ('loss', 'grad_norm')}
      found['lr'] = self._of['lr']
    for phase, function in finish.items():
      if phase in self._sums:
        name = f'{phase}/' if interleaved else ''
        found |= {f'{name}{k}': v for k, v in function(self._sums[phase]).items()}
    self._clear()
    return found

  def state(self) -> dict[str, Any]:
    """Returns the sums as JSON values, for a checkpoint."""
    self._fetch()
    plain = lambda sums: {
      k: [np.asarray(total).tolist(), float(weight)] for k, (total, weight) in sums.items()
    }
    return dict(self._of, sums={phase: plain(sums) for phase, sums in self._sums.items()})

  def _clear(self) -> None:
    self._of: dict[str, float] = dict(
      steps=0, loss=0.0, grad_norm=0.0, lr=0.0, skipped=0, left_out=0
    )
    self._sums: dict[str, dict[str, tuple[Any, Any]]] = {}

  def _fetch(self) -> None:
    phases, waiting = [p for p, _ in self._waiting], [found for _, found in self._waiting]
    self._waiting = []
    for phase, found in zip(phases, jax.device_get(waiting), strict=True):
      if found.get('skipped', False):
        self._of['skipped'] += 1
        continue
      self._of['steps'] += 1
      for name in ('loss', 'grad_norm'):
        self._of[name] += float(found[name])
      self._of['lr'] = float(found['lr'])
      sums = self._sums.setdefault(phase, {})
      for name, (total, weight) in found['sums'].items():
        before = sums.get(name, (0.0, 0.0))
        sums[name] = (before[0] + np.float64(total), before[1] + np.float64(weight))
