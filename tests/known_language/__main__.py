"""Trains systems on a language whose least losses are known, and prints how near they come.

  python -m tests.known_language --workdir=runs/known --seeds=3

Text, stores and runs are in the workdir. Every system is run once, then again with the next seed;
runs that are there are not repeated, so a study that was stopped goes on. The table is in Markdown,
a line for each loss: means over the seeds, in brackets the least and the largest. Losses that close
less of the gap than they are asked to (`Task.shares`) are shown with their curve.
"""

import argparse
import itertools
import pathlib
import statistics

from absl import logging

from tests.known_language import arms
from tests.known_language import language as known_language
from tests.known_language.systems import SYSTEMS, shares_of

HEAD = """
| system | loss | optimum | without attention | reached | distance | closed | asked |
|---|---|--:|--:|--:|--:|--:|--:|
""".strip()


def line(system: str, loss: str, of: list[arms.Found]) -> str:
  """A loss of a system, over its seeds."""
  mean = lambda values: statistics.mean(list(values))
  closed = [f.closed for f in of]
  spread = f' ({min(closed):.1%} to {max(closed):.1%})' if len(of) > 1 else ''
  start = f'{mean(f.start for f in of):.3f}' + ' (computed)' * (of[0].alone is None)
  cells = [
    system, loss, f'{mean(f.optimum for f in of):.3f}', start,
    f'{mean(f.reached for f in of):.3f}', f'{mean(f.reached - f.optimum for f in of):.3f}',
    f'{mean(closed):.1%}{spread}', f'{shares_of(system, loss)[0]:.0%}',
  ]  # fmt: skip
  return f'| {" | ".join(cells)} |'


def main() -> None:
  """Trains what is not there yet and prints the table."""
  parser = argparse.ArgumentParser(prog='python -m tests.known_language', description=__doc__)
  parser.add_argument('--workdir', type=pathlib.Path, required=True)
  parser.add_argument('--seeds', type=int, default=1)
  parser.add_argument('--systems', nargs='+', choices=SYSTEMS, default=list(SYSTEMS))
  args = parser.parse_args()
  logging.set_verbosity(logging.WARNING)
  language = known_language.make()
  arms.ensure_text(args.workdir, language, documents=20_000)
  found: dict[tuple[str, str], list[arms.Found]] = {}
  for seed, name in itertools.product(range(args.seeds), args.systems):
    store, runs = args.workdir / SYSTEMS[name].text / 'store', args.workdir / 'runs' / name
    for loss, reached in arms.compare(SYSTEMS[name], language, str(store), runs, seed).items():
      found.setdefault((name, loss), []).append(reached)
  print(HEAD, *(line(*names, of) for names, of in found.items()), '', sep='\n')
  for (system, loss), of in found.items():
    worst = min(of, key=lambda f: f.closed)
    if worst.closed < shares_of(system, loss)[0]:
      curve = ', '.join(f'{step} {value:.3f}' for step, value in worst.curve.items())
      print(f'{system}, {loss}, by step: {curve}')


if __name__ == '__main__':
  main()
