"""Parquet to documents."""

import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bertjax.text.files import Files, find_sources
from bertjax.text.left_out import LeftOut


def read(path, field='text', skip=False, errors='strict', columns=()):
  files = Files(find_sources(str(path)), errors, field, columns, left_out=LeftOut(skip))
  return list(files), files.left_out


def write(path, rows=2500, **kinds):
  texts = [f'document {i}, ü\nline two' for i in range(rows)]
  table = pyarrow.table(
    dict(
      text=pyarrow.array(texts, **kinds),
      language=['en', 'de'] * (rows // 2),
      role=[[0, 1]] * rows,
      n=np.arange(rows),
      meta=[dict(inner=dict(body=text.upper())) for text in texts],
    )
  )
  parquet.write_table(table, path, row_group_size=700, compression='zstd')
  return [text.encode() for text in texts]


def test_texts_columns_and_structs(tmp_path):
  texts = write(tmp_path / 'a.parquet')
  assert read(tmp_path / 'a.parquet')[0] == texts
  upper = [text.decode().upper().encode() for text in texts]
  assert read(tmp_path / 'a.parquet', 'meta.inner.body')[0] == upper
  records, _ = read(tmp_path / 'a.parquet', columns=('language', 'role'))
  assert records[:2] == [b'en\x1f0 1\x1f' + texts[0], b'de\x1f0 1\x1f' + texts[1]]


@pytest.mark.parametrize('kind', ['large_string', 'binary', 'dictionary'])
def test_kinds_of_strings(tmp_path, kind):
  types = dict(
    large_string=pyarrow.large_string(),
    binary=pyarrow.binary(),
    dictionary=pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
  )
  texts = write(tmp_path / 'a.parquet', 10, type=types[kind])
  assert read(tmp_path / 'a.parquet')[0] == texts


def test_bad_records_are_left_out_counted_and_named(tmp_path):
  texts = pyarrow.array([b'one', None, b'\xff', b'nul\0', b'five'], pyarrow.binary())
  parquet.write_table(pyarrow.table(dict(text=texts)), tmp_path / 'a.parquet')
  documents, left_out = read(tmp_path / 'a.parquet', skip=True)
  assert documents == [b'one', b'five'] and left_out.count == 3
  assert [name.split('record ')[1][0] for name in left_out.named] == ['2', '3', '4']
  with pytest.raises(ValueError, match='a.parquet, record 2: no text.*--skip_bad'):
    read(tmp_path / 'a.parquet')


def test_mistakes_are_named(tmp_path):
  write(tmp_path / 'a.parquet', 10)
  with pytest.raises(ValueError, match="no column 'n' of strings; .* 'text', .*'meta.inner.body'"):
    read(tmp_path / 'a.parquet', 'n')
  data = (tmp_path / 'a.parquet').read_bytes()
  (tmp_path / 'b.parquet').write_bytes(data[:-20])
  with pytest.raises(ValueError, match='b.parquet is damaged or no Parquet'):
    read(tmp_path / 'b.parquet')


def test_without_pyarrow_the_remedy_is_said(tmp_path, monkeypatch):
  write(tmp_path / 'a.parquet', 10)
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(ValueError, match='a.parquet.*pip install pyarrow'):
    read(tmp_path / 'a.parquet')
