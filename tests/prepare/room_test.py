"""What `python -m bertjax.prepare` says of the size of a store before it is there."""

import collections
import json
import lzma
import pathlib
import re
import shutil

import pyarrow
import pytest
from mutation import mutation
from prepare_runs import contents, run, write_text
from pyarrow import parquet

from bertjax.errors import UserError

Usage = collections.namedtuple('Usage', 'total used free')


def _text(folder: pathlib.Path, kind: str) -> str:
  """Some 400 kB in two files, of which only the first begins the text."""
  for name in 'ab':
    texts = write_text(folder / f'{name}.txt', 2000, ord(name))
    if kind == 'jsonl.xz':
      with lzma.open(folder / f'{name}.jsonl.xz', 'wt') as file:
        file.writelines(json.dumps(dict(text=text)) + '\n' for text in texts)
    elif kind == 'parquet':
      parquet.write_table(pyarrow.table(dict(text=texts)), folder / f'{name}.parquet')
  return f'{folder}/*.{kind}'


@pytest.mark.parametrize('kind', ['jsonl.xz', 'parquet'])
@mutation('one.done / files.total', '1.0', file='bertjax/store/room.py')
def test_the_size_is_said_before(tmp_path, vocab, kind, capsys):
  store = run(input=_text(tmp_path, kind), vocab=vocab, output=tmp_path / 's')
  said = re.search(r'about ([\d.]+) MB, ([\d.]+) M tokens of 2 bytes', capsys.readouterr().out)
  assert said is not None
  assert float(said[2]) * 1e6 == pytest.approx(store.meta['tokens'] / 0.99, rel=0.1, abs=5e4)
  files = [file for file in store.path.rglob('*.npy') if 'vocab' not in file.parts]
  size = sum(file.stat().st_size for file in files)
  assert float(said[1]) * 1e6 == pytest.approx(size, rel=0.1, abs=5e4)


@mutation('_SURE * size - there > free', 'False', file='bertjax/store/room.py')
def test_a_disk_that_cannot_hold_it_is_refused_before_the_text_is_read(
  tmp_path, vocab, monkeypatch
):
  given = dict(input=_text(tmp_path, 'txt'), vocab=vocab, output=tmp_path / 'new' / 's')
  before = contents(tmp_path)
  monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(2e5, 1e5, 1e5))
  with pytest.raises(UserError, match=r'has 0.1 MB free, but the store needs about .*reader=seqio'):
    run(**given)
  assert contents(tmp_path) == before
  monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(2e9, 1e9, 1e9))
  assert run(**given).meta['tokens'] > 0
