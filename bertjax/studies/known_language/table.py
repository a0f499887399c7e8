"""How near the systems come to the least losses, as a table in Markdown."""

import statistics
from collections.abc import Mapping, Sequence

from bertjax.studies.known_language.arms import Found
from bertjax.studies.known_language.systems import SYSTEMS


def shares_of(name: str, loss: str) -> tuple[float, float]:
  """How much of the gap a system's loss is to close, and how much it does at least."""
  phase, _, term = loss.rpartition('/')
  task = SYSTEMS[name].tasks[phase or 'main']
  return task.shares[term], task.short.get(term, task.shares[term])


def lines(found: Mapping[str, Sequence[Mapping[str, Found]]]) -> list[str]:
  """The lines of a Markdown table.

  Args:
    found: system -> for each seed what `arms.compare` returns.
  """
  rows = [
    '| system | loss | optimum | without attention | reached | distance | closed | asked |',
    '|---|---|--:|--:|--:|--:|--:|--:|',
  ]
  missed = []
  for system, seeds in found.items():
    for loss in seeds[0]:
      of = [seed[loss] for seed in seeds]
      mean = lambda values: statistics.mean(list(values))
      start = [f.blind if f.alone is None else f.alone for f in of]
      closed, (share, _) = [f.closed for f in of], shares_of(system, loss)
      low, high = min(closed), max(closed)
      spread = f' ({low:.1%} to {high:.1%})' if len(of) > 1 else ''
      cells = [
        f'{mean(f.optimum for f in of):.3f}',
        f'{mean(start):.3f}{"" if of[0].alone is not None else " (computed)"}',
        f'{mean(f.reached for f in of):.3f}',
        f'{mean(f.reached - f.optimum for f in of):.3f}',
        f'{mean(closed):.1%}{spread}',
        f'{share:.0%}',
      ]
      rows.append(f'| {system} | {loss} | {" | ".join(cells)} |')
      if low < share:
        worst = min(of, key=lambda f: f.closed)
        curve = ', '.join(f'{step} {value:.3f}' for step, value in worst.curve.items())
        missed.append(f'{system}, {loss}, by step: {curve}')
  return rows + ([''] + missed if missed else [])
