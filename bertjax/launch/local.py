"""N processes on this machine as one run, each with M simulated devices:

  launch/local.sh N[xM] [--dry-run] --config=... --workdir=...

They run on CPUs, unless JAX_PLATFORMS says otherwise, and talk through gloo over 127.0.0.1. The
output of process 0 is shown, that of process I goes to WORKDIR.process-I.log. SIGTERM, Ctrl-C and
SIGHUP are passed on to all, which save at one step; a second one stops them at once. None outlives
the launcher. --dry-run shows the commands.
"""

import os
import pathlib
import re
import shlex
import socket
import sys
import tempfile

from bertjax.config import arguments
from bertjax.errors import UserError
from bertjax.launch.processes import Command, run_together

DEVICES = '--xla_force_host_platform_device_count'
# By default XLA aborts a process that waits 30 or 60 s for another, which may be stopped.
PATIENCE = {
  '--xla_cpu_collective_timeout_seconds': 1800,
  '--xla_cpu_collective_call_terminate_timeout_seconds': 1800,
}


def main(argv: list[str]) -> int:
  """Starts the processes and returns when all have ended, with their status."""
  if arguments.wants_help(argv, __doc__):
    return 0 if argv else 2
  size, *flags = [word for word in argv if word != '--dry-run'] or ['']
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  commands = commands_of(size, flags, port)
  if '--dry-run' in argv:
    for command in commands:
      environ = [f'{key}={shlex.quote(value)}' for key, value in command.environ.items()]
      log = f' > {shlex.quote(str(command.log))} 2>&1' if command.log else ''
      print(' '.join([*environ, shlex.join(command.arguments)]) + log)
    return 0
  for command in commands:
    if command.log:
      command.log.parent.mkdir(parents=True, exist_ok=True)
      command.log.write_bytes(b'')
  return run_together(commands)


def commands_of(size: str, flags: list[str], port: int) -> list[Command]:
  """Returns the commands of N or NxM processes. UserError: another size, or no --workdir."""
  match = re.fullmatch(r'([1-9]\d*)(?:x([1-9]\d*))?', size)
  if not match:
    raise UserError(
      f'expected N or NxM first, processes and simulated devices of each, got {size!r}: '
      'launch/local.sh 2x4 --config=... --workdir=...'
    )
  processes, devices = int(match[1]), match[2]
  workdir = arguments.required(flags, 'workdir')
  environ = {
    'JAX_PLATFORMS': os.environ.get('JAX_PLATFORMS') or 'cpu',
    'JAX_CPU_COLLECTIVES_IMPLEMENTATION': 'gloo',
  }
  given = os.environ.get('XLA_FLAGS', '')
  own = {name: seconds for name, seconds in PATIENCE.items() if name not in given}
  if devices:
    own[DEVICES] = int(devices)
  kept = [flag for flag in given.split() if flag.partition('=')[0] not in own]
  environ['XLA_FLAGS'] = ' '.join([*kept, *(f'{name}={value}' for name, value in own.items())])
  found = []
  for process in range(processes):
    log = _log_base(workdir).with_name(f'{_log_base(workdir).name}.process-{process}.log')
    place = [f'--coordinator=127.0.0.1:{port}', f'--processes={processes}', f'--process={process}']
    command = [sys.executable, '-m', 'bertjax.main', *flags, *place]
    found.append(Command(command, environ, log if process else None, f'process {process}'))
  return found


def _log_base(workdir: str) -> pathlib.Path:
  """Beside the workdir, or in the temporary directory if that is in an object store."""
  if '://' in workdir:
    return pathlib.Path(tempfile.gettempdir(), re.sub(r'\W+', '-', workdir))
  return pathlib.Path(workdir).absolute()
