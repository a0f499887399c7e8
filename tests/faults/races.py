"""Many processes that want the same: one has it, the others wait for it or are told who has it."""

import functools
import json
import pathlib
import signal
import time

import processes

from tests.faults import small
from tests.faults.bench import SECONDS, Bench, Case, bit_equal, ended, log


def runs_at_once(bench: Bench, count: int) -> None:
  """One of them trains; each of the others names it and touches nothing."""
  workdir = bench.folder / 'run'
  logs = [bench.folder / f'log{number}' for number in range(count)]
  running = [processes.start(bench.store, workdir, logs=name) for name in logs]
  bench.watch(*running)
  statuses = [ended(process) for process in running]
  # One that comes when another has ended goes on from its end, which changes nothing.
  won = [number for number, status in enumerate(statuses) if status == 0]
  assert won, [log(name)[-500:] for name in logs]
  names = [f'process {running[number].pid} on ' for number in won]
  for number, status in enumerate(statuses):
    if status != 0:
      text = log(logs[number])
      assert 'another run is at work in' in text and any(name in text for name in names), text
      assert 'Traceback' not in text, text
  bit_equal(workdir, bench.shared.straight)


def second_run(bench: Bench) -> None:
  """While the first stands still, and after it was killed."""
  workdir = bench.folder / 'run'
  first, second = (bench.folder / name for name in ('first', 'second'))
  (process,) = bench.watch(processes.start(bench.store, workdir, logs=first))
  processes.wait_for(lambda: (workdir / 'lock').exists(), process)
  time.sleep(0.1)
  process.send_signal(signal.SIGSTOP)
  (other,) = bench.watch(processes.start(bench.store, workdir, logs=second))
  assert ended(other) == 1 and f'process {process.pid} on ' in log(second), log(second)
  process.kill()
  process.wait()
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0, done.stderr
  bit_equal(workdir, bench.shared.straight)


def evaluated_meanwhile(bench: Bench) -> None:
  """`--evaluate` reads beside a run, and takes nothing from it."""
  workdir = bench.folder / 'run'
  (process,) = bench.watch(processes.start(bench.store, workdir))
  saved = lambda: any(p.name.isdecimal() for p in workdir.glob('checkpoints/*'))
  processes.wait_for(saved, process)
  done = processes.run(bench.store, workdir, '--evaluate')
  assert done.returncode == 0 and '"eval/mlm"' in done.stdout, done.stderr
  assert ended(process) == 0
  bit_equal(workdir, bench.shared.straight)


def prepares_at_once(bench: Bench, count: int) -> None:
  """One makes the store, and the others say who; or find it made."""
  text = small.text(bench.folder, 2000)
  whole, output = bench.folder / 'whole', bench.folder / 'store'
  assert small.prepare(text, whole).returncode == 0
  running = bench.watch(*(small.start_prepare(text, output) for _ in range(count)))
  statuses = [ended(process) for process in running]
  said = pathlib.Path(f'{output}.said').read_text()
  assert 0 in statuses and set(statuses) <= {0, 1} and 'Traceback' not in said, said
  assert said.count(' on ') + said.count('already there') >= count - 1, said
  small.same_files(whole, output)


def prepare_beside_a_killed_one(bench: Bench) -> None:
  """Its workers may outlive it by a moment; the next one takes over."""
  text = small.text(bench.folder, 4000)
  whole, output = bench.folder / 'whole', bench.folder / 'store'
  took = small.seconds(lambda: small.prepare(text, whole))
  (process,) = bench.watch(small.start_prepare(text, output))
  time.sleep(0.7 * took)
  process.kill()
  done = small.prepare(text, output)
  assert done.returncode == 0, done.stderr
  small.same_files(whole, output)


def plans_at_once(bench: Bench, count: int, lengths: int = 1, kill: bool = False) -> None:
  """One builds each plan and the others wait for it, also when the builder is killed."""
  store = small.plan_store(bench.folder / 'store')
  sizes = [64 // (1 + number % lengths) for number in range(count)]
  running = list(bench.watch(*(small.start_plan(store, size, 1.0) for size in sizes)))
  if kill:
    building = lambda: next((store / 'plans').glob('.building-*/begun'), None)
    processes.wait_for(building, *running)
    lock = next((store / 'plans').glob('*.lock'))
    pid = json.loads(lock.read_text())['pid']
    builder = next(process for process in running if process.pid == pid)
    builder.kill()
    builder.wait()
    running.remove(builder)
  statuses = [ended(process, SECONDS) for process in running]
  said = pathlib.Path(f'{store}.said').read_text()
  assert statuses == [0] * len(running) and 'Traceback' not in said, said
  for size in set(sizes):
    small.right_plan(store, size)
  left = [path.name for path in (store / 'plans').iterdir()]
  if len(left) != lengths:
    raise AssertionError(f'{lengths} plans, but {left}')


CASES = [
  Case('races for a lock', '4 runs in one workdir', functools.partial(runs_at_once, count=4)),
  Case('races for a lock', 'a run beside one that stands still, then is killed', second_run),
  Case('races for a lock', 'an evaluation beside a run', evaluated_meanwhile),
  Case('races for a lock', '4 prepares of one store', functools.partial(prepares_at_once, count=4)),
  Case('races for a lock', 'prepare after one that was killed', prepare_beside_a_killed_one),
  Case('races for a lock', 'a plan by 6 processes', functools.partial(plans_at_once, count=6)),
  Case('races for a lock', 'a plan by 5 processes, the builder killed',
       functools.partial(plans_at_once, count=5, kill=True)),
  Case('races for a lock', '3 plans by 6 processes',
       functools.partial(plans_at_once, count=6, lengths=3)),
]  # fmt: skip
