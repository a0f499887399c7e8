"""Compressed files give their lines, and say where they are damaged."""

import bz2
import errno
import gzip
import io
import lzma

import pyarrow
import pytest
from mutation import mutation

from bertjax.text import compressed

LINES = [b'line %d of a text\n' % i for i in range(5000)]


def zst(data):
  """Two frames, the first of unknown size, as `zstd` of a pipe writes it."""
  half, first = len(data) // 2, pyarrow.BufferOutputStream()
  with pyarrow.CompressedOutputStream(first, 'zstd') as stream:
    stream.write(data[:half])
  return first.getvalue().to_pybytes() + pyarrow.compress(data[half:], 'zstd', asbytes=True)


COMPRESS = {'.gz': gzip.compress, '.xz': lzma.compress, '.bz2': bz2.compress, '.zst': zst}


def read(path, longest=1000):
  with open(path, 'rb') as raw:
    found = list(compressed.lines(path, raw, longest))
    assert raw.tell() > 0  # it is left open
    return found


@pytest.mark.parametrize('suffix', COMPRESS)
@mutation('close=lambda: None', 'close=raw.close', case='.zst')
def test_lines_come_back(tmp_path, suffix):
  path = tmp_path / f'a.txt{suffix}'
  path.write_bytes(COMPRESS[suffix](b''.join(LINES)))
  assert read(path) == LINES
  assert compressed.head(path, 40) == b''.join(LINES)[:40]
  path.write_bytes(COMPRESS[suffix](b''.join(LINES[:3000])) + COMPRESS[suffix](b'more\n'))
  assert read(path) == [*LINES[:3000], b'more\n']


@pytest.mark.parametrize('suffix', COMPRESS)
@mutation("(kept, 'zstd'))", "(kept, 'zstd'), 2**20)", case='.zst')
def test_damage_is_named(tmp_path, suffix):
  whole = COMPRESS[suffix](b''.join(LINES))
  for number, data in enumerate([whole[:-20], b'not an archive, not at all', whole + b'rest']):
    path = tmp_path / f'{number}.txt{suffix}'
    path.write_bytes(data)
    if number == 2 and suffix in ('.bz2', '.xz'):
      continue  # what follows is ignored, as Python does
    place = '[1-9]' if suffix == '.zst' and number != 1 else ''
    with pytest.raises(ValueError, match=f'{path.name} is damaged or cut short after {place}'):
      read(path)


@mutation('return OSError(error.errno, error.strerror, str(path))', 'return error')
def test_a_disk_that_cannot_be_read_names_the_file(tmp_path):
  class Raw(io.RawIOBase):
    def readline(self, size=-1):
      raise OSError(errno.EIO, 'Input/output error')

  with pytest.raises(OSError, match="Input/output error: '.*a.txt'"):
    list(compressed.lines(tmp_path / 'a.txt', Raw(), 10))


def test_long_lines_are_passed_over(tmp_path):
  (tmp_path / 'a.txt').write_bytes(
    b'short\n' + b'x' * 99 + b'\nend\n' + b'y' * 10 + b'\n' + b'z' * 30
  )
  lines = read(tmp_path / 'a.txt', longest=10)
  assert lines == [b'short\n', b'x' * 11, b'end\n', b'y' * 10 + b'\n', b'z' * 11]
