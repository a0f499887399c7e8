"""A run on all workers of a TPU VM or pod, made if need be, followed and started again:

  TPU=name ZONE=us-central2-b TYPE=v5litepod-16 launch/tpu_vm.sh [--dry-run] [--detach] \\
      --config=... --workdir=gs://...

Environment:
  TPU, ZONE  name and zone; a queued resource or a TPU VM of that name is used if there is one
  TYPE       accelerator type; without it nothing is made, also not after a preemption
  RUNTIME    software version of the machines; by default that of the type
  SLICES     of a multi-slice run (1)
  SPOT       1: spot machines
  POLL       seconds between two looks at the run (30)

Copies this checkout as it is, with what is not committed, installs the requirements of a worker (no
TensorFlow) with jax for TPU, and starts the run on every worker. Then its log is shown, a preempted
TPU made anew, and a run that was stopped started again; --detach leaves after the start. Ctrl-C
leaves the run alone. The same command again stops a run that is there at a checkpoint and resumes.
The store must be prepared and lie where every worker reads it.
"""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bertjax.errors import UserError
from bertjax.launch import arguments, tpu_worker
from bertjax.launch.processes import UNFINISHED

POLL_S = float(os.environ.get('POLL', '30'))
TRIES = 5  # to install and start
PATIENCE = 20  # looks in a row at a worker that cannot be reached
RUNTIMES = {  # cloud.google.com/tpu/docs/runtimes, by the start of the type
  'v5litepod': 'v2-alpha-tpuv5-lite',
  'v5p': 'v2-alpha-tpuv5',
  'v6e': 'v2-alpha-tpuv6e',
  'v': 'tpu-ubuntu2204-base',
}
WAITING = ('ACCEPTED', 'CREATING', 'PROVISIONING', 'WAITING_FOR_RESOURCES')


class Unreachable(RuntimeError):
  """A command on the workers failed."""


class Target(NamedTuple):
  """What the environment asks for.

  Attributes:
    name, zone, kind, runtime: of the TPU; kind and runtime '': nothing is made.
    slices: how many.
    spot: whether of spot machines.
  """

  name: str
  zone: str
  kind: str
  runtime: str
  slices: int
  spot: bool

  @property
  def nodes(self) -> list[str]:
    """The TPU VMs."""
    if self.slices == 1:
      return [self.name]
    return [f'{self.name}-{number}' for number in range(self.slices)]


def main(argv: list[str]) -> int:
  """Brings a run to its end on a TPU; returns its status."""
  if arguments.wants_help(argv, __doc__):
    return 0 if argv else 2
  dry_run, argv = arguments.own(argv, 'dry-run')
  detach, argv = arguments.own(argv, 'detach')
  target = target_of(os.environ)
  workdir = arguments.required(argv, 'workdir')
  flags = arguments.with_preset(argv, 'tpu')
  if '://' not in workdir:
    print(
      f'--workdir={workdir} is a directory of each worker: give one that all of them share',
      flush=True,
    )
  if dry_run:
    print_plan(target, flags)
    return 0
  tries = 0
  while True:
    try:
      provide(target)
      install(target, flags)
      start(target)
    except Unreachable as error:  # a machine is new, or was preempted meanwhile
      tries += 1
      if tries > TRIES:
        raise UserError(f'{error}; its message is above') from error
      print(f'{error}: trying again', flush=True)
      time.sleep(POLL_S)
      continue
    tries = 0
    if detach:
      log = shlex.join(_ssh(target.nodes[0], target, 'tail -f bertjax/run.log', '0'))
      print(f'Started. Its log: {log}')
      return 0
    status = follow(target)
    if status is not None:
      return status


def target_of(environ: Mapping[str, str]) -> Target:
  """Reads the environment.

  Raises:
    UserError: a value is missing or cannot be.
  """

  def given(key: str, pattern: str, default: str = '') -> str:
    value = environ.get(key) or default
    if not re.fullmatch(pattern, value):
      raise UserError(f'expected {key} in the environment, of the form {pattern}, got {value!r}')
    return value

  kind = given('TYPE', r'([a-z0-9]+-\d+)?')
  known = [runtime for start, runtime in RUNTIMES.items() if kind.startswith(start)]
  return Target(
    given('TPU', r'[a-z]([a-z0-9-]*[a-z0-9])?'),
    given('ZONE', r'[a-z0-9-]+'),
    kind,
    given('RUNTIME', r'[a-z0-9.-]*', known[0] if known else ''),
    int(given('SLICES', r'[1-9]\d*', '1')),
    given('SPOT', r'[01]', '0') == '1',
  )


def print_plan(target: Target, flags: Sequence[str]) -> None:
  """Prints the commands of a run that nothing disturbs."""
  for command in (_create(target), _copy(target.nodes[0], target, 'bertjax.tar.gz')):
    print(shlex.join(command))
  for script in (tpu_worker.SETUP, tpu_worker.START):
    print(shlex.join(_ssh(target.nodes[0], target, script)))
  print(f'# run.sh of every worker:\n{tpu_worker.run_script(flags)}')


def provide(target: Target) -> None:
  """Returns when the TPU is there; makes it, or makes it anew, if there is a TYPE.

  Raises:
    UserError: it is not there and cannot be made.
  """
  shown = ''
  while True:
    state = _state(target)
    if state != shown:
      print(f'{target.name} is {state or "not there"}', flush=True)
      shown = state
    if state in ('ACTIVE', 'READY'):
      return
    if state in WAITING or state.endswith('ING'):
      time.sleep(POLL_S)
      continue
    if not target.kind:
      raise UserError(
        f'the TPU {target.name} in {target.zone} is {state or "not there"}: expected one that is '
        'ACTIVE or READY, or TYPE=... to make it'
      )
    if state == 'PREEMPTED':  # without a queued resource
      _gcloud(['tpu-vm', 'delete', target.name, '--quiet'], target)
    elif state:
      _gcloud(['queued-resources', 'delete', target.name, '--force', '--quiet'], target)
    if subprocess.run(_create(target), check=False).returncode:
      raise UserError(f'the TPU {target.name} could not be made; the message of gcloud is above')


def install(target: Target, flags: Sequence[str]) -> None:
  """Copies the tree to every worker and installs what it needs there."""
  with tempfile.TemporaryDirectory() as folder:
    archive = pathlib.Path(folder, 'bertjax.tar.gz')
    tpu_worker.pack(archive, tpu_worker.run_script(flags))
    for node in target.nodes:
      _must(_copy(node, target, str(archive)))
      _must(_ssh(node, target, tpu_worker.SETUP))


def start(target: Target) -> None:
  """Starts the run on every worker, after the end of one that is there."""
  for node in target.nodes:
    _must(_ssh(node, target, tpu_worker.START))


def follow(target: Target) -> int | None:
  """Shows the log of the first worker until the run ends; its status, None if it must go on."""
  seen, missed = 0, 0
  while True:
    time.sleep(POLL_S)
    look = f'cd bertjax; cat run.status 2> /dev/null || echo; tail -c +{seen + 1} run.log'
    found = subprocess.run(
      _ssh(target.nodes[0], target, look, '0'), capture_output=True, check=False
    )
    if found.returncode:
      missed += 1
      if _state(target) not in ('ACTIVE', 'READY'):
        print(f'{target.name} was preempted', flush=True)
        return None
      if missed > PATIENCE:
        raise UserError(f'{target.name} cannot be reached: {found.stderr.decode().strip()}')
      continue
    missed = 0
    status, _, log = found.stdout.partition(b'\n')
    seen += len(log)
    print(log.decode(errors='replace'), end='', flush=True)
    if status == str(UNFINISHED).encode():
      print('The run was stopped before its end and starts again', flush=True)
      return None
    if status:
      return int(status)


def _state(target: Target) -> str:
  """Of the queued resource or the TPU VM of this name; '' if there is none."""
  for kind, field in (('queued-resources', 'state.state'), ('tpu-vm', 'state')):
    found = _gcloud(['describe', target.name, f'--format=value({field})'], target, kind)
    if found.returncode == 0:
      return found.stdout.strip()
    if 'NOT_FOUND' not in found.stderr and 'not found' not in found.stderr:
      raise UserError(f'gcloud: {found.stderr.strip()}')
  return ''


def _create(target: Target) -> list[str]:
  several = [f'--node-count={target.slices}', f'--node-prefix={target.name}']
  return [
    'gcloud', 'compute', 'tpus', 'queued-resources', 'create', target.name,
    f'--zone={target.zone}', f'--accelerator-type={target.kind}',
    f'--runtime-version={target.runtime}',
    *(several if target.slices > 1 else [f'--node-id={target.name}']),
    *(['--spot'] if target.spot else []),
  ]  # fmt: skip


def _copy(node: str, target: Target, archive: str) -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'tpu-vm', 'scp', archive, f'{node}:bertjax.tar.gz',
          f'--zone={target.zone}', '--worker=all']  # fmt: skip


def _ssh(node: str, target: Target, command: str, worker: str = 'all') -> list[str]:
  return ['gcloud', 'compute', 'tpus', 'tpu-vm', 'ssh', node, f'--zone={target.zone}',
          f'--worker={worker}', f'--command={command}']  # fmt: skip


def _gcloud(
  words: Sequence[str], target: Target, kind: str = ''
) -> subprocess.CompletedProcess[str]:
  command = ['gcloud', 'compute', 'tpus', *([kind] if kind else []), *words]
  return subprocess.run(
    [*command, f'--zone={target.zone}'], capture_output=True, text=True, check=False
  )


def _must(command: Sequence[str]) -> None:
  done = subprocess.run(command, check=False)
  if done.returncode:
    words = shlex.join(word.partition('\n')[0] for word in command)
    raise Unreachable(f'{words} failed with exit status {done.returncode}')
