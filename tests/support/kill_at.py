"""Processes that are killed -9 at a moment of their work, which they tell themselves."""

import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

import processes

HOOK = pathlib.Path(__file__).with_name('kill_hook')


def killed(
  command: Sequence[str], moment: object, below: pathlib.Path, environment: Mapping[str, str]
) -> None:
  """Runs a command until just before a moment; see `kill_hook/sitecustomize.py`.

  Args:
    command: of Python.
    moment: KILL_AT.
    below: KILL_BELOW.
    environment: of the process.
  """
  path = os.pathsep.join(filter(None, [str(HOOK), environment.get('PYTHONPATH', '')]))
  told = dict(environment, PYTHONPATH=path, KILL_AT=str(moment), KILL_BELOW=str(below))
  done = subprocess.run(
    command, cwd=processes.ROOT, env=told, text=True, capture_output=True, timeout=600, check=False,
    start_new_session=True,
  )  # fmt: skip
  assert done.returncode == -signal.SIGKILL, (moment, done.returncode, done.stdout + done.stderr)
