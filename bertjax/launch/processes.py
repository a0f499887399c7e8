"""Commands that run side by side as one: signals reach all of them, and none is left behind.

Each is in a session of its own, so that Ctrl-C on a terminal comes to this process alone and is
passed on once: a run stops at a second signal without saving.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
UNFINISHED = 75  # EX_TEMPFAIL of sysexits.h: try again; of what was asked to stop and goes on later
GRACE_S = 15.0  # for the others, after one has failed
POLL_S = 0.05
_TAIL = 2000  # characters of a log that are shown

# Asks the kernel for SIGKILL when the parent is gone, and becomes the command. A function of
# Popen's `preexec_fn` would have to run between fork and exec, where threads make trouble.
_TIE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
  os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Command(NamedTuple):
  """A command."""

  arguments: Sequence[str]  # of which the first is the program
  environ: Mapping[str, str]  # changes of the environment
  log: pathlib.Path | None  # file for its output; None: the screen
  name: str  # for messages
  older: int = 0  # bytes of the log that are of earlier attempts; `run_together` sets it


def run_together(commands: Sequence[Command], asked: list[int] | None = None) -> int:
  """Runs all to their end; SIGTERM, SIGINT and SIGHUP are passed on to each, a third one kills. If
  one fails, it is said, and the others are stopped, and killed after `GRACE_S`; if this process is
  killed, so are they. Returns the status of the first that failed or 0; 128 + N for signal N. The
  signals are added to `asked`: one that comes as a command ends leaves that a status of 0."""
  children: list[subprocess.Popen] = []
  sizes = [c.log.stat().st_size if c.log and c.log.exists() else 0 for c in commands]
  commands = [c._replace(older=size) for c, size in zip(commands, sizes, strict=True)]
  came = [] if asked is None else asked
  heard = [n for n in FORWARDED if signal.getsignal(n) is not signal.SIG_IGN]  # not nohup's SIGHUP
  handlers = {n: signal.signal(n, lambda n, _: came.append(n)) for n in heard}
  try:
    for command in commands:
      if not came:
        children.append(_start(command))
    return _wait(commands, children, came)
  finally:
    _send(children, signal.SIGKILL)
    for child in children:
      child.wait()
    for number, handler in handlers.items():
      signal.signal(number, handler)


def _start(command: Command) -> subprocess.Popen:
  tied = [sys.executable, '-ISc', _TIE, str(os.getpid()), *command.arguments]
  log = open(command.log, 'ab') if command.log else None
  try:
    return subprocess.Popen(
      tied,
      env={**os.environ, **command.environ},
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=subprocess.STDOUT if log else None,
      start_new_session=True,
    )
  finally:
    if log:
      log.close()


def _wait(
  commands: Sequence[Command], children: Sequence[subprocess.Popen], asked: Sequence[int]
) -> int:
  """Returns the status of all, once they have ended; `asked` grows by the signals that come."""
  status, end, sent, first = 0, float('inf'), 0, None
  while True:
    running = [child for child in children if child.poll() is None]
    failed = next((i for i, child in enumerate(children) if child.returncode), None)
    if failed is not None and not status:
      code, end = children[failed].returncode, time.monotonic() + GRACE_S
      status = code if code >= 0 else 128 - code
      if not (asked and status == UNFINISHED):  # it was asked to stop, and goes on another time
        first = commands[failed]
        _say(f'{first.name} {_how(status)}', first)
      _send(running, signal.SIGTERM)
    if not running:
      if first and len(commands) > 1:
        mended = '' if status > 128 else ', once that is mended,'
        _say(
          f'{first.name} {_how(status)}, and so the others were stopped; by the same command'
          f'{mended} a run goes on from its last checkpoint'
        )
      return status or (128 + asked[0] if len(children) < len(commands) else 0)
    for number in asked[sent:]:
      sent += 1
      _send(running, signal.SIGKILL if sent > 2 else number)
    if time.monotonic() > end:
      _send(running, signal.SIGKILL)
    time.sleep(POLL_S)


def _how(status: int) -> str:
  return (
    f'was ended by {signal.Signals(status - 128).name}' if status > 128 else f'failed: {status}'
  )


def _say(said: str, shown: Command | None = None) -> None:
  said = f'bertjax.launch: {said}'
  if shown and shown.log:
    end = shown.log.read_bytes()[shown.older :][-_TAIL:].decode(errors='replace')
    said += f'; the end of its output, {shown.log}:\n{end}'
  print(said, file=sys.stderr, flush=True)


def _send(children: Sequence[subprocess.Popen], number: int) -> None:
  for child in children:
    if child.poll() is None:
      child.send_signal(number)
