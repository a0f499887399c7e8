"""Small files of a kind of task, written once for a file of tests."""

import pytest


@pytest.fixture(scope='module')
def files(request, tmp_path_factory):
  """The folder that FILES of the tests' module has written: one of tests/support."""
  return request.module.FILES.write(tmp_path_factory.mktemp('files'))
