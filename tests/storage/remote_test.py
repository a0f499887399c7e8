"""Paths elsewhere, on fsspec's own memory."""

import pathlib
import sys

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.storage import copies, mirror, remote


@pytest.mark.parametrize('text', ['runs/a', '/runs/a', 'C:/runs', 'tfds:wiki/2', 'en=a.txt', ''])
def test_what_is_no_url_is_local(text):
  assert not remote.is_remote(text)
  assert remote.path(text) == pathlib.Path(text)
  assert copies.local(text) == pathlib.Path(text)


@mutation(
  'storage: a path elsewhere loses a slash',
  'bertjax/storage/remote.py',
  "'///' if scheme in _LOCAL else '//'",
  "'/'",
)
def test_a_url_is_a_path():
  path = remote.path('memory://bucket/text/a.txt.gz')
  assert str(path) == 'memory://bucket/text/a.txt.gz'
  assert str(path.with_suffix('').parent / 'b') == 'memory://bucket/text/b'
  assert (path.name, path.suffix) == ('a.txt.gz', '.gz')
  assert str(remote.path('file:///tmp/a')) == 'file:///tmp/a'
  assert remote.path(path) == path and remote.is_remote(path)


@mutation(
  'storage: a missing package is a traceback',
  'bertjax/storage/remote.py',
  'except (ImportError, ValueError) as error:',
  'except ValueError as error:',
)
def test_a_scheme_without_its_package_is_refused_with_the_remedy(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, 'adlfs', None)
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError, match=r'abfs://bucket/run cannot be read.*bertjax\[storage\]'):
    mirror.Workdir('abfs://bucket/run')
  with pytest.raises(UserError, match='cannot be read'):
    remote.path('gsx://bucket/run')
  assert not list(tmp_path.iterdir())


def test_files_are_found_by_glob_by_folder_and_alone(there):
  there.pipe({'/b/t/a.txt': b'1', '/b/t/b.txt': b'2', '/b/t/sub/c.md': b'3'})
  names = lambda pattern: [str(path) for path in remote.find(pattern)]
  assert names('memory://b/t/*.txt') == ['memory://b/t/a.txt', 'memory://b/t/b.txt']
  assert names('memory://b/t/a.txt') == ['memory://b/t/a.txt']
  assert len(names('memory://b/t')) == 3
  with remote.find('memory://b/t/b.txt')[0].open() as file:
    assert file.readline(100) == b'2'
