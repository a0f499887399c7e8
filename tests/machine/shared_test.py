"""Two processes of one run: a workdir that they share, and two that they take for one."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import processes
import pytest
from mutation import mutation
from processes import wait_for

from bertjax.machine import mirror

LOOP = pathlib.Path(__file__).parents[1] / 'support' / 'save_loop.py'


@contextlib.contextmanager
def loops(folder, *places, before=((), ()), visible: float = 2.0):
  """Two processes that save once, each in its place and its folder; their logs are FOLDER/I.log.

  Args:
    folder: for what they write.
    places: DIRECTORY of `save_loop.py`, of each.
    before: what begins the command of each.
    visible: seconds that they wait for what another one has written.
  """
  port, started = processes.free_port(), []
  plain = dict(os.environ, JAX_PLATFORMS='cpu', XLA_FLAGS='', PYTHONWARNINGS='ignore')
  for index, place in enumerate(places):
    home = folder / f'host{index}'
    home.mkdir(exist_ok=True)
    own = dict(plain, VISIBLE_S=str(visible), BERTJAX_CACHE=str(home / 'cache'))
    command = [*before[index], sys.executable, LOOP, place, '1', str(port), '2', str(index)]
    with open(folder / f'{index}.log', 'w', encoding='utf-8') as log:
      started.append(subprocess.Popen(command, cwd=home, env=own, stdout=log, stderr=log))
  try:
    yield started
  finally:
    for process in started:
      process.kill()
      process.wait()


def ended(folder, started) -> list[str]:
  """What they have said, once both are well at their end."""
  statuses = [process.wait(120) for process in started]
  said = [(folder / f'{index}.log').read_text() for index in range(2)]
  assert statuses == [0, 0] and all('closed 1' in each for each in said), said
  return said


@mutation('    if not self._reads and hosts.count() > 1:', '    if False:')
@mutation("self._writer().get('run') == run)", 'bool(self._writer()))')
@pytest.mark.parametrize(
  'kind',
  [
    'two directories',
    pytest.param('a relative path', marks=pytest.mark.full),
    pytest.param('one path on two hosts', marks=pytest.mark.full),
    pytest.param('a directory and a URL', marks=pytest.mark.full),
  ],
)
def test_two_workdirs_are_told_apart_before_the_first_save(tmp_path, kind):
  one, two = (tmp_path / name for name in 'ab')
  for place in (one, two, tmp_path / 'host0/run', tmp_path / 'host1/run'):
    place.mkdir(parents=True)
    (place / mirror.OWNER).write_text(json.dumps(dict(run='of an earlier start')))
  before = ((), ())
  if kind == 'one path on two hosts':
    before = ((), ('unshare', '-m', 'sh', '-c', f'mount --bind {two} {one} && exec "$@"', 'sh'))
    tried = subprocess.run([*before[1], 'true'], capture_output=True, check=False)
    if tried.returncode:
      pytest.skip(f'no file system can be mounted: {tried.stderr}')
  places = {
    'two directories': (one, two),
    'a relative path': ('run', 'run'),
    'one path on two hosts': (one, one),
    'a directory and a URL': (one, f'file://{two}'),
  }[kind]
  with loops(tmp_path, *places, before=before) as both:
    assert [process.wait(120) for process in both] == [1, 1]
  for index in range(2):
    said = (tmp_path / f'{index}.log').read_text()
    assert 'process 1 differs from process 0 in the workdir: owner.json' in said, said
    assert f"'not in {places[1]} after 2 s' there and 'seen' here" in said, said
    assert 'same --workdir' in said and 'closed' not in said


@pytest.mark.full
@mutation('and time.monotonic() < end:', 'and False:')
def test_a_file_that_shows_late_is_waited_for_and_said(tmp_path):
  one, two = (tmp_path / name for name in 'ab')
  one.mkdir()
  with loops(tmp_path, one, two, visible=60.0) as both:
    log = tmp_path / '1.log'
    wait_for(lambda: 'waiting up to 60 s for its ' in log.read_text(), *both)
    two.symlink_to(one)  # one directory by two names, from now on
    ended(tmp_path, both)
  assert [path.name for path in one.iterdir()] == ['1'], 'the file of the start is left behind'


@pytest.mark.full
@pytest.mark.parametrize('kind', ['a directory', 'a URL'])
def test_one_workdir_passes_at_once(tmp_path, kind):
  (tmp_path / 'a').mkdir()
  place = tmp_path / 'a' if kind == 'a directory' else f'file://{tmp_path}/a'
  with loops(tmp_path, place, place, visible=60.0) as both:
    said = ended(tmp_path, both)
  assert not any('waiting up to' in each for each in said)


def test_a_run_of_one_process_writes_nothing(tmp_path):
  mirror.Workdir(str(tmp_path)).fetch()
  assert not list(tmp_path.iterdir())
