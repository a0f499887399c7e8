"""What a finished run shows: where it is and what to do next."""


def show(workdir: str) -> None:
  """Prints the next commands."""
  print(
    f'\nThe run is in {workdir}: curves.png, metrics.jsonl, checkpoints. Next:\n'
    f'  tensorboard --logdir {workdir}\n'
    f'  python -m bertjax.main --workdir={workdir} --evaluate\n'
    '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
    "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
    '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
  )
