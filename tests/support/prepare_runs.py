"""`bertjax.prepare` run in this process, on small text in a small vocabulary."""

import itertools
import pathlib
import random
import sys

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from bertjax import prepare
from bertjax.machine import durable
from bertjax.store.reader import open_store

WORDS = 'the cat sat on a mat and saw dogs run far away over hills'.split()


def write_vocabulary(tmp_path):
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *'.,!?x', '##x', *WORDS]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  return tmp_path / 'vocab.txt'


def write_text(path, documents=200, seed=0):
  """Documents of a few paragraphs of a few sentences; some are empty, some words unknown."""
  draw = random.Random(seed)
  sentence = lambda: ' '.join(draw.choices([*WORDS, 'unheard'], k=draw.randint(1, 12))) + '.'
  paragraph = lambda: ' '.join(sentence().capitalize() for _ in range(draw.randint(1, 4)))
  texts = ['\n'.join(paragraph() for _ in range(draw.randint(1, 3))) for _ in range(documents)]
  texts[5] = '\u200b'  # not blank for the reader of files, but without a token
  path.write_text('\n\n'.join(texts) + '\n')
  return texts


def run(**values):
  """Runs `prepare` in this process, with one worker unless told otherwise."""
  defaults = {name: flags.FLAGS[name].default for name in OPTIONS} | dict(workers=1)
  with flagsaver.flagsaver(**(defaults | {k: _plain(v) for k, v in values.items()})):
    flags.FLAGS.mark_as_parsed()
    prepare.main(['prepare'])
  return open_store(values['output'])


OPTIONS = (
  'split errors lowercase documents module field holdout part_mb '
  'columns languages lexicon segmenter skip_bad runner for'
).split()


def _plain(value):
  return str(value) if isinstance(value, pathlib.Path) else value


def contents(path):
  return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob('*') if p.is_file()}


def command(**given):
  """The words of `python -m bertjax.prepare`, with one worker unless told otherwise."""
  words = [f'--{name}={value}' for name, value in (dict(workers=1) | given).items()]
  return [sys.executable, '-m', 'bertjax.prepare', *words]


def goes_on(tmp_path, stop, error=KeyboardInterrupt, match=None, times=1, **given):
  """A run that `stop(patch)` broke off ends with the bytes of a whole one; returns that store."""
  whole = run(output=tmp_path / 'whole', **given)
  for _ in range(times):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(error, match=match):
      stop(patch)
      run(output=tmp_path / 's', **given)
    assert (tmp_path / 's.partial').exists()
  run(output=tmp_path / 's', **given)
  assert contents(tmp_path / 'whole') == contents(tmp_path / 's')
  assert not (tmp_path / 's.partial').exists()
  return whole


def assert_same_text(one, other):
  """Two stores have the same tokens, sentences and documents, in whatever parts."""
  for mine, theirs in (
    (np.concatenate(one.parts), np.concatenate(other.parts)),
    (one.sentences, other.sentences),
    (one.documents, other.documents),
  ):
    np.testing.assert_array_equal(mine, theirs)


def sentences_of(store):
  tokens = store.gather(store.sentences[:-1], np.diff(store.sentences))
  return np.split(tokens, store.sentences[1:-1])


def stop_after(monkeypatch, cuts):
  """Breaks the run off when it is about to note its next part."""
  count = itertools.count()
  save = durable.write_json

  def write_json(path, value):
    if next(count) == cuts:
      raise KeyboardInterrupt
    save(path, value)

  monkeypatch.setattr(durable, 'write_json', write_json)
