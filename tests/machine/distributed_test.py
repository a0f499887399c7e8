"""How processes find each other: what jax is told, in the environments of each system."""

import os
import subprocess
import sys
import time

import jax
import pytest
from jax._src.clusters import cloud_tpu_cluster
from mutation import mutation
from processes import ROOT, environment, free_port

from bertjax.errors import UserError
from bertjax.machine import distributed


@pytest.fixture
def joined(monkeypatch):
  """(environment, flags) -> what jax is told, {} of a run of one process."""
  names = ('SLURM_', 'JAX_', 'TPU_', 'OMPI_', 'CUDA_', 'MEGASCALE_', 'JOB_', 'KUBERNETES_')
  for name in filter(lambda name: name.startswith(names), os.environ):
    monkeypatch.delenv(name)

  def join(environ, *flags):
    said = {}
    monkeypatch.setattr(
      jax.distributed, 'initialize',
      lambda *places, **more: said.update(more, places=places, called=True),
    )  # fmt: skip
    with monkeypatch.context() as patch:
      for key, value in environ.items():
        patch.setenv(key, value)
      distributed.join(*(flags or (None, None, None)))
    return said

  return join


POD = {'TPU_WORKER_HOSTNAMES': 'a,b', 'TPU_WORKER_ID': '1', 'TPU_SKIP_MDS_QUERY': 'true'}
# Task 13 of 16, 8 on each of 2 nodes with 8 GPUs.
SLURM = {
  'SLURM_JOB_ID': '12345', 'SLURM_STEP_NODELIST': 'gpu[007-008]', 'SLURM_NTASKS': '16',
  'SLURM_PROCID': '13', 'SLURM_LOCALID': '5', 'SLURM_NODEID': '1', 'SLURM_GPUS_ON_NODE': '8',
  'SLURM_STEP_TASKS_PER_NODE': '8(x2)', 'CUDA_VISIBLE_DEVICES': '0,1,2,3,4,5,6,7',
}  # fmt: skip
LONE = {'SLURM_NTASKS': '1', 'SLURM_PROCID': '0', 'SLURM_STEP_TASKS_PER_NODE': '1'}


@mutation('if cluster.get_process_count() > 1 else', 'if cluster.get_process_count() > 0 else')
@mutation("environ.get('SLURM_STEP_NUM_TASKS') == '1'", "environ.get('SLURM_STEP_NUM_TASKS') == ''")
def test_a_process_alone_waits_for_nobody(joined, monkeypatch):
  monkeypatch.setattr(cloud_tpu_cluster, 'running_in_cloud_tpu_vm', True)
  monkeypatch.setattr(cloud_tpu_cluster, 'get_tpu_env_value_from_metadata', lambda key: None)
  nothing = {'TPU_SKIP_MDS_QUERY': '1'}
  lone_tpu = POD | {'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_WORKER_ID': '0'}
  assert joined(nothing) == joined(lone_tpu) == joined(nothing | SLURM | LONE) == {}
  shell = {'SLURM_STEP_NUM_TASKS': '1', 'SLURM_STEP_TASKS_PER_NODE': '1', 'SLURM_PROCID': '0'}
  assert joined(nothing | SLURM | shell) == {}  # of salloc -n 16
  assert joined(nothing | {'KUBERNETES_SERVICE_HOST': 'a'}) == {}  # and no warning
  assert joined(POD, None, 1, None) == joined(POD | {'JAX_PLATFORMS': 'cpu'}) == {}
  said = dict(local_device_ids=None, heartbeat_timeout_seconds=distributed.SILENT_S)
  assert joined(POD) == dict(said, places=(), called=True)


@pytest.mark.parametrize(
  'flags',
  [(None, 2, 1), (None, None, 0), ('a:1', None, 0), ('a:1', 2, None), ('a:1', 2, 2), ('a:1', 2, -1),
   ('a', 2, 0), ('a:b', 2, 0), ('a:0', 2, 0), ('a:70000', 2, 0)],
)  # fmt: skip
def test_flags_that_do_not_fit_together_are_refused(joined, flags):
  with pytest.raises(UserError, match='--coordinator=HOST:PORT of process 0, --processes'):
    joined({}, *flags)


@mutation('coordinator if host.startswith(_LOOPBACK) else None', 'None')
def test_flags_win_over_what_stands_around(joined):
  told = joined(POD | SLURM, '127.0.0.1:1234', 2, 0)
  assert told['places'] == ('127.0.0.1:1234', 2, 0)
  assert told['cluster_detection_method'] == 'deactivate'
  assert told['coordinator_bind_address'] == '127.0.0.1:1234'
  assert joined({}, '10.0.0.1:1234', 2, 1)['coordinator_bind_address'] is None
  job = {'JAX_COORDINATOR_ADDRESS': 'mine-0-0.mine:8482', 'JAX_NUM_PROCESSES': '4'}
  assert joined(job | {'JOB_COMPLETION_INDEX': '3'})['places'] == ('mine-0-0.mine:8482', 4, 3)
  with pytest.raises(UserError, match='mine:8482, 4 and None'):
    joined(job)


@mutation('if here == 1 or given_out', 'if given_out')
@mutation("_gpus(environ) if name == 'slurm' else None", 'None')
def test_tasks_of_slurm_share_the_gpus_of_their_node(joined):
  gpus = lambda **changes: joined(SLURM | changes)['local_device_ids']
  assert gpus() == [5]
  one = dict(SLURM_STEP_TASKS_PER_NODE='1(x16)', SLURM_LOCALID='0')
  assert gpus(**one) == []  # all eight
  two = dict(SLURM_STEP_TASKS_PER_NODE='3,2', SLURM_LOCALID='1')
  assert gpus(**two) == [4, 5, 6, 7]
  assert gpus(**two, SLURM_GPUS_PER_TASK='4') == gpus(**two, CUDA_VISIBLE_DEVICES='4,5') == []
  assert gpus(CUDA_VISIBLE_DEVICES='', SLURM_GPUS_ON_NODE='0') == []
  with pytest.raises(UserError, match='3 tasks on a node with 8 GPUs'):
    gpus(SLURM_STEP_TASKS_PER_NODE='3', SLURM_NODEID='0')


def test_two_tasks_of_slurm_become_one_run():
  code = (
    'from bertjax.machine import distributed; distributed.join(None, None, None)\n'
    'import jax; print(jax.process_index(), jax.process_count(), jax.device_count())'
  )
  task = environment() | SLURM | {
    'SLURM_STEP_NODELIST': 'localhost', 'SLURM_NTASKS': '2', 'SLURM_STEP_TASKS_PER_NODE': '2',
    'SLURM_NODEID': '0', 'SLURM_GPUS_ON_NODE': '0', 'CUDA_VISIBLE_DEVICES': '',
    'JAX_COORDINATOR_PORT': str(free_port()), 'JAX_PLATFORMS': 'cpu',
  }  # fmt: skip
  tasks = [
    subprocess.Popen(
      [sys.executable, '-c', code],
      cwd=ROOT,
      text=True,
      stdout=subprocess.PIPE,
      env=task | {'SLURM_PROCID': index, 'SLURM_LOCALID': index},
    )  # fmt: skip
    for index in ('0', '1')
  ]
  first, second = (task.communicate(timeout=120)[0].split('\n') for task in tasks)
  assert first[0].startswith('Process 0 of 2, coordinator localhost:')
  assert (first[1], second[0]) == ('0 2 2', '1 2 2')


@mutation('    waits.start()\n', '')
def test_a_process_that_waits_for_the_others_says_how_many(monkeypatch, capsys):
  monkeypatch.setattr(distributed, 'WAIT_S', 0.01)
  monkeypatch.setattr(jax.distributed, 'initialize', lambda *places, **more: time.sleep(0.3))
  distributed.join('a:1', 3, 1)
  assert capsys.readouterr().out == (
    'Process 1 still waits for a:1: expected 3 processes, each with --processes=3 and a --process '
    'of its own\n'
  )
