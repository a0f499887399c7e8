"""All GPUs of this machine, or of several, one process each:

  launch/gpu.sh [--hosts=A,B,...] [--dry-run] --config=... --workdir=...

Without --hosts the run is one process here. With it each host is reached by ssh, without a
password, and has this checkout, this environment, the workdir and the store under the same paths.
A is the coordinator (--port, 8482). Where the launcher is stopped, the hosts get SIGHUP, on which
the run saves and ends.
"""

import os
import shlex
import sys

from bertjax.launch import arguments
from bertjax.launch.processes import Command, run_together

PORT = '8482'


def main(argv: list[str]) -> int:
  """Starts the processes and returns when all have ended, with their status."""
  if arguments.wants_help(argv, __doc__):
    return 0 if argv else 2
  dry_run, flags = arguments.own(argv, 'dry-run')
  commands = commands_of(flags, os.getcwd())
  if dry_run:
    print('\n'.join(shlex.join(command.arguments) for command in commands))
    return 0
  return run_together(commands)


def commands_of(argv: list[str], folder: str) -> list[Command]:
  """Returns the commands of the hosts, to run in a folder of each: --hosts=A,B and --port=P, if
  there are several, and the flags of `bertjax.main`."""
  flags = list(arguments.without_flags(argv, ('hosts', 'port'), ()))
  arguments.required(flags, 'workdir')
  hosts = [host for host in (arguments.value(argv, 'hosts') or '').split(',') if host]
  preset = [] if arguments.value(flags, 'config.preset') is not None else ['--config.preset=gpu']
  run = [sys.executable, '-m', 'bertjax.main', *flags, *preset]
  if not hosts:
    return [Command(run, {}, None, 'run')]
  coordinator = f'{hosts[0].rpartition("@")[2]}:{arguments.value(argv, "port") or PORT}'
  path = os.environ.get('PYTHONPATH', '')
  found = []
  for process, host in enumerate(hosts):
    place = [f'--coordinator={coordinator}', f'--processes={len(hosts)}', f'--process={process}']
    remote = f'cd {shlex.quote(folder)} && PYTHONPATH={shlex.quote(path)} exec '
    remote += shlex.join([*run, *place])
    # -tt: with a terminal of its own the run is hung up when the connection ends.
    ssh = ['ssh', '-tt', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=30', host, remote]
    found.append(Command(ssh, {}, None, f'process {process} on {host}'))
  return found
