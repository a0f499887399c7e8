"""Many processes that want the same: one has it, the others wait for it or are told who has it."""

import functools

import processes

from tests.faults.bench import Bench, Case, bit_equal, ended, log


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


CASES = [
  Case('races for a lock', '4 runs in one workdir', functools.partial(runs_at_once, count=4)),
  Case('races for a lock', 'an evaluation beside a run', evaluated_meanwhile),
]
