"""Last lines of a finished run: its directory, its goodput and the next commands."""

import jax

from bertjax.checkpoint import task_heads
from bertjax.metrics import goodput
from bertjax.train import setup


def show_goodput(workdir: str) -> None:
  """Prints what became of the run's time over all its starts, this one too; process 0 only."""
  found = goodput.read(workdir) if jax.process_index() == 0 else None
  if found:
    print('\n'.join(found.lines()))


def show(run: setup.Run, workdir: str, early: str) -> None:
  """Prints where the run is and the next commands.

  Args:
    run: that ended.
    workdir: its directory, as it was given.
    early: that it ended before its last step, and where; ''.
  """
  print(
    f'\nThe run{f", {early}," if early else ""} is in {workdir}: curves.png, metrics.jsonl, '
    'checkpoints. Next:\n'
    f'  tensorboard --logdir {workdir}\n'
    f'  python -m bertjax.main --workdir={workdir} --evaluate'
  )
  if run.config.data.reader != 'labelled':
    print(
      '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
      "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
      '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
    )
  elif _has_head(run):
    scored = any(each.evaluation.names for phase in run.parts for each in phase.evals)
    which = ' --step=best' if scored else ''
    which += ' --task=NAME' if run.timeline.draws is not None else ''
    print(
      f'  python -m bertjax.predict --workdir={workdir}{which} --input=FILE\n'
      f'  python -m bertjax.convert --to=hf --workdir={workdir}{which} --output=DIR'
    )


def _has_head(run: setup.Run) -> bool:
  """Returns whether the model has a head for what it learned; that of a probe lies outside it."""
  params = run.abstract.variables['params']
  return task_heads.TASKS in params or any(n in params for n in task_heads.names(run.config.model))
