"""Last lines of a finished run: its directory and the next commands."""

from bertjax import models
from bertjax.objectives.combine import task_heads
from bertjax.train import setup


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
    which += ' --task=NAME' if run.timeline.drawn else ''
    print(
      f'  python -m bertjax.predict --workdir={workdir}{which} --input=FILE\n'
      f'  python -m bertjax.convert --to=hf --workdir={workdir}{which} --output=DIR'
    )


def _has_head(run: setup.Run) -> bool:
  """Returns whether the model has a head for what it learned; that of a probe lies outside it."""
  params = run.abstract.variables['params']
  return task_heads.TASKS in params or any(n in params for n in models.labels_of(run.config.model))
