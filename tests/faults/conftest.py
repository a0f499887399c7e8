"""Runs that nothing happens to."""

import processes
import pytest

from tests.faults import bench


@pytest.fixture(scope='module')
def straight(rich_store, tmp_path_factory):
  """The workdir of a run of one process."""
  workdir = tmp_path_factory.mktemp('straight')
  processes.finish(rich_store, workdir)
  return workdir


@pytest.fixture(scope='module')
def pair(rich_store, tmp_path_factory):
  """The workdir of the same run in two processes."""
  workdir = tmp_path_factory.mktemp('pair') / 'run'
  both = processes.start_pair(rich_store, workdir)
  assert [bench.ended(process) for process in both] == [0, 0]
  return workdir
