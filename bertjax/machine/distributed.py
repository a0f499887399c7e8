"""Connects the processes of a run: by flags, or as jax finds them."""

import os
import re
import threading
from collections.abc import Mapping

import jax
from jax._src import clusters, distributed  # what jax has found, and would find

from bertjax.errors import UserError, warn
from bertjax.machine import last_words

_NAMED = {'JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES'}
SILENT_S = 200  # jax gives up who was not heard for so long; all are heard twice in that time
WAIT_S = 20.0  # for the others, before it is said; jax gives up after 300
_LOOPBACK = ('127.', 'localhost', '[::1]')


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
  """Connects this process with the others, before jax looks for devices, by the flags of
  `bertjax.main`; without them by JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID (or
  Kubernetes' JOB_COMPLETION_INDEX), and then by whatever jax knows of. `processes` 1 alone is a run
  of this process, whatever stands around it. Raises UserError if flags, or the GPUs of a node and
  its tasks, do not fit together."""
  environ = os.environ
  if (coordinator, processes, process) == (None, None, None) and _NAMED <= environ.keys():
    index = environ.get('JAX_PROCESS_ID', environ.get('JOB_COMPLETION_INDEX', ''))
    coordinator, count = environ['JAX_COORDINATOR_ADDRESS'], environ['JAX_NUM_PROCESSES']
    processes, process = (int(text) if text.isdecimal() else None for text in (count, index))
  if (coordinator, processes, process) == (None, None, None):
    name = _others(environ)
    if name:
      gpus = _gpus(environ) if name == 'slurm' else None
      jax.distributed.initialize(local_device_ids=gpus, heartbeat_timeout_seconds=SILENT_S)
    elif int(environ.get('SLURM_NTASKS', '1')) > 1 and 'SLURM_STEP_NODELIST' not in environ:
      tasks = environ['SLURM_NTASKS']
      warn('This process is none of the %s tasks of SLURM: start it with srun', tasks)
  elif coordinator or processes != 1 or process:
    host, _, port = (coordinator or '').rpartition(':')
    known = (
      host
      and port.isdecimal()
      and 0 < int(port) < 1 << 16
      and processes is not None
      and process is not None
    )
    if not known or not 0 <= process < processes:  # pyright: ignore
      raise UserError(
        'expected --coordinator=HOST:PORT of process 0, --processes, how many there are, and '
        f'--process, which of them this is, from 0; got {coordinator}, {processes} and {process}. '
        '--processes=1 alone is a run of one process'
      )
    said = (
      f'Process {process} still waits for {coordinator}: expected {processes} processes, each with '
      f'--processes={processes} and a --process of its own'
    )
    waits = threading.Timer(WAIT_S, print, [said], dict(flush=True))
    waits.daemon = True
    waits.start()
    jax.distributed.initialize(
      coordinator, processes, process, cluster_detection_method='deactivate',
      heartbeat_timeout_seconds=SILENT_S,
      coordinator_bind_address=coordinator if host.startswith(_LOOPBACK) else None,
    )  # fmt: skip
    waits.cancel()
  found = distributed.global_state
  if found.client:
    last_words.of_processes(
      f'process {found.process_id} of {found.num_processes} ends here. Where the lines above speak '
      'of the distributed service, a process has ended or stood still for a minute or more. The '
      'same command goes on from the last checkpoint'
    )
  if found.client and found.process_id == 0:
    print(
      f'Process 0 of {found.num_processes}, coordinator {found.coordinator_address}', flush=True
    )


def _others(environ: Mapping[str, str]) -> str:
  """Names the system by which jax knows of other processes; '' where this one is alone."""
  for cluster in clusters.ClusterEnv._cluster_types:
    on_tpus, on_pods = cluster.name.endswith('tpu'), cluster is clusters.K8sCluster
    if cluster.opt_in_only_method or (on_tpus and environ.get('JAX_PLATFORMS') == 'cpu'):
      continue
    if on_pods and 'JOB_COMPLETION_INDEX' not in environ:  # of no Job: jax would not find its own
      continue
    if cluster.name == 'slurm' and environ.get('SLURM_STEP_NUM_TASKS') == '1':
      return ''  # as the shell of salloc, in which jax reads the number of tasks of the job
    if cluster.is_env_present():
      return (cluster.name or 'jax') if cluster.get_process_count() > 1 else ''
  return ''


def _gpus(environ: Mapping[str, str]) -> list[int]:
  """Lists the GPUs of a task of SLURM among those it sees; [] is all. UserError: unequal shares."""
  parts = re.findall(r'(\d+)(?:\(x(\d+)\))?', environ.get('SLURM_STEP_TASKS_PER_NODE', '1'))
  counts = [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]  # '8(x2),4'
  here = counts[int(environ.get('SLURM_NODEID', '0'))]
  seen = [gpu for gpu in environ.get('CUDA_VISIBLE_DEVICES', '').split(',') if gpu]
  given_out = len(seen) < int(environ.get('SLURM_GPUS_ON_NODE', '0'))
  if here == 1 or given_out or 'SLURM_GPUS_PER_TASK' in environ:
    return []
  own, left = divmod(len(seen), here)
  if left:
    raise UserError(
      f'SLURM has put {here} tasks on a node with {len(seen)} GPUs: give it a number of tasks that '
      'divides them, or --ntasks-per-node=1, which takes them all'
    )
  local = int(environ['SLURM_LOCALID'])
  return list(range(local * own, (local + 1) * own))
