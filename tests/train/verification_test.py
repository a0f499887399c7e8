"""A run over damaged data stops, names the file and saves nothing; in one process and in two."""

import pathlib
import shutil

import pytest
from mutation import mutation
from processes import run, start_pair


def flip(path: pathlib.Path) -> None:
  """Flips a bit in the middle of a file."""
  whole = bytearray(path.read_bytes())
  whole[len(whole) // 2] ^= 1
  path.write_bytes(whole)


@pytest.fixture
def store(rich_store, tmp_path):
  """A copy that may be damaged."""
  shutil.copytree(rich_store, tmp_path / 'store')
  return tmp_path / 'store'


@mutation(
  'verification: what it finds is not looked at',
  'bertjax/train/loop.py',
  '    verified.check(stop, leaving)\n',
  '',
)
@mutation(
  'rescue: the state of a run over damaged data is saved',
  'bertjax/train/loop.py',
  'isinstance(error, verification.Damaged)',
  'False',
)
def test_a_run_stops_at_a_damaged_file_and_saves_nothing(store, tmp_path):
  flip(store / 'tokens-00000.npy')
  workdir = tmp_path / 'run'
  done = run(store, workdir, '--config.checkpoint_steps=1')
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  assert f'damaged: {store}/tokens-00000.npy: expected sha256' in done.stderr
  assert not list((workdir / 'checkpoints').iterdir())
  flip(store / 'tokens-00000.npy')  # mended
  done = run(store, workdir, '--config.total_steps=6')
  assert done.returncode == 0, done.stderr
  flip(store / 'heldout/tokens-00000.npy')
  done = run(store, workdir)
  assert done.returncode == 1 and 'heldout/tokens-00000.npy' in done.stderr
  assert 'remove the checkpoints after step 6' in done.stderr


@pytest.mark.full
@mutation(
  'verification: who finds damage leaves alone',
  'bertjax/train/verification.py',
  "    found = [said for said in hosts.gather(f'damage/{where}', self._found) if said]\n",
  '    found = [self._found] if self._found else []\n',
)
def test_two_processes_stop_together(store, tmp_path):
  flip(store / 'tokens-00000.npy')
  workdir = tmp_path / 'run'
  both = start_pair(store, workdir, '--config.total_steps=6000')
  assert [process.wait(300) for process in both] == [1, 1]
  for number in range(2):
    assert 'damaged: ' in pathlib.Path(f'{workdir}.{number}.log').read_text()
  assert not list((workdir / 'checkpoints').iterdir())
