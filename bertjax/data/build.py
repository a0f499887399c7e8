"""Makes the token store of a run where the config gives text instead of a store.

Runs `bertjax.vocab` and `bertjax.prepare` as child processes, so that the training process never imports
TensorFlow.
"""

import pathlib
import subprocess
import sys


def _run(module: str, flags: dict[str, object]) -> None:
  given = {k: v for k, v in flags.items() if v not in ('', None)}
  arguments = [f'--{k}={str(v).lower() if isinstance(v, bool) else v}' for k, v in given.items()]
  done = subprocess.run([sys.executable, '-m', module, *arguments], check=False)
  if done.returncode:
    raise ValueError(
      f'{module} failed with exit status {done.returncode}; its message is above. '
      f'Run it alone with: python -m {module} {" ".join(arguments)}'
    )


def ensure_store(data, seed: int, workdir: str) -> str:
  """The path of the store of `config.data`, made in the workdir if need be.

  Args:
    data: `config.data`.
    seed: of the vocabulary's sample.
    workdir: the run's directory; its `vocab` and `store` are written.

  Raises:
    ValueError: neither store nor text is named, no vocabulary, or a child process failed.
  """
  if data.store:
    return data.store
  store = pathlib.Path(workdir, 'store')
  if (store / 'store.json').exists():
    return str(store)
  text = data.mixture or data.input
  if not text:
    raise ValueError(
      'no data: set config.data.store to a finished store, or config.data.input or '
      'config.data.mixture to text (files, tfds:NAME, or the name of a seqio Task)'
    )
  if data.mixture and data.input:
    raise ValueError('set one of config.data.mixture and config.data.input, got both')
  vocab = data.vocab
  if not vocab:
    if not data.train_vocab.type:
      raise ValueError(
        'no vocabulary: set config.data.vocab to a file or directory, or config.data.train_vocab '
        'to train one, e.g. --config.data.train_vocab.type=wordpiece --config.data.train_vocab.size=30522'
      )
    vocab = str(pathlib.Path(workdir, 'vocab'))
    if not pathlib.Path(vocab).exists():
      _run(
        'bertjax.vocab',
        dict(
          input=text,
          type=data.train_vocab.type,
          size=data.train_vocab.size,
          output=vocab,
          lowercase=data.lowercase,
          module=data.module,
          errors=data.errors,
          seed=seed,
        ),
      )
  _run(
    'bertjax.prepare',
    dict(
      input=text,
      vocab=vocab,
      output=store,
      holdout=data.holdout,
      split=data.split,
      errors=data.errors,
      lowercase=data.lowercase,
      documents=data.documents or None,
      workers=data.workers or None,
      module=data.module,
    ),
  )
  return str(store)
