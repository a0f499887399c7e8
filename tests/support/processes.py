"""Runs of the whole program in processes of their own, for several test files."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

import compiling
import forks

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 40


def command(store, workdir, *more, config: str = 'bert.py:test') -> list[str]:
  """The command of a user, who names the workdir by a relative path, or by a URL."""
  place = workdir if '://' in str(workdir) else os.path.relpath(workdir, ROOT)
  return [
    sys.executable, '-m', 'bertjax.main', f'--config=configs/{config}',
    f'--workdir={place}',
    f'--config.data.store={store}', '--config.batch_size=8', '--config.length=64',
    f'--config.total_steps={STEPS}', '--config.log_steps=1', '--config.eval_steps=15',
    '--config.checkpoint_steps=6', '--config.evals.held_out.batch_size=8',
    '--config.evals.held_out.examples=16', '--config.evals.pseudo_perplexity.rows=0', *more,
  ]  # fmt: skip


def environment(devices: int = 1) -> dict[str, str]:
  """Warnings stay warnings there. None starts anew for huge pages: it has them."""
  return dict(
    os.environ,
    GLIBC_TUNABLES='glibc.malloc.hugetlb=1',
    PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')])),
    XLA_FLAGS=f'--xla_force_host_platform_device_count={devices} {compiling.flags()}',
  )


def run(
  store, workdir, *more, devices: int = 1, config: str = 'bert.py:test'
) -> subprocess.CompletedProcess:
  """A run from start to end; `start` and `kill_at` have processes of their own."""
  words = command(store, workdir, *more, config=config)[2:]
  return forks.run(*words, cwd=ROOT, env=environment(devices))


def finish(store, workdir, *more, **options) -> str:
  """What a run says that comes to its end without an error; see `run`."""
  done = run(store, workdir, *more, **options)
  said = done.stdout + done.stderr
  assert done.returncode == 0 and 'Traceback' not in done.stderr, said
  return said


def typed(folder, command: str, smaller: dict[str, str]) -> str:
  """What a command of a page prints, as a shell runs it in the folder; `smaller` has flags of runs,
  by their workdirs."""
  trained = re.search(r'bertjax\.main .*--workdir=runs/(\w+)', command)
  path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
  done = subprocess.run(
    ['bash', '-c', f'{command} {smaller[trained[1]] if trained else ""}'], cwd=folder, text=True,
    env=environment() | dict(PATH=path), capture_output=True, timeout=900, check=False,
  )  # fmt: skip
  assert done.returncode == 0, f'{command}\n{done.stdout[-2000:]}{done.stderr[-3000:]}'
  return done.stdout


def lines(workdir) -> list[dict]:
  return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


def exact(workdir) -> list[dict]:
  """What must be equal bit for bit: all but times and speeds."""
  timed = lambda key: key.startswith('time/') or key in ('tokens_per_second', 'mfu')
  return [{k: v for k, v in line.items() if not timed(k)} for line in lines(workdir)]


def kill_at(store, workdir, ready, *more, config: str = 'bert.py:test') -> None:
  """Starts the run, for `kill_when`."""
  kill_when(command(store, workdir, *more, config=config), ready)


def kill_when(command: list[str], ready) -> None:
  """Starts a command and kills it -9 as soon as `ready()` holds, or lets it finish."""
  quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  process = subprocess.Popen(command, cwd=ROOT, env=environment(), **quiet)
  while process.poll() is None and not ready():
    time.sleep(0.002)
  process.kill()
  process.wait()


def free_port() -> int:
  """One of this machine's that nothing listens to."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    return free.getsockname()[1]


def steps_logged(workdir) -> int:
  path = workdir / 'metrics.jsonl'
  return path.read_text().count('"loss"') if path.exists() else 0


def start(store, workdir, *more, devices: int = 1, logs='', **options) -> subprocess.Popen:
  """Starts the run; its output is LOGS.log, by default WORKDIR.log."""
  with open(f'{logs or workdir}.log', 'a', encoding='utf-8') as log:
    return subprocess.Popen(
      command(store, workdir, *more, **options), cwd=ROOT, env=environment(devices), stdout=log,
      stderr=subprocess.STDOUT,
    )  # fmt: skip


def start_pair(
  store, workdir, *more, each=((), ()), logs='', envs=({}, {}), roots=(ROOT, ROOT)
) -> list[subprocess.Popen]:
  """Two processes of two devices; `each` has further flags of either, `envs` further variables and
  `roots` the directory that it runs in. Logs are LOGS.I.log, by default WORKDIR.I.log."""
  port = free_port()
  env = dict(environment(2), JAX_CPU_COLLECTIVES_IMPLEMENTATION='gloo')
  started = []
  for process in range(2):
    place = (f'--coordinator=127.0.0.1:{port}', '--processes=2', f'--process={process}')
    flags = command(store, workdir, *more, *place, *each[process])
    with open(f'{logs or workdir}.{process}.log', 'a', encoding='utf-8') as log:
      own = dict(cwd=roots[process], env=env | envs[process])
      started.append(subprocess.Popen(flags, **own, stdout=log, stderr=log))
  return started


def wait_for(ready, *running: subprocess.Popen, seconds: float = 240.0) -> None:
  """Waits until `ready()` holds, while all of these run."""
  end = time.monotonic() + seconds
  while not ready():
    ended = [process.args for process in running if process.poll() is not None]
    assert not ended, f'ended too early: {ended}'
    assert time.monotonic() < end, 'waited too long'
    time.sleep(0.01)
