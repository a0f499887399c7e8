"""Makes the token store of a run where the config gives text instead of a store.

Runs `bertjax.vocab` and `bertjax.prepare` as child processes, so that the training process never
imports TensorFlow; unless `config.data.reader` asks for a stream without a store.
"""

import os
import pathlib
import subprocess
import sys

from bertjax.data import stream
from bertjax.names import choose

READERS = ('store', 'seqio')


def _run(module: str, flags: dict[str, object]) -> None:
  given = {k: v for k, v in flags.items() if v not in ('', None)}
  arguments = [f'--{k}={str(v).lower() if isinstance(v, bool) else v}' for k, v in given.items()]
  quiet = dict(os.environ, CUDA_VISIBLE_DEVICES='-1')  # TensorFlow looks for a GPU otherwise
  done = subprocess.run([sys.executable, '-m', module, *arguments], env=quiet, check=False)
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

  Returns:
    The store's directory; of a run that streams, the workdir, which then has `vocab` alone.

  Raises:
    ValueError: neither store nor text is named, no vocabulary, or a child process failed.
  """
  if choose(data.reader, READERS, 'config.data.reader') == 'seqio':
    if data.store:
      raise ValueError('config.data.reader=seqio reads text and config.data.store is none: set one')
    text = _text(data)
    return stream.ensure_vocabulary(data, workdir, _vocabulary(data, text, seed, workdir))
  if data.store:
    return data.store
  store = pathlib.Path(workdir, 'store')
  if (store / 'store.json').exists():
    return str(store)
  text = _text(data)
  vocab = _vocabulary(data, text, seed, workdir)
  if not vocab:
    raise ValueError(
      'no vocabulary: set config.data.vocab to a file or directory, or config.data.train_vocab '
      'to train one, e.g. --config.data.train_vocab.type=wordpiece '
      '--config.data.train_vocab.size=30522'
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
      columns=','.join(data.columns),
      languages=','.join(data.languages),
      lexicon=data.lexicon,
      segmenter=data.segmenter,
    ),
  )
  return str(store)


def _text(data) -> str:
  text = data.mixture or data.input
  if not text:
    raise ValueError(
      'no data: set config.data.store to a finished store, or config.data.input or '
      'config.data.mixture to text (files, tfds:NAME, or the name of a seqio Task)'
    )
  if data.mixture and data.input:
    raise ValueError('set one of config.data.mixture and config.data.input, got both')
  return text


def _vocabulary(data, text: str, seed: int, workdir: str) -> str:
  """The vocabulary that the config names, or the one it has trained; '' if it says neither."""
  if data.vocab or not data.train_vocab.type:
    return data.vocab
  vocab = pathlib.Path(workdir, 'vocab')
  if not vocab.exists():
    _run(
      'bertjax.vocab',
      dict(
        input=text,
        type=data.train_vocab.type,
        size=data.train_vocab.size,
        split=data.split,
        output=vocab,
        lowercase=data.lowercase,
        module=data.module,
        errors=data.errors,
        seed=seed,
      ),
    )
  return str(vocab)
