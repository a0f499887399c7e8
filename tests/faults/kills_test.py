"""Kills, signals, damages and races: the same command goes on, and ends as the run that nothing
happened to.

Several kills hit one run, a life after the other, so that each finds what the one before it left.
`prepare` alone is killed in tests/prepare/broken_off_test.
"""

import pathlib
import random
import re
import shutil
import signal
import time
from collections.abc import Callable

import prepare_runs
import processes
import pytest
from checkpoint_cases import flip
from mutation import mutation
from processes import finish, steps_logged

from bertjax.launch.local import PATIENCE
from bertjax.machine.distributed import SILENT_S
from tests.faults.bench import SECONDS, bit_equal, ended, log

pytestmark = pytest.mark.full
TERM, INT, HUP, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL
Moment = Callable[[pathlib.Path, int], bool]  # (workdir, length of the log before) -> is it now?


def started(workdir: pathlib.Path, before: int) -> bool:
  del workdir, before
  return True


def compiling(workdir: pathlib.Path, before: int) -> bool:
  return 'Compiling' in log(workdir)[before:]


def opening(workdir: pathlib.Path, before: int) -> bool:
  return 'Reading the store' in log(workdir)[before:]


def stepping(workdir: pathlib.Path, before: int) -> bool:
  return re.search(r'\bstep \d+/\d+ ', log(workdir)[before:]) is not None


def saving(workdir: pathlib.Path, before: int) -> bool:
  del before
  return any(workdir.glob('checkpoints/*.saving'))


def evaluating(workdir: pathlib.Path, before: int) -> bool:
  del before
  steps = steps_logged(workdir)
  return 15 <= steps and '"eval/' not in (workdir / 'metrics.jsonl').read_text() or steps >= 30


def until(moment: Moment, workdir: pathlib.Path, before: int, *running) -> None:
  """Waits for a moment, or until one of the processes has ended."""
  end = time.monotonic() + SECONDS
  while all(p.poll() is None for p in running) and not moment(workdir, before):
    if time.monotonic() > end:
      raise TimeoutError(f'{moment} never came')
    time.sleep(0.002)


LISTENING = ((opening, 0.5), (compiling, 1.0), (stepping, 1.0), (saving, 0.02))
# The signal, the moments at which it comes, and how many seconds after each at most.
LIVES = {
  'killed before the first step': (KILL, [(started, 8.0)] * 8),
  'killed in training': (KILL, [(stepping, 2.0)] * 8),
  'killed in a save': (KILL, [(saving, 0.05)] * 6),
  'killed in an evaluation': (KILL, [(evaluating, 0.02)] * 2),
  'SIGTERM': (TERM, LISTENING),
  'Ctrl-C': (INT, LISTENING),
  'SIGHUP': (HUP, LISTENING),
  'SIGTERM before it listens': (TERM, [(started, 3.0)] * 4),
}


@pytest.mark.parametrize('kind', LIVES)
def test_a_run_that_is_ended_several_times(kind, rich_store, straight, tmp_path):
  workdir, draw = tmp_path / 'run', random.Random(kind)
  number, moments = LIVES[kind]
  for moment, most in moments:
    before = len(log(workdir))
    process = processes.start(rich_store, workdir)
    until(moment, workdir, before, process)
    time.sleep(draw.uniform(0, most))
    process.send_signal(number)
    status = ended(process, 90)
    said = log(workdir)[before:]
    assert 'Traceback' not in said, said
    if number != KILL and opening(workdir, before):  # before that Python itself may end it
      assert status == 0, f'status {status} after {number.name}: {said}'
  finish(rich_store, workdir)
  bit_equal(workdir, straight)


def test_a_signal_that_comes_twice(rich_store, straight, tmp_path):
  """The second may come in the save that the first has led to, or too late."""
  workdir = tmp_path / 'run'
  process = processes.start(rich_store, workdir)
  until(stepping, workdir, 0, process)
  process.send_signal(TERM)
  time.sleep(1.2)
  process.send_signal(TERM)
  assert ended(process, 60) in (0, 128 + TERM, -TERM)
  finish(rich_store, workdir)
  bit_equal(workdir, straight)


# The moment, the signal, and which of two processes it hits.
PAIRS = [
  (compiling, KILL, [1]), (stepping, KILL, [0]), (stepping, KILL, [1]), (saving, KILL, [0, 1]),
  (compiling, TERM, [0]), (stepping, TERM, [1]), (stepping, HUP, [0]), (saving, INT, [0, 1]),
]  # fmt: skip
name_of = lambda given: getattr(given, '__name__', None) or getattr(given, 'name', str(given))


@pytest.mark.parametrize('moment, number, hit', PAIRS, ids=name_of)
@mutation(
  "hosts.gather('stop/steps', str(here), GRACE_S)",
  '[str(here + hosts.index())]',
  case='stepping-SIGTERM-[1]',
)
def test_one_process_of_two_or_both(moment, number, hit, rich_store, pair, tmp_path):
  """Both end, and the same command goes on."""
  workdir = tmp_path / 'run'
  both = processes.start_pair(rich_store, workdir)
  asked = workdir if moment is saving else pathlib.Path(f'{workdir}.0')  # whose log is read
  until(moment, asked, 0, *both)
  time.sleep(random.Random(str(moment)).uniform(0, 0.3))
  for process in hit:
    both[process].send_signal(number)
  statuses = [ended(process, SILENT_S + 100) for process in both]
  said = lambda: [log(workdir, process)[-2000:] for process in range(2)]
  assert number == KILL or statuses == [0, 0], (statuses, said())
  again = processes.start_pair(rich_store, workdir)
  assert [ended(process) for process in again] == [0, 0], said()
  bit_equal(workdir, pair)


@mutation('SILENT_S = 200', 'SILENT_S = 40')
@mutation('hosts.told(key, hosts.WAIT_S)', 'hosts.told(key, 1.0)')
def test_processes_that_stand_still(rich_store, tmp_path):
  """Each of two processes stands still between steps for longer than gRPC waits for a ping; process
  1 was quiet before, so none is pending. Nothing comes of it."""
  settings = ' '.join(f'{flag}={seconds}' for flag, seconds in PATIENCE.items())
  envs = [dict(XLA_FLAGS=f'{processes.environment(2)["XLA_FLAGS"]} {settings}')] * 2
  flags = ('--config.total_steps=200', '--config.checkpoint_steps=1000', '--config.eval_steps=1000')
  whole, workdir = tmp_path / 'straight', tmp_path / 'run'
  start = lambda place: processes.start_pair(rich_store, place, *flags, envs=envs)
  said = lambda place: log(place, 0) + log(place, 1)
  assert [ended(process, 900) for process in start(whole)] == [0, 0], said(whole)
  both = start(workdir)
  processes.wait_for(lambda: steps_logged(workdir) >= 2, *both, seconds=900)
  for process, seconds in ((1, 12), (1, 80), (0, 80)):
    both[process].send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    both[process].send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert [each.poll() for each in both] == [None, None], said(workdir)
  assert [ended(process, 900) for process in both] == [0, 0], said(workdir)
  bit_equal(workdir, whole)


def test_in_prepare_of_a_run(tmp_path):
  """The run makes its vocabulary and its store first; that is where it is hit."""
  prepare_runs.write_text(tmp_path / 'text.txt', 3000)
  given = [f'--config.data.input={tmp_path}/text.txt', '--config.data.train_vocab.type=wordpiece']
  given += ['--config.data.train_vocab.size=300', '--config.total_steps=5']
  whole, workdir = tmp_path / 'straight', tmp_path / 'run'
  finish('', whole, *given)
  for name, number in (
    ('vocab', KILL), ('store.partial', TERM), ('store.partial', KILL), ('made_of.json', HUP)
  ):  # fmt: skip
    process = processes.start('', workdir, *given)
    until(lambda workdir, _, name=name: (workdir / name).exists(), workdir, 0, process)
    process.send_signal(number)
    ended(process, 90)
  finish('', workdir, *given)
  files = [prepare_runs.contents(place / 'store') for place in (whole, workdir)]
  one, two = ({k: x for k, x in each.items() if 'plans/' not in k} for each in files)
  assert one.keys() == two.keys() and not [name for name in one if one[name] != two[name]]
  bit_equal(workdir, whole)


def several(workdir: pathlib.Path) -> None:
  """Damages the newest checkpoint, the scores of the one before it, a line that a kill has torn,
  and the picture."""
  flip(max(workdir.glob('checkpoints/40/state/d/*')))
  (workdir / 'checkpoints/36/scores.json').write_text('{"scores": {"eval/mlm": ')
  with open(workdir / 'metrics.jsonl', 'a') as file:
    file.write('{"step": 41, "lo')
  (workdir / 'curves.png').write_bytes(b'')


def newest_two(workdir: pathlib.Path) -> None:
  """Removes them without a trace but for what was noted of them."""
  for step in ('36', '40'):
    shutil.rmtree(workdir / 'checkpoints' / step)


@pytest.mark.parametrize(
  'damage, said',
  [(several, ('Falling back to checkpoint', '40 is damaged')), (newest_two, ('going on from 30',))],
)
def test_damage_to_a_finished_run_is_mended(damage, said, rich_store, straight, tmp_path):
  """What is done to each file alone is in tests/store, tests/checkpoint and tests/metrics."""
  workdir = pathlib.Path(shutil.copytree(straight, tmp_path / 'run'))
  damage(workdir)
  told = finish(rich_store, workdir)
  assert all(each in told for each in said), told
  bit_equal(workdir, straight)


def test_of_four_runs_in_one_workdir_one_trains(rich_store, straight, tmp_path):
  """Each of the others names it and touches nothing."""
  workdir, logs = tmp_path / 'run', [tmp_path / f'log{number}' for number in range(4)]
  running = [processes.start(rich_store, workdir, logs=name) for name in logs]
  statuses = [ended(process) for process in running]
  # One that comes when another has ended goes on from its end, which changes nothing.
  won = [process.pid for process, status in zip(running, statuses, strict=True) if status == 0]
  for name, status in zip(logs, statuses, strict=True):
    text = log(name)
    named = any(f'process {pid} on ' in text for pid in won)
    assert status == 0 or named and 'another run is at work in' in text, text
    assert status == 0 or 'Traceback' not in text, text
  bit_equal(workdir, straight)


def test_an_evaluation_beside_a_run_takes_nothing_from_it(rich_store, straight, tmp_path):
  workdir = tmp_path / 'run'
  process = processes.start(rich_store, workdir)
  saved = lambda: any(p.name.isdecimal() for p in workdir.glob('checkpoints/*'))
  processes.wait_for(saved, process)
  assert '"eval/mlm"' in finish(rich_store, workdir, '--evaluate')
  assert ended(process) == 0
  bit_equal(workdir, straight)
