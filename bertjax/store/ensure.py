"""Makes the token store of a run where the config gives text instead of a store.

Runs `bertjax.vocab` and `bertjax.prepare` as child processes, so that the training process never
imports TensorFlow.
"""

import json
import os
import pathlib
import shutil
import sys

from bertjax import children, json_files, registry
from bertjax.errors import UserError
from bertjax.machine import copies, durable
from bertjax.store.reader import read_meta

RECORD = 'made_of.json'  # beside the store of a workdir: what it follows from
_OWN = 'WORKDIR/vocab'  # there, of a vocabulary that the workdir keeps
# Keys of `config.data` that the store of a workdir follows from.
MADE_OF = (
  'input', 'mixture', 'module', 'vocab', 'train_vocab', 'lowercase', 'split', 'errors', 'field',
  'skip_bad', 'documents', 'columns', 'languages', 'lexicon', 'segmenter', 'holdout', 'heldout',
)  # fmt: skip


def _run(module: str, flags: dict[str, object]) -> None:
  given = {k: v for k, v in flags.items() if v not in ('', None)}
  arguments = [f'--{k}={str(v).lower() if isinstance(v, bool) else v}' for k, v in given.items()]
  quiet = dict(os.environ, CUDA_VISIBLE_DEVICES='-1')  # TensorFlow looks for a GPU otherwise
  named = {key: str(given.get(key, '')) for key in ('module', 'segmenter')}
  code = {key: name.partition(':')[0] for key, name in named.items() if name != 'capitals'}
  theirs = [registry.check(name, f'config.data.{key}') for key, name in code.items()]
  safe = ['-P'] if any(theirs) else []  # Python does not search the current directory
  status = children.run([sys.executable, *safe, '-m', module, *arguments], quiet)
  if status:
    raise UserError(
      f'{module} failed with exit status {status}; its message is above. '
      f'Run it alone with: python -m {module} {" ".join(arguments)}'
    )


def ensure_store(data, seed: int, workdir: str) -> str:
  """Returns the directory of the store of `config.data`, made in the workdir if need be, with a
  vocabulary whose sample is drawn by the seed. Raises UserError where neither store nor text is
  named, no vocabulary, or a child process failed."""
  if data.store:
    if data.heldout:
      raise UserError(
        f'config.data.heldout is for the store that is made of config.data.input, but {data.store} '
        'is finished. Put the text beside it: python -m bertjax.prepare '
        f'--input={data.heldout} --vocab={data.store}/vocab --output={data.store}/heldout '
        '--holdout=0, and the other flags that it was made with'
      )
    return str(copies.local(data.store))
  store = pathlib.Path(workdir, 'store')
  clear_others(data, seed, workdir)
  if not (store / 'store.json').exists():
    _prepare(data, seed, workdir, store)
  held_out = store / 'heldout'
  if data.heldout and not (held_out / 'store.json').exists():
    meta = read_meta(store)  # of the same languages, and cut as this was
    alike = dict(languages=','.join(meta['languages']), split=meta['split'])
    flags = _flags(data, data.heldout, store / 'vocab', held_out, 0.0)
    _run('bertjax.prepare', flags | alike | dict(documents=None))
  return str(store)


def clear_others(data, seed: int, workdir: str) -> None:
  """Removes a store and a vocabulary that a start with another text or vocabulary left here, and
  that failed before its first step. UserError: they are those of a run, or one of a sweep, that has
  begun."""
  record, wanted = pathlib.Path(workdir, RECORD), _made_of(data, seed, workdir)
  if not record.exists():
    return
  remedy = f': remove it, and {workdir}/store if it was made of other text'
  before = json_files.read(record, dict, remedy)
  if before.get('vocab') == str(pathlib.Path(workdir, 'vocab')):  # as it once was written
    before['vocab'] = _OWN
  # Of a key that there was not yet the record says nothing.
  differing = [key for key in wanted if before.get(key, wanted[key]) != wanted[key]]
  if not differing:
    return
  # A text that is held out has a store of its own, if there was one before and is one now.
  apart = differing == ['heldout'] and before.get('heldout') and data.heldout
  gone = ('store/heldout',) if apart else ('store', 'store.partial', 'vocab', 'plans')
  said = f'{workdir}/{gone[0]} was made with other values of {", ".join(differing)} of config.data'
  if any(next(pathlib.Path(workdir).glob(of), None) for of in ('config.json', '*/config.json')):
    raise UserError(
      f'{said} for a run that has begun here: give those of {record}, or, to go on with other '
      f'text, remove that file and {workdir}/{gone[0]}; to judge on other text, prepare it and '
      'give --config.evals.held_out.store'
    )
  print(f'{said} by a start that failed: it is made again', flush=True)
  for name in gone:
    shutil.rmtree(pathlib.Path(workdir, name), ignore_errors=True)
  _record(data, seed, workdir)


def made_of(data) -> dict:
  """Returns the values of `config.data` that a store follows from, as they read back from JSON."""
  plain = lambda value: dict(value) if hasattr(value, 'items') else value
  return json.loads(json.dumps({key: plain(data[key]) for key in MADE_OF}))


def _made_of(data, seed: int, workdir: str) -> dict:
  """Returns `made_of`, and the seed of a vocabulary that is trained in the workdir."""
  found = made_of(data)
  if data.vocab and pathlib.Path(data.vocab) == pathlib.Path(workdir, 'vocab'):
    found['vocab'] = _OWN  # on each host the workdir may lie elsewhere, and it may be moved
  return found if data.vocab else found | dict(seed=seed)


def _record(data, seed: int, workdir: str) -> None:
  """Notes what the vocabulary and the store of a workdir follow from."""
  pathlib.Path(workdir).mkdir(parents=True, exist_ok=True)
  durable.write_json(pathlib.Path(workdir, RECORD), _made_of(data, seed, workdir))


def _prepare(data, seed: int, workdir: str, store: pathlib.Path) -> None:
  source = text(data)
  if not (data.vocab or data.train_vocab.type):
    raise UserError(
      'no vocabulary: set config.data.vocab to a file or directory, or config.data.train_vocab '
      'to train one, e.g. --config.data.train_vocab.type=wordpiece '
      '--config.data.train_vocab.size=30522'
    )
  _record(data, seed, workdir)
  vocab = vocabulary(data, source, seed, workdir)
  holdout = 0.0 if data.heldout else data.holdout
  _run('bertjax.prepare', _flags(data, source, vocab, store, holdout))


def _reading(data, source: str, output: pathlib.Path) -> dict[str, object]:
  """Returns the flags that `vocab` and `prepare` share: what they read, how, and where it goes."""
  keys = ('split', 'errors', 'field', 'skip_bad', 'lowercase', 'module')
  read = {key: data[key] for key in keys} | dict(documents=data.documents or None)
  return dict(input=source, output=output, **read)


def _flags(data, source: str, vocab, output: pathlib.Path, holdout: float) -> dict[str, object]:
  lists = {key: ','.join(data[key]) for key in ('columns', 'languages')}
  units = dict(lexicon=data.lexicon, segmenter=data.segmenter)
  own = dict(vocab=vocab, holdout=holdout, workers=data.workers or None)
  return _reading(data, source, output) | own | lists | units


def text(data) -> str:
  """Returns the text that `config.data` names: its mixture or its input, one of them."""
  named = data.mixture or data.input
  if not named:
    raise UserError(
      'no data: set config.data.store to a finished store, or config.data.input or '
      'config.data.mixture to text (files, tfds:NAME, or the name of a seqio Task)'
    )
  if data.mixture and data.input:
    raise UserError('set one of config.data.mixture and config.data.input, got both')
  return named


def vocabulary(data, source: str, seed: int, workdir: str) -> str:
  """Returns the vocabulary that the config names or has trained; '' if it says neither."""
  if data.vocab or not data.train_vocab.type:
    return data.vocab
  vocab = pathlib.Path(workdir, 'vocab')
  if not any(vocab.glob('*')):  # an empty folder says nothing
    _record(data, seed, workdir)
    own = dict(type=data.train_vocab.type, size=data.train_vocab.size, seed=seed)
    _run('bertjax.vocab', _reading(data, source, vocab) | own)
  return str(vocab)
