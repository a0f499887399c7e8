"""Kills and signals: the same command goes on, and ends as the run that nothing happened to.

Several kills hit one run, a life after the other, so that each finds what the one before it left.
"""

import functools
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable

import processes
from processes import steps_logged

from bertjax.launch.local import PATIENCE
from bertjax.machine.distributed import SILENT_S
from tests.faults import small
from tests.faults.bench import SECONDS, Bench, Case, bit_equal, ended, log

TERM, INT, HUP, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL
NAMES = {TERM: 'SIGTERM', INT: 'Ctrl-C', HUP: 'SIGHUP', KILL: 'kill -9'}
Moment = Callable[[pathlib.Path, int], bool]  # (workdir, length of the log before) -> is it now?


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


def until(moment: Moment, workdir: pathlib.Path, before: int, *running: subprocess.Popen) -> None:
  """Waits for a moment, or until one of the processes has ended."""
  end = time.monotonic() + SECONDS
  while all(p.poll() is None for p in running) and not moment(workdir, before):
    if time.monotonic() > end:
      raise TimeoutError(f'{moment} never came')
    time.sleep(0.002)


def lives(bench: Bench, moments: list[tuple[Moment, signal.Signals, float]]) -> None:
  """Ends a run at each of these moments, then lets it go on to its end."""
  workdir = bench.folder / 'run'
  for moment, number, most in moments:
    before = len(log(workdir))
    (process,) = bench.watch(processes.start(bench.store, workdir))
    until(moment, workdir, before, process)
    time.sleep(bench.random.uniform(0, most))
    process.send_signal(number)
    status = ended(process, 90)
    said = log(workdir)[before:]
    assert 'Traceback' not in said, said
    if number != KILL and opening(workdir, before):  # before that Python itself may end it
      assert status == 0, f'status {status} after {number.name}: {said}'
  finished(bench, workdir)


def finished(bench: Bench, workdir: pathlib.Path) -> None:
  """Gives the same command once more; the run must end as if nothing had happened."""
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0, done.stderr
  bit_equal(workdir, bench.shared.straight)


def started(workdir: pathlib.Path, before: int) -> bool:
  del workdir, before
  return True


def one(name: str, number: signal.Signals, moments: list[tuple[Moment, float]]) -> Case:
  """A case of one process that gets the same signal at several moments."""
  plan = [(moment, number, most) for moment, most in moments]
  group = f'{NAMES[number]}, one process'
  return Case(group, name, lambda bench: lives(bench, plan))


def twice(bench: Bench) -> None:
  """The second signal may come in the save that the first has led to, or too late."""
  workdir = bench.folder / 'run'
  (process,) = bench.watch(processes.start(bench.store, workdir))
  until(stepping, workdir, 0, process)
  process.send_signal(TERM)
  time.sleep(1.2)
  process.send_signal(TERM)
  assert ended(process, 60) in (0, 128 + TERM, -TERM)
  finished(bench, workdir)


def pair(bench: Bench, moment: Moment, number: signal.Signals, hit: tuple[int, ...]) -> None:
  """Hits one process of two, or both; both must end, and the same command goes on."""
  workdir = bench.folder / 'run'
  first = pathlib.Path(f'{workdir}.0')  # whose log is asked
  both = bench.watch(*processes.start_pair(bench.store, workdir))
  where = workdir if moment is saving else first
  until(moment, where, 0, *both)
  time.sleep(bench.random.uniform(0, 0.3))
  for process in hit:
    both[process].send_signal(number)
  statuses = [ended(process, SILENT_S + 100) for process in both]
  if number != KILL:
    assert statuses == [0, 0], (statuses, log(workdir, 0)[-2000:], log(workdir, 1)[-2000:])
  again = bench.watch(*processes.start_pair(bench.store, workdir))
  statuses = [ended(process) for process in again]
  assert statuses == [0, 0], (log(workdir, 0)[-2000:], log(workdir, 1)[-2000:])
  bit_equal(workdir, bench.shared.pair)


def two(moment: Moment, number: signal.Signals, *hit: int) -> Case:
  whom = f'process {hit[0]}' if len(hit) == 1 else 'both'
  work = functools.partial(pair, moment=moment, number=number, hit=hit)
  return Case(f'{NAMES[number]}, two processes', f'{whom} while {moment.__name__}', work)


def held(bench: Bench) -> None:
  """Each of two processes stands still between steps for longer than gRPC waits for a ping; process
  1 was quiet before, so none is pending. Nothing comes of it."""
  settings = ' '.join(f'{flag}={seconds}' for flag, seconds in PATIENCE.items())
  envs = [dict(XLA_FLAGS=f'{processes.environment(2)["XLA_FLAGS"]} {settings}')] * 2
  flags = ('--config.total_steps=200', '--config.checkpoint_steps=1000', '--config.eval_steps=1000')
  straight, workdir = bench.folder / 'straight', bench.folder / 'run'
  start = lambda workdir: bench.watch(
    *processes.start_pair(bench.store, workdir, *flags, envs=envs)
  )
  assert [ended(process, 900) for process in start(straight)] == [0, 0], log(straight, 0)
  both = start(workdir)
  processes.wait_for(lambda: steps_logged(workdir) >= 2, *both, seconds=900)
  for process, seconds in ((1, 12), (1, 80), (0, 80)):
    both[process].send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    both[process].send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert [each.poll() for each in both] == [None, None], log(workdir, 0) + log(workdir, 1)
  assert [ended(process, 900) for process in both] == [0, 0], log(workdir, 0) + log(workdir, 1)
  bit_equal(workdir, straight)


def prepare_lives(bench: Bench, numbers: list[signal.Signals]) -> None:
  """Ends `prepare` at random moments of its work."""
  text = small.text(bench.folder, 4000)
  whole, output = bench.folder / 'whole', bench.folder / 'store'
  took = small.seconds(lambda: small.prepare(text, whole))
  for number in numbers:
    (process,) = bench.watch(small.start_prepare(text, output))
    time.sleep(bench.random.uniform(0.1, 0.9) * took)
    process.send_signal(number)
    ended(process, 60)
  assert small.prepare(text, output).returncode == 0
  small.same_files(whole, output)


def in_prepare_of_a_run(bench: Bench) -> None:
  """The run makes its vocabulary and its store first; that is where it is hit."""
  text = small.text(bench.folder, 3000)
  flags = [f'--config.data.input={text}', '--config.data.train_vocab.type=wordpiece']
  flags += ['--config.data.train_vocab.size=300', '--config.total_steps=5']
  straight, workdir = bench.folder / 'straight', bench.folder / 'run'
  done = processes.run('', straight, *flags)
  assert done.returncode == 0, done.stderr
  moments = [
    (lambda: (workdir / 'vocab').exists(), KILL),
    (lambda: (workdir / 'store.partial').exists(), TERM),
    (lambda: (workdir / 'store.partial').exists(), KILL),
    (lambda: (workdir / 'made_of.json').exists(), HUP),
  ]
  for ready, number in moments:
    (process,) = bench.watch(processes.start('', workdir, *flags))
    until(lambda *_, ready=ready: ready(), workdir, 0, process)
    process.send_signal(number)
    ended(process, 90)
  done = processes.run('', workdir, *flags)
  assert done.returncode == 0, done.stderr
  small.same_files(straight / 'store', workdir / 'store')
  bit_equal(workdir, straight)


CASES = [
  one('8 random moments before the first step', KILL, [(started, 8.0)] * 8),
  one('8 random moments of training', KILL, [(stepping, 2.0)] * 8),
  one('6 in a save', KILL, [(saving, 0.05)] * 6),
  one('2 in an evaluation', KILL, [(evaluating, 0.02)] * 2),
  one('opening, compiling, training, saving', TERM, [
    (opening, 0.5), (compiling, 1.0), (stepping, 1.0), (saving, 0.02)]),
  one('opening, compiling, training, saving', INT, [
    (opening, 0.5), (compiling, 1.0), (stepping, 1.0), (saving, 0.02)]),
  one('opening, compiling, training, saving', HUP, [
    (opening, 0.5), (compiling, 1.0), (stepping, 1.0), (saving, 0.02)]),
  one('4 random moments before it listens', TERM, [(started, 3.0)] * 4),
  Case('SIGTERM, one process', 'two within 1.2 s', twice),
  two(compiling, KILL, 1), two(stepping, KILL, 0), two(stepping, KILL, 1), two(saving, KILL, 0, 1),
  two(compiling, TERM, 0), two(stepping, TERM, 1), two(stepping, HUP, 0), two(saving, INT, 0, 1),
  Case('processes that stand still', '80 s between steps', held),
  Case('kill -9 and signals, in prepare', '8 random moments',
       lambda bench: prepare_lives(bench, [KILL] * 8)),
  Case('kill -9 and signals, in prepare', 'TERM, INT, HUP at random moments',
       lambda bench: prepare_lives(bench, [TERM, INT, HUP])),
  Case('kill -9 and signals, in prepare', 'of a run', in_prepare_of_a_run),
]  # fmt: skip
