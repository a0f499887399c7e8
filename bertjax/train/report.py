"""What a finished run shows: where it is and what to do next."""

import jax

from bertjax.metrics import goodput


def show_goodput(workdir: str) -> None:
  """Prints what became of the run's time over all its starts, this one too; process 0 only."""
  found = goodput.read(workdir) if jax.process_index() == 0 else None
  if found:
    print('\n'.join(found.lines()))


def show(workdir: str, early: str, labelled: bool, several: bool) -> None:
  """Prints where the run is and the next commands.

  Args:
    workdir: of the run.
    early: that it ended before its last step, and where; ''.
    labelled: whether it learned a task, and is not to be pretrained further.
    several: whether it learned several, of which one is used at a time.
  """
  of_task = ' --task=NAME' if several else ''
  again = (
    f'  python -m bertjax.predict --workdir={workdir} --step=best{of_task} --input=FILE\n'
    f'  python -m bertjax.convert --to=hf --workdir={workdir} --step=best{of_task} --output=DIR'
    if labelled
    else '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
    "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
    '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
  )
  print(
    f'\nThe run{f", {early}," if early else ""} is in {workdir}: curves.png, metrics.jsonl, '
    'checkpoints. Next:\n'
    f'  tensorboard --logdir {workdir}\n'
    f'  python -m bertjax.main --workdir={workdir} --evaluate\n'
    f'{again}'
  )
