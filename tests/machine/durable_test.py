"""Directories to make: refused before there is anything to write, and made whole."""

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.export import exporting, importing, originals
from bertjax.machine import durable


@mutation('  if path.is_symlink() and not path.exists():', '  if False:')
@mutation('not path.is_dir() or any(path.iterdir())', 'not path.is_dir()')
def test_what_is_taken_is_refused(tmp_path):
  (tmp_path / 'link').symlink_to('nothing')
  with pytest.raises(UserError, match='link is a link to nothing, which leads to no file'):
    durable.free(tmp_path / 'link')
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'file').touch()
  (tmp_path / 'to full').symlink_to('full')
  for name in ('full', 'to full', 'full/file'):
    with pytest.raises(UserError, match=f'{name} exists and is no empty directory'):
      durable.free(tmp_path / name)


@mutation("  tempfile.TemporaryDirectory(prefix=f'{path.name}.', dir=above).cleanup()\n", '')
@pytest.mark.parametrize('work', [exporting.export, originals.export, importing.import_model])
def test_a_place_that_takes_no_directory_is_refused_before_a_model_is_read(work):
  with pytest.raises(OSError, match="'/proc/model[.]"):
    work('hf:nothing', '/proc/model')


@mutation('.parents if parent.exists())', '.parents); path.parent.mkdir(parents=True)')
def test_a_place_that_is_free_stays_as_it_is(tmp_path):
  assert durable.free(tmp_path / 'a' / 'b') == tmp_path / 'a' / 'b'
  assert not list(tmp_path.iterdir())
  (tmp_path / 'file').touch()
  with pytest.raises(NotADirectoryError):
    durable.free(tmp_path / 'file' / 'b')


@mutation('  path = path.resolve()\n', '')
def test_a_link_to_an_empty_directory_stays_a_link(tmp_path):
  (tmp_path / 'disk').mkdir()
  (tmp_path / 'link').symlink_to('disk')
  with durable.directory(durable.free(tmp_path / 'link')) as partial:
    (partial / 'file').touch()
  assert (tmp_path / 'link').is_symlink() and (tmp_path / 'disk' / 'file').exists()
