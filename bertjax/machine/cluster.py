"""How the processes of a run find each other: flags, a TPU pod, Kubernetes or SLURM.

`find` asks these in turn, the first that knows answers:

  flags        --coordinator, --processes, --process; --processes=1 alone: this process, whatever
               stands around it
  environment  JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, or in their place an
               Indexed Job's JOB_COMPLETION_INDEX: Kubernetes, as launch/gke.yaml sets them for GPUs
  GKE TPU      TPU_WORKER_HOSTNAMES, TPU_WORKER_ID, which GKE puts into every pod that asks for TPUs
  GCE TPU      the metadata server of a TPU VM made with gcloud, which has no such variables
  SLURM        the variables of a step of srun; the GPUs of a node are shared out among its tasks

Several TPU slices are one run, in the order of MEGASCALE_SLICE_ID.
"""

import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bertjax.errors import UserError
from bertjax.machine import google_metadata

TPU_PORT = 8482
SLURM_PORTS = range(61440, 65536)  # above those that Linux gives to connections
NAME_SECONDS = 300.0  # that a coordinator's name may take to be known: pods start in any order


class Place(NamedTuple):
  """Where this process stands among those of the run.

  Attributes:
    coordinator: host:port of process 0.
    processes: how many there are.
    process: the index of this one.
    devices: the GPUs of this host that are its own, as indices of those it sees; None: all.
    told_by: what said so, for people.
  """

  coordinator: str
  processes: int
  process: int
  devices: tuple[int, ...] | None
  told_by: str


def find(
  coordinator: str | None = None,
  processes: int | None = None,
  process: int | None = None,
  environ: Mapping[str, str] = os.environ,
  metadata: Callable[[str], str | None] | None = None,
) -> Place | None:
  """The place of this process; None if it is alone.

  Args:
    coordinator, processes, process: the flags; None: not given.
    environ: of this process.
    metadata: key -> value of an attribute of this machine, None where there is none; None asks the
      metadata server of a Google machine.

  Raises:
    UserError: what was found does not make sense together.
  """
  if (coordinator, processes, process) != (None, None, None):
    return _by_flags(coordinator, processes, process)
  if 'JAX_COORDINATOR_ADDRESS' in environ and 'JAX_NUM_PROCESSES' in environ:
    return _in_environment(environ)
  if 'tpu' in (environ.get('JAX_PLATFORMS') or 'tpu').split(','):
    if 'TPU_WORKER_HOSTNAMES' in environ:
      return _of_slices(environ['TPU_WORKER_HOSTNAMES'], environ, 'TPU_WORKER_ID', 'GKE')
    if metadata is None and 'TPU_SKIP_MDS_QUERY' not in environ:
      metadata = google_metadata.asker(environ)
    endpoints = metadata('worker-network-endpoints') if metadata else None
    if metadata and endpoints:
      return _in_tpu_vm(endpoints, metadata)
  if 'SLURM_JOB_ID' in environ and 'SLURM_STEP_NODELIST' in environ:
    return _in_slurm(environ)
  return None


def unused(environ: Mapping[str, str] = os.environ) -> str | None:
  """What the environment says of other processes, where `find` found none; for a warning."""
  if int(environ.get('SLURM_NTASKS', '1')) > 1 and 'SLURM_STEP_NODELIST' not in environ:
    return (
      f'SLURM has {environ["SLURM_NTASKS"]} tasks for this job, but this process is none of them '
      'and runs alone: start it with srun'
    )
  if 'JAX_COORDINATOR_ADDRESS' in environ and 'JAX_NUM_PROCESSES' not in environ:
    return (
      'JAX_COORDINATOR_ADDRESS is set and JAX_NUM_PROCESSES is not: this process runs alone; set '
      'it, and JAX_PROCESS_ID'
    )
  return None


def join(place: Place) -> None:
  """Connects this process with the others; to be called before jax looks for devices.

  The coordinator listens at the address that it was given, and at all of this host's only where
  that is not one of them (a name that means the loopback here, an address behind a router).

  Raises:
    UserError: the coordinator's name is not known after `NAME_SECONDS`.
  """
  import jax

  host, _, port = place.coordinator.rpartition(':')
  _await_name(host.strip('[]'))
  jax.distributed.initialize(
    coordinator_address=place.coordinator,
    num_processes=place.processes,
    process_id=place.process,
    local_device_ids=place.devices,
    cluster_detection_method='deactivate',  # it would give a SLURM task one GPU
    coordinator_bind_address=f'{_own_address(host.strip("[]"))}:{port}',
  )


def _by_flags(coordinator: str | None, processes: int | None, process: int | None) -> Place | None:
  if not coordinator:
    if processes == 1 and not process:
      return None
    raise UserError(
      f'--processes={processes} and --process={process} need --coordinator=HOST:PORT of process 0; '
      '--processes=1 alone is a run of one process'
    )
  if processes is None or process is None:
    raise UserError(
      f'--coordinator={coordinator} needs --processes, how many there are, and --process, which of '
      'them this is'
    )
  return _checked(Place(coordinator, processes, process, None, 'flags'))


def _in_environment(environ: Mapping[str, str]) -> Place | None:
  index = 'JAX_PROCESS_ID' if 'JAX_PROCESS_ID' in environ else 'JOB_COMPLETION_INDEX'
  what = 'the environment'
  place = Place(
    environ['JAX_COORDINATOR_ADDRESS'],
    _number(environ, 'JAX_NUM_PROCESSES', what),
    _number(environ, index, what),
    None,
    f'{what} (JAX_COORDINATOR_ADDRESS)',
  )
  return None if place.processes == 1 else _checked(place)


def _in_tpu_vm(endpoints: str, metadata: Callable[[str], str | None]) -> Place | None:
  lines = (metadata('tpu-env') or '').splitlines()  # MEGASCALE_NUM_SLICES: '2'
  pairs = [line.partition(':') for line in lines if ':' in line]
  told = {key.strip(): value.strip().strip('\'"') for key, _, value in pairs}
  worker = metadata('agent-worker-number')
  told |= {'agent-worker-number': worker} if worker is not None else {}
  return _of_slices(endpoints, told, 'agent-worker-number', 'GCE TPU metadata')


def _of_slices(
  workers: str, told: Mapping[str, str], worker_key: str, told_by: str
) -> Place | None:
  """The place of a worker of a TPU slice.

  Args:
    workers: of this slice: HOST,HOST,.. or, from older metadata servers, NAME:ID:HOST,..
    told: MEGASCALE_* are there where there are several slices.
    worker_key: of `told`; which of the workers this is.
    told_by: as in `Place`.
  """
  hosts = [worker.split(':')[-1] for worker in workers.split(',')]
  slices = int(told.get('MEGASCALE_NUM_SLICES') or 1)
  if slices * len(hosts) == 1:
    return None
  worker = _number(told, worker_key, told_by)
  process = int(told.get('MEGASCALE_SLICE_ID') or 0) * len(hosts) + worker
  first = (told.get('MEGASCALE_COORDINATOR_ADDRESS') or hosts[0]).split(':')[0]
  return _checked(Place(f'{first}:{TPU_PORT}', slices * len(hosts), process, None, told_by))


def _in_slurm(environ: Mapping[str, str]) -> Place | None:
  tasks = _number(environ, 'SLURM_STEP_NUM_TASKS', 'SLURM')
  if tasks == 1:
    return None
  # 'a[01-04,7],b' is a01: commas inside brackets belong to the host before them.
  nodes = environ['SLURM_STEP_NODELIST']
  first = re.match(r'(?:[^,[]|\[[^]]*\])*', nodes)
  host = re.sub(r'\[([^],-]+)[^]]*\]', r'\1', first[0] if first else nodes)
  port = SLURM_PORTS[_number(environ, 'SLURM_JOB_ID', 'SLURM') % len(SLURM_PORTS)]
  process = _number(environ, 'SLURM_PROCID', 'SLURM')
  return _checked(Place(f'{host}:{port}', tasks, process, _slurm_gpus(environ), 'SLURM'))


def _slurm_gpus(environ: Mapping[str, str]) -> tuple[int, ...] | None:
  """The GPUs of a task among those it sees; None: all of them.

  Raises:
    UserError: the tasks of the node cannot have equally many.
  """
  here = _tasks_on_this_node(environ)
  seen = [gpu for gpu in environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if gpu]
  bound = 'SLURM_GPUS_PER_TASK' in environ or len(seen) < int(
    environ.get('SLURM_GPUS_ON_NODE', '0')
  )
  if here == 1 or not seen or bound:
    return None
  if len(seen) % here:
    raise UserError(
      f'SLURM has put {here} tasks on a node with {len(seen)} GPUs: give it a number of tasks that '
      'divides them, or --ntasks-per-node=1, which takes them all'
    )
  own = len(seen) // here
  local = _number(environ, 'SLURM_LOCALID', 'SLURM')
  return tuple(range(local * own, (local + 1) * own))


def _tasks_on_this_node(environ: Mapping[str, str]) -> int:
  """From SLURM_STEP_TASKS_PER_NODE: '8(x2),4' is 8 on two nodes and 4 on the third."""
  counts: list[int] = []
  for part in environ.get('SLURM_STEP_TASKS_PER_NODE', '1').split(','):
    tasks, _, times = part.partition('(x')
    counts += [int(tasks)] * int(times.rstrip(')') or 1)
  return counts[int(environ.get('SLURM_NODEID', '0'))]


def _number(environ: Mapping[str, str], key: str, what: str) -> int:
  value = environ.get(key)
  if value is None or not value.isdecimal():
    raise UserError(
      f'{what} speaks of several processes, but {key} is {value!r} instead of a number: mend it, '
      'or set --coordinator, --processes and --process'
    )
  return int(value)


def _checked(place: Place) -> Place:
  host, _, port = place.coordinator.rpartition(':')
  if not host or not port.isdecimal() or not 0 < int(port) < 65536:
    raise UserError(
      f'the coordinator, told by {place.told_by}: expected HOST:PORT, got {place.coordinator!r}'
    )
  if not 0 <= place.process < place.processes:
    raise UserError(
      f'told by {place.told_by}: expected the index of this process to be from 0 to '
      f'{place.processes - 1}, one less than the number of processes, got {place.process}'
    )
  return place


def _await_name(host: str) -> None:
  end = time.monotonic() + NAME_SECONDS
  while True:
    try:
      socket.getaddrinfo(host, None)
      return
    except socket.gaierror as error:
      if time.monotonic() > end:
        raise UserError(
          f'the coordinator {host} has no address after {NAME_SECONDS:.0f} s ({error}): is process '
          '0 running, and is the name right?'
        ) from error
      time.sleep(1)


def _own_address(host: str) -> str:
  """Where process 0 listens: the address of `host` if that is one of this machine's that others
  reach, else all; what other processes make of it is not used."""
  address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
  family = socket.AF_INET6 if ':' in address else socket.AF_INET
  named = host not in (address, 'localhost')
  if named and ipaddress.ip_address(address).is_loopback:  # Debian's 127.0.1.1 for its own name
    return '[::]'
  try:
    with socket.socket(family, socket.SOCK_STREAM) as tried:
      tried.bind((address, 0))
  except OSError:
    return '[::]'
  return f'[{address}]' if family == socket.AF_INET6 else address
