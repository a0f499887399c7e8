"""The fault campaign: python -m tests.faults [KIND ...] [--output=TABLE.md] [--seed=0]

Kills, damages, disagreements, disks, races and texts, one case after the other; all of them take
half an hour on two cores. Prints each case as it ends, then a table; the exit status is 1 if any
went otherwise than promised.
"""

import argparse
import importlib
import logging
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ('texts', 'races', 'disks', 'disagreements', 'damages', 'kills')


def main() -> int:
  """Returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('kinds', nargs='*', metavar='KIND', help=f'of {", ".join(KINDS)}; all')
  parser.add_argument('--only', default='', help='only cases whose group or name holds this')
  parser.add_argument('--output', type=pathlib.Path, help='file for the table')
  parser.add_argument('--seed', type=int, default=0, help='of the random moments')
  flags = parser.parse_args()
  if unknown := {*flags.kinds} - {*KINDS}:
    parser.error(f'expected kinds of {", ".join(KINDS)}, got {", ".join(unknown)}')
  logging.disable(logging.WARNING)  # of the cases that are tried in this process
  from tests.faults import campaign

  kinds = [importlib.import_module(f'tests.faults.{kind}') for kind in flags.kinds or KINDS]
  chosen = [c for kind in kinds for c in kind.CASES if flags.only in f'{c.group}: {c.name}']
  say = lambda text: print(text, flush=True)
  say(f'{len(chosen)} cases, {sum(c.tries for c in chosen)} faults, seed {flags.seed}')
  with tempfile.TemporaryDirectory(prefix='faults-') as folder:
    outcomes = [*campaign.campaign(chosen, pathlib.Path(folder), flags.seed, say)]
  found = campaign.table(outcomes)
  say(f'\n{found}')
  if flags.output:
    flags.output.write_text(found, encoding='utf-8')
  return int(any(o.kind not in ('promised', 'skipped') for o in outcomes))


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT / 'tests/support'))
  import hearing

  hearing.let_children_hear()
  sys.exit(main())
