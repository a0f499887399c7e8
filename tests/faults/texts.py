"""Odd texts and vocabularies: refused with a reason, or turned into the store that they stand for.

What a text stands for is written beside it, as the words of its lines; the ids of these words are
their places in the vocabulary, so nothing of the tokenizer judges itself.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import random
import re
from collections.abc import Sequence
from contextlib import redirect_stdout

import numpy as np
import prepare_runs
import pytest
import systems

from bertjax.errors import UserError
from bertjax.store.reader import Store
from bertjax.train import setup
from tests.faults.bench import Bench, Case

SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
PIECES = [*SPECIAL, *'.,!?x', '##x', *prepare_runs.WORDS]
Documents = Sequence[Sequence[str]]  # the words of each line; what is no piece is unknown


def quiet(**flags) -> Store:
  """`prepare` in this process, without its table."""
  with redirect_stdout(io.StringIO()):
    return prepare_runs.run(**dict(holdout=0, split='lines') | flags)


def right(store: Store, expected: Documents, pieces: Sequence[str] = PIECES) -> None:
  """Compares a store with the words that it should hold."""
  ids = {piece: number for number, piece in enumerate(pieces)}
  wanted = [[[ids.get(w, ids['[UNK]']) for w in line.split()] for line in d] for d in expected]
  lengths = [len(line) for document in wanted for line in document]
  tokens = [token for document in wanted for line in document for token in line]
  same = (
    np.array_equal(np.concatenate(store.parts), tokens)
    and np.array_equal(np.diff(store.sentences), lengths)
    and np.array_equal(np.diff(store.documents), [len(document) for document in wanted])
  )
  if not same:
    raise AssertionError(
      f'the store holds {np.concatenate(store.parts)[:40]}, expected {tokens[:40]}'
    )


def refused(said: str, work) -> None:
  """Requires a UserError that says something."""
  with pytest.raises(UserError, match=re.escape(said)):
    work()


def text(name: str, data: bytes, expected: Documents | str, file: str = 'a.txt', **flags) -> Case:
  """A case of a text; `expected` is what the store holds, or the reason of the refusal."""

  def work(bench: Bench) -> None:
    vocab = prepare_runs.write_vocabulary(bench.folder)
    (bench.folder / 'in').mkdir()
    given = bench.folder / 'in' / file
    given.write_bytes(data)
    make = lambda: quiet(input=given, vocab=vocab, output=bench.folder / 'store', **flags)
    if isinstance(expected, str):
      refused(expected, make)
      assert not (bench.folder / 'store').exists()
    else:
      right(make(), expected)

  return Case('odd texts', name, work)


def hugging(name: str, data: bytes, expected: str = 'tokenizer.json') -> Case:
  """A case of a tokenizer.json."""
  return vocabulary(f'tokenizer.json: {name}', data, expected, 'tokenizer.json')


def vocabulary(
  name: str, data: bytes, expected: str, file: str = 'vocab.txt', trains: bool = False
) -> Case:
  """A case of a vocabulary.

  Args:
    name: of the case.
    data: of the file.
    expected: the reason of the refusal; '' if it is right as it is.
    file: its name.
    trains: whether `prepare` takes it, and the run is to judge.
  """

  def work(bench: Bench) -> None:
    (bench.folder / 'v').mkdir()
    (bench.folder / 'v' / file).write_bytes(data)
    (bench.folder / 'a.txt').write_text('the cat sat\non a mat\n\n' * 40)
    given = dict(input=bench.folder / 'a.txt', vocab=bench.folder / 'v' / file)
    make = lambda: quiet(output=bench.folder / 'store', **given)
    config = systems.tiny('bert', total_steps=2)
    config.data.store, config.phases = str(bench.folder / 'store'), {}
    run = lambda: setup.make_run(config, str(make().path))
    if expected:
      refused(expected, run if trains else make)
    else:
      right(make(), [['the cat sat', 'on a mat']] * 40)
      run()

  return Case('odd vocabularies', name, work)


def folder(name: str, make, expected: Documents | str) -> Case:
  """A case of what is no plain file."""

  def work(bench: Bench) -> None:
    vocab = prepare_runs.write_vocabulary(bench.folder)
    given = make(bench.folder)
    work = lambda: quiet(input=given, vocab=vocab, output=bench.folder / 'store')
    refused(expected, work) if isinstance(expected, str) else right(work(), expected)

  return Case('odd texts', name, work)


def fifo(path: pathlib.Path) -> pathlib.Path:
  os.mkfifo(path / 'a.txt')
  return path / 'a.txt'


def empty_folder(path: pathlib.Path) -> pathlib.Path:
  (path / 'in').mkdir()
  return path / 'in'


def comma(path: pathlib.Path) -> pathlib.Path:
  (path / 'com,ma.txt').write_text('the cat')
  return path / 'com,ma.txt'


CAT = [['the cat']]
LINE = b'the cat sat on a mat\n'
XZ = lzma.compress(LINE * 999)
JSON = b'{"text": "cat", "n": %s}\n'
NOISE = random.Random(0).randbytes(5000)
TOKENIZER = dict(
  version='1.0', truncation=None, padding=None, added_tokens=[], normalizer=None,
  pre_tokenizer=dict(type='Whitespace'), post_processor=None, decoder=None,
  model=dict(type='WordLevel', unk_token='[UNK]', vocab={}),
)  # fmt: skip


def tokenizer(**vocab: int) -> bytes:
  """A tokenizer.json of these words."""
  model = dict(TOKENIZER['model'], vocab=dict(zip(SPECIAL, range(5), strict=True)) | vocab)
  return json.dumps(dict(TOKENIZER, model=model)).encode()


WORDS = {piece: number for number, piece in enumerate(PIECES) if number > 4}


def lines_of(pieces: Sequence[str], end: str = '\n') -> bytes:
  return ''.join(piece + end for piece in pieces).encode()


def without(piece: str) -> bytes:
  return lines_of([each for each in PIECES if each != piece])


CASES = [
  text('empty', b'', 'all files are empty'),
  text('one line feed', b'\n', 'has no text'),
  text('NBSP and zero-width spaces alone', '\u00a0\u200b\n\u3000\n'.encode(), 'has no text'),
  text('one word without line feed', b'cat', [['cat']]),
  text('one line', LINE, [['the cat sat on a mat']]),
  text('CRLF', b'the cat\r\nsat\r\n\r\na mat\r\n', [['the cat', 'sat'], ['a mat']]),
  text('BOM', b'\xef\xbb\xbfthe cat\n', CAT),
  text('a NUL in a word', b'the c\0at\n' + LINE * 9, 'line 1: a NUL byte'),
  text('NULs alone', bytes(1001), 'UTF-16 or UTF-32 without a mark'),
  text('invalid UTF-8, left out', b'the cat\n\xff\xfe\xfa\n', CAT, skip_bad=True),
  text('cut within a letter', b'the cat \xe2\x82', 'line 1'),
  text('a surrogate in UTF-8', b'the \xed\xa0\x80 cat\n', 'line 1'),
  text('a line of 8 MB', b'the cat ' * 1_000_000 + b'\n', [['the cat ' * 1_000_000]]),
  text('a line of 10 MB', b'the cat ' * 1_250_000 + b'\n', 'line 1: longer than 8388608 bytes'),
  text('50,000 documents of a word', b'cat\n\n' * 50_000, [['cat']] * 50_000),
  text('100,000 blank lines', b'the cat\n' + b'\n' * 100_000 + b'sat\n', [['the cat'], ['sat']]),
  text('emoji', 'the \U0001f600 cat\n'.encode(), [['the [UNK] cat']]),
  text('marks of direction', 'the \u200fcat\u200e\n'.encode(), CAT),
  text('line separators of Unicode', 'the\u2028cat\n'.encode(), CAT),
  text('form feeds and control letters', b'the \x0c\x01\x1b cat\n', CAT),
  text('combining accents', 'the ca\u0301t\n'.encode(), CAT),
  text('a special token as text', b'[MASK] cat\n', [['[UNK] [UNK] [UNK] cat']]),
  text('a word of a million letters', b'the ' + b'x' * 10**6 + b' cat\n', [['the [UNK] cat']]),
  text('<doc> that is never closed', b'<doc id="1">\nthe cat\n\na mat\n', [['the cat', 'a mat']]),
  text('</doc> that was never opened', b'the cat\n</doc>\na mat\n', [['the cat'], ['a mat']]),
  text('.xz with a flipped byte', XZ[:-30] + bytes(30), 'a.txt.xz', 'a.txt.xz'),
  text('.bz2 of nothing', bz2.compress(b''), 'has no text', 'a.txt.bz2'),
  text('a .gz under the name .txt', gzip.compress(LINE), 'is compressed'),
  text('JSON: a number of 5,000 digits', JSON % (b'9' * 5000), 'line 1', 'a.jsonl'),
  text('noise', NOISE, 'a.txt'),
  folder('a pipe', fifo, 'a.txt is a pipe, which gives its content once'),
  folder('an empty folder', empty_folder, 'no file matches'),
  folder('a comma in its name', comma, 'Commas separate names: write ? for the comma in one'),
  folder('? for a comma', lambda path: comma(path).with_name('com?ma.txt'), CAT),
  vocabulary('empty', b'', '[UNK]'),
  vocabulary('of 3 lines', b'[PAD]\n[UNK]\ncat\n', 'no cls', trains=True),
  vocabulary('without [UNK]', without('[UNK]'), '[UNK]'),
  vocabulary('without [MASK]', without('[MASK]'), 'no mask', trains=True),
  vocabulary('without [CLS]', without('[CLS]'), 'no cls', trains=True),
  vocabulary('without [PAD]', without('[PAD]'), 'no pad', trains=True),
  vocabulary('with duplicates', lines_of([*PIECES, 'cat']), 'cat'),
  vocabulary('with a blank line', lines_of([*PIECES, '', 'zebra']), ''),
  vocabulary('CRLF', lines_of(PIECES, '\r\n'), ''),
  vocabulary('invalid UTF-8', lines_of(PIECES) + b'\xff\xfe\n', 'vocab.txt'),
  vocabulary('a piece of a million letters', lines_of([*PIECES, 'x' * 10**6]), ''),
  hugging('{}', b'{}'),
  hugging('an id of 3e9', tokenizer(cat=3_000_000_000)),
  hugging('no normalizer', tokenizer(**WORDS).replace(b'"normalizer": null,', b''), ''),
  hugging('one id twice', tokenizer(cat=5, mat=5), 'same id'),
  hugging('a negative id', tokenizer(cat=-1)),
  vocabulary('vocab.json without merges.txt', b'{"a": 0}', 'merges.txt', 'vocab.json'),
  vocabulary('an unknown kind', b'cat\n', 'no vocabulary that we know', 'vocab.xyz'),
]  # fmt: skip
