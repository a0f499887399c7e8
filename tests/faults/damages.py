"""Damage to what a run has or reads: mended, or refused by the file's name, never trained on.

What is done to each file alone is in tests/store, tests/checkpoint and tests/metrics.
"""

import functools
import pathlib
import shutil
from collections.abc import Callable

import processes
from checkpoint_cases import flip

from tests.faults.bench import Bench, Case, bit_equal


def rerun(bench: Bench, damage: Callable[[pathlib.Path], None], said: tuple[str, ...]) -> None:
  """The command of the finished run, once more: it mends what it can, and ends as it did."""
  workdir = pathlib.Path(shutil.copytree(bench.shared.straight, bench.folder / 'run'))
  damage(workdir)
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0 and 'Traceback' not in done.stderr, done.stderr
  for each in said:
    assert each in done.stdout + done.stderr, done.stdout + done.stderr
  bit_equal(workdir, bench.shared.straight)


def several(workdir: pathlib.Path) -> None:
  """The newest checkpoint, the scores of the one before it, a line that a kill has torn, and the
  picture."""
  flip(max(workdir.glob('checkpoints/40/state/d/*')))
  (workdir / 'checkpoints/36/scores.json').write_text('{"scores": {"eval/mlm": ')
  with open(workdir / 'metrics.jsonl', 'a') as file:
    file.write('{"step": 41, "lo')
  (workdir / 'curves.png').write_bytes(b'')


def no_checkpoint_but(workdir: pathlib.Path) -> None:
  """The newest two have vanished, without a trace but for what was noted of them."""
  for step in ('36', '40'):
    shutil.rmtree(workdir / 'checkpoints' / step)


CASES = [
  Case('damage', 'to checkpoint, scores, last line and picture of a run',
       functools.partial(
         rerun, damage=several, said=('Falling back to checkpoint', '40 is damaged'))),
  Case('damage', 'that took the newest two checkpoints', functools.partial(
    rerun, damage=no_checkpoint_but, said=('going on from 30',))),
]  # fmt: skip
