"""What tests of faults ask of processes and runs."""

import pathlib
import subprocess

import processes

SECONDS = 300.0  # until a process that should end counts as one that never will


def ended(process: subprocess.Popen, seconds: float = SECONDS) -> int:
  """The exit status of a process that is to end by itself; one that does not is killed."""
  try:
    return process.wait(seconds)
  finally:
    process.kill()


def log(workdir: pathlib.Path, process: int | None = None) -> str:
  """What a process of the run has said so far; see `processes.start` and `start_pair`."""
  path = pathlib.Path(f'{workdir}.log' if process is None else f'{workdir}.{process}.log')
  return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''


def bit_equal(workdir: pathlib.Path, straight: pathlib.Path) -> None:
  """Compares the metrics of two finished runs, all but times."""
  assert processes.exact(workdir) == processes.exact(straight)


def refused(store: pathlib.Path | str, workdir: pathlib.Path, *said: str, flags=()) -> None:
  """Runs a command that ends with an error, and says this."""
  done = processes.run(store, workdir, *flags)
  told = done.stdout + done.stderr
  assert done.returncode != 0 and 'Traceback' not in done.stderr, told
  for each in said:
    assert each in told, (each, told)
