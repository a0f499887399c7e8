"""How processes find each other, in the environments of each system; jax's own reading of them is
the judge where it has one."""

import http.server
import os
import threading

import pytest
from jax._src.clusters import cloud_tpu_cluster, slurm_cluster
from mutation import mutation

from bertjax.errors import UserError
from bertjax.machine import cluster, google_metadata

NO_METADATA = lambda key: None


def find(environ, *flags):
  return cluster.find(*flags, environ=environ, metadata=NO_METADATA)


@pytest.fixture
def metadata_server(monkeypatch):
  """A function that puts attributes on a metadata server of our own, on a real port."""
  attributes = {}

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      value = attributes.get(self.path.removeprefix('/computeMetadata/v1/instance/attributes/'))
      known = value is not None and self.headers['Metadata-Flavor'] == 'Google'
      self.send_response(200 if known else 404)
      self.end_headers()
      self.wfile.write((value or 'not found').encode())

    def log_message(self, *unused):
      pass

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  monkeypatch.setenv('GCE_METADATA_IP', f'127.0.0.1:{server.server_port}')
  monkeypatch.delenv('TPU_SKIP_MDS_QUERY', raising=False)  # jax sets it where there is no TPU
  monkeypatch.delenv('JAX_PLATFORMS', raising=False)
  yield attributes.update
  server.shutdown()
  server.server_close()


def test_one_process_is_alone():
  assert find({}) is None
  assert find({}, None, 1) is None
  assert find({'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_WORKER_ID': '0'}) is None
  lone = {'SLURM_JOB_ID': '7', 'SLURM_STEP_NODELIST': 'a1', 'SLURM_STEP_NUM_TASKS': '1'}
  assert find(lone) is None
  assert find({'JAX_COORDINATOR_ADDRESS': 'a:1', 'JAX_NUM_PROCESSES': '1', 'JAX_PROCESS_ID': '0'})\
    is None  # fmt: skip


@mutation(
  'cluster: --processes=1 asks the environment all the same',
  'bertjax/machine/cluster.py',
  'if (coordinator, processes, process) != (None, None, None):',
  'if coordinator:',
)
def test_flags_win():
  pod = {'TPU_WORKER_HOSTNAMES': 'a,b', 'TPU_WORKER_ID': '1'}
  place = find(pod, '10.0.0.1:1234', 2, 0)
  assert place == ('10.0.0.1:1234', 2, 0, None, 'flags')
  assert find(pod, None, 1) is None


@pytest.mark.parametrize(
  'flags, message',
  [
    ((None, 2, 1), '--coordinator'),
    ((None, None, 0), '--coordinator'),
    (('a:1', None, 0), '--processes'),
    (('a:1', 2, None), '--process'),
    (('a:1', 2, 2), 'from 0 to 1'),
    (('a:1', 2, -1), 'from 0 to 1'),
    (('a', 2, 0), 'HOST:PORT'),
    (('a:b', 2, 0), 'HOST:PORT'),
  ],
)
def test_flags_that_do_not_fit_together_are_refused(flags, message):
  with pytest.raises(UserError, match=message):
    find({}, *flags)


def judged_tpu(judge, environ, monkeypatch):
  """(host of the coordinator, processes, process) by jax."""
  for key, value in environ.items():
    monkeypatch.setenv(key, value)
  monkeypatch.setattr(judge, 'wait_for_coordinator', lambda *unused: None)
  address = judge.get_coordinator_address(1, None)
  return address, judge.get_process_count(), judge.get_process_id()


GKE_PODS = {
  'one slice': {'TPU_WORKER_HOSTNAMES': 'w-0.bertjax,w-1.bertjax', 'TPU_WORKER_ID': '1'},
  'second of two slices': {
    'TPU_WORKER_HOSTNAMES': 'w-1-0.s,w-1-1.s,w-1-2.s', 'TPU_WORKER_ID': '2',
    'MEGASCALE_COORDINATOR_ADDRESS': 'w-0-0.s:8080', 'MEGASCALE_NUM_SLICES': '2',
    'MEGASCALE_SLICE_ID': '1',
  },
  'slices of one host': {
    'TPU_WORKER_HOSTNAMES': 'w-3-0.s', 'TPU_WORKER_ID': '0',
    'MEGASCALE_COORDINATOR_ADDRESS': 'w-0-0.s', 'MEGASCALE_NUM_SLICES': '4',
    'MEGASCALE_SLICE_ID': '3',
  },
}  # fmt: skip


@mutation(
  'cluster: a worker of the second slice takes the place of one of the first',
  'bertjax/machine/cluster.py',
  "process = int(told.get('MEGASCALE_SLICE_ID') or 0) * len(hosts) + worker",
  'process = worker',
  case='second of two slices',
)
@pytest.mark.parametrize('name', GKE_PODS)
def test_a_gke_pod_is_where_jax_sees_it(name, monkeypatch, metadata_server):
  metadata_server({})
  place = cluster.find(environ=GKE_PODS[name])
  judged = judged_tpu(cloud_tpu_cluster.GkeTpuCluster, GKE_PODS[name], monkeypatch)
  assert (place.coordinator, place.processes, place.process) == judged
  assert place.devices is None and place.told_by == 'GKE'


TPU_VMS = {
  'names': {'worker-network-endpoints': 't1v-w-0,t1v-w-1', 'agent-worker-number': '1'},
  'triples': {
    'worker-network-endpoints': 'unknown:unknown:10.0.0.4,unknown:unknown:10.0.0.5',
    'agent-worker-number': '0',
  },
  'slices': {
    'worker-network-endpoints': '10.1.0.4,10.1.0.5', 'agent-worker-number': '1',
    'tpu-env': "ZONE: 'us-central2-b'\nMEGASCALE_NUM_SLICES: '3'\nMEGASCALE_SLICE_ID: '2'\n"
    "MEGASCALE_COORDINATOR_ADDRESS: '10.0.0.4:8080'\n",
  },
}  # fmt: skip


@mutation(
  'cluster: the metadata of a TPU VM are not asked',
  'bertjax/machine/cluster.py',
  "endpoints = metadata('worker-network-endpoints') if metadata else None",
  'endpoints = None',
  case='names',
)
@pytest.mark.parametrize('name', TPU_VMS)
def test_a_gcloud_pod_is_found_through_its_metadata(name, monkeypatch, metadata_server):
  metadata_server({'tpu-env': "ZONE: 'us-central2-b'\n", **TPU_VMS[name]})
  place = cluster.find(environ=os.environ)
  judged = judged_tpu(cloud_tpu_cluster.GceTpuCluster, {}, monkeypatch)
  assert (place.coordinator, place.processes, place.process) == judged
  assert place.told_by == 'GCE TPU metadata'


def test_a_single_tpu_vm_and_a_plain_google_machine_are_alone(metadata_server):
  assert cluster.find(environ=os.environ) is None  # no TPU: 404
  metadata_server({'worker-network-endpoints': '10.0.0.4', 'agent-worker-number': '0'})
  assert cluster.find(environ=os.environ) is None


def test_a_cpu_run_on_a_worker_of_a_pod_waits_for_nobody(metadata_server):
  metadata_server(TPU_VMS['names'])
  assert cluster.find(environ=dict(os.environ, JAX_PLATFORMS='cpu')) is None


def test_a_machine_without_google_has_no_metadata():
  board = google_metadata.BOARD
  if not (board.exists() and 'Google' in board.read_text()):
    assert google_metadata.asker({}) is None


def test_a_metadata_server_that_does_not_answer_is_said(monkeypatch):
  monkeypatch.setattr(google_metadata.time, 'sleep', lambda seconds: None)
  with pytest.raises(UserError, match='--processes=1'):
    cluster.find(environ={'GCE_METADATA_IP': '127.0.0.1:1'})


def slurm(**changes) -> dict[str, str]:
  """Task 5 of 16, 8 on each of 2 nodes with 8 GPUs."""
  return {
    'SLURM_JOB_ID': '12345', 'SLURM_STEP_NODELIST': 'gpu[007-008]', 'SLURM_STEP_NUM_TASKS': '16',
    'SLURM_NTASKS': '16', 'SLURM_PROCID': '13', 'SLURM_LOCALID': '5', 'SLURM_NODEID': '1',
    'SLURM_STEP_TASKS_PER_NODE': '8(x2)', 'SLURM_GPUS_ON_NODE': '8',
    'CUDA_VISIBLE_DEVICES': '0,1,2,3,4,5,6,7', **changes,
  }  # fmt: skip


@mutation(
  'cluster: the first node of a list keeps its brackets',
  'bertjax/machine/cluster.py',
  r"""re.sub(r'\[([^],-]+)[^]]*\]', r'\1', first[0] if first else nodes)""",
  'first[0]',
  case='gpu[007-008]',
)
@pytest.mark.parametrize('nodes', ['gpu[007-008]', 'gpu007', 'a1,b2', 'a[3,7-9],b', 'a-b[10-11]'])
def test_slurm_is_read_as_jax_reads_it(nodes, monkeypatch):
  environ = slurm(SLURM_STEP_NODELIST=nodes)
  for key, value in environ.items():
    monkeypatch.setenv(key, value)
  judge = slurm_cluster.SlurmCluster
  place = find(environ)
  judged = judge.get_coordinator_address(1, None), judge.get_process_count()
  assert (place.coordinator, place.processes, place.process) == (*judged, judge.get_process_id())


def test_a_node_list_of_racks():
  nodes = 'rack[1-2]node[03-04],login'
  assert find(slurm(SLURM_STEP_NODELIST=nodes)).coordinator.startswith('rack1node03:')


@mutation(
  'cluster: a task of SLURM takes all GPUs of its node',
  'bertjax/machine/cluster.py',
  'if here == 1 or not seen or bound:',
  'if True:',
)
@mutation(
  'cluster: a lone task of a node takes one GPU',
  'bertjax/machine/cluster.py',
  'if here == 1 or not seen or bound:',
  'if not seen or bound:',
)
def test_tasks_of_slurm_share_the_gpus_of_their_node():
  lone = slurm(SLURM_STEP_TASKS_PER_NODE='1(x2)', SLURM_STEP_NUM_TASKS='2', SLURM_PROCID='1',
               SLURM_LOCALID='0')  # fmt: skip
  assert find(lone).devices is None  # all eight
  assert find(slurm()).devices == (5,)
  two = slurm(SLURM_STEP_TASKS_PER_NODE='2(x2)', SLURM_STEP_NUM_TASKS='4', SLURM_PROCID='3',
              SLURM_LOCALID='1')  # fmt: skip
  assert find(two).devices == (4, 5, 6, 7)
  assert find({**two, 'SLURM_GPUS_PER_TASK': '4'}).devices is None  # SLURM has shared them out
  assert find({**two, 'CUDA_VISIBLE_DEVICES': '4,5,6,7'}).devices is None
  cpus = {k: v for k, v in slurm().items() if 'GPU' not in k and 'CUDA' not in k}
  assert find(cpus).devices is None
  uneven = slurm(SLURM_STEP_TASKS_PER_NODE='3', SLURM_NODEID='0', SLURM_STEP_NUM_TASKS='3',
                 SLURM_PROCID='2', SLURM_LOCALID='2')  # fmt: skip
  with pytest.raises(UserError, match='3 tasks on a node with 8 GPUs'):
    find(uneven)


def test_a_process_beside_its_slurm_step_is_warned():
  batch = {'SLURM_JOB_ID': '1', 'SLURM_NTASKS': '4', 'SLURM_PROCID': '0'}
  assert find(batch) is None
  assert 'srun' in (cluster.unused(batch) or '')
  assert cluster.unused(slurm()) is None and cluster.unused({}) is None


def test_kubernetes_gives_the_index_of_the_pod():
  job = {'JAX_COORDINATOR_ADDRESS': 'bertjax-gpu-0-0.bertjax:8482', 'JAX_NUM_PROCESSES': '4',
         'JOB_COMPLETION_INDEX': '3'}  # fmt: skip
  place = find(job)
  assert place[:4] == ('bertjax-gpu-0-0.bertjax:8482', 4, 3, None)
  assert find({**job, 'JAX_PROCESS_ID': '1'}).process == 1
  with pytest.raises(UserError, match='JOB_COMPLETION_INDEX'):
    find({k: v for k, v in job.items() if k != 'JOB_COMPLETION_INDEX'})


@mutation(
  'cluster: the coordinator listens at every address',
  'bertjax/machine/cluster.py',
  '    coordinator_bind_address=f\'{_own_address(host.strip("[]"))}:{port}\',\n',
  '',
)
@mutation(
  'cluster: jax may give a task of SLURM one GPU',
  'bertjax/machine/cluster.py',
  "    cluster_detection_method='deactivate',  # it would give a SLURM task one GPU\n",
  '',
)
def test_joining_says_all_of_it_to_jax(monkeypatch):
  import jax

  said = {}
  monkeypatch.setattr(jax.distributed, 'initialize', lambda **given: said.update(given))
  cluster.join(cluster.Place('127.0.0.1:4321', 2, 1, (1, 2), ''))
  assert said == dict(
    coordinator_address='127.0.0.1:4321', num_processes=2, process_id=1, local_device_ids=(1, 2),
    cluster_detection_method='deactivate', coordinator_bind_address='127.0.0.1:4321',
  )  # fmt: skip


def test_where_the_coordinator_listens(monkeypatch):
  assert cluster._own_address('127.0.0.1') == '127.0.0.1'
  assert cluster._own_address('192.0.2.1') == '[::]'  # none of ours: behind a router
  answer = [(2, 1, 6, '', ('127.0.1.1', 0))]
  monkeypatch.setattr(cluster.socket, 'getaddrinfo', lambda *unused, **also: answer)
  assert cluster._own_address('node7') == '[::]'  # Debian's name for itself, which others reach


def test_a_name_that_nobody_knows_ends_in_a_sentence(monkeypatch):
  monkeypatch.setattr(cluster, 'NAME_SECONDS', 0.0)
  with pytest.raises(UserError, match='no address'):
    cluster.join(cluster.Place('nowhere.invalid:1', 2, 1, None, ''))
