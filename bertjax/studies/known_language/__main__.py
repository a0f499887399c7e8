"""Trains systems on a language of known least losses.

Prints how near they come.

  python -m bertjax.studies.known_language --workdir=runs/known --seeds=3

Text, stores and runs are in the workdir. Every system is run once, then again with the next seed;
runs that are there are not repeated, so a study that was stopped goes on. The table is in Markdown,
a line for each loss: means over the seeds, in brackets the least and the largest. Losses that close
less of the gap than they are asked to (`Task.shares`) are shown with their curve.
"""

import itertools
import pathlib
import sys

from absl import flags, logging

from bertjax.config import command_line
from bertjax.data.text import known_language
from bertjax.errors import choose, door
from bertjax.studies.known_language.systems import SYSTEMS

_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the text and the runs.')
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Runs of each system.', lower_bound=1)
_SYSTEMS = flags.DEFINE_list('systems', list(SYSTEMS), f'Of {", ".join(SYSTEMS)}.')
_ARMS = flags.DEFINE_bool(
  'arms', True, 'Whether to run each system without attention too, or to compute its least loss.'
)
_DOCUMENTS = flags.DEFINE_integer('documents', 20_000, 'Of each kind of text.', lower_bound=1)


def main() -> None:
  """Trains what is not there yet and prints the table."""
  names = [choose(name, SYSTEMS, '--systems') for name in _SYSTEMS.value]
  from bertjax.studies.known_language import arms, table  # slow to import

  logging.set_verbosity(logging.WARNING)
  workdir, language = pathlib.Path(str(_WORKDIR.value)), known_language.make()
  arms.ensure_text(workdir, language, _DOCUMENTS.value)
  found: dict[str, list] = {name: [] for name in names}
  for seed, name in itertools.product(range(_SEEDS.value), names):
    system, runs = SYSTEMS[name], workdir / 'runs' / name
    store = str(workdir / system.text / 'store')
    found[name].append(arms.compare(system, language, store, runs, seed, _ARMS.value))
  sys.stdout.write('\n'.join(table.lines(found)) + '\n')


if __name__ == '__main__':
  flags.mark_flag_as_required('workdir')
  with door('bertjax.studies.known_language'):
    command_line.run(main, 'bertjax.studies.known_language')
