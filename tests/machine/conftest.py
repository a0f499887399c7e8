"""Files elsewhere, on fsspec's own memory."""

import fsspec
import pytest


@pytest.fixture
def there(tmp_path, monkeypatch):
  """An empty file system, and a cache for this host."""
  monkeypatch.setenv('BERTJAX_CACHE', str(tmp_path / 'cache'))
  found = fsspec.filesystem('memory')
  found.store.clear()
  found.pseudo_dirs[:] = ['']
  return found
