"""The scripts of launch/, each run to its end with stand-ins for gcloud, kubectl, srun and ssh."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import yaml
from mutation import mutation

from bertjax.launch import arguments, gke, gpu, local, tpu_vm

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / 'launch' / 'slurm.sbatch']
# What a shell would take apart, expand or run.
NASTY = """a b  c;touch pwned `touch pwned` $(touch pwned) "q" 'q' \\ * ~ & | > é"""
FLAGS = ['--config=configs/bert.py:test', f'--workdir=gs://b/{NASTY}', f'--config.name={NASTY}']


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
  """A function that puts a program of Python before all others on the PATH."""
  folder = tmp_path / 'bin'
  folder.mkdir()
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  monkeypatch.setenv('PYTHON', sys.executable)

  def put(name: str, code: str) -> None:
    path = folder / name
    path.write_text(f'#!{sys.executable}\n{textwrap.dedent(code)}')
    path.chmod(0o755)

  return put


def run(script: str, *words, folder, **environ) -> subprocess.CompletedProcess:
  shell = ['bash', str(ROOT / 'launch' / script)]
  return subprocess.run(
    [*shell, *words], cwd=folder, env={**os.environ, **environ}, text=True, capture_output=True,
    timeout=120, check=False,
  )  # fmt: skip


@pytest.mark.parametrize('path', SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path):
  program = pathlib.Path(sys.executable).with_name('shellcheck')
  done = subprocess.run([program, path], text=True, capture_output=True, check=False)
  assert done.returncode == 0, done.stdout


@pytest.mark.parametrize('path', SCRIPTS, ids=lambda path: path.name)
def test_without_arguments_or_with_dry_run_nothing_is_started(path, tmp_path, stand_in):
  for name in ('gcloud', 'kubectl', 'srun', 'ssh', 'scontrol'):
    stand_in(name, 'open("started", "w")')
  first = ['2x4'] if path.name == 'local.sh' else []
  environ = dict(TPU='t', ZONE='z', IMAGE='i', TYPE='v5litepod-16', TOPOLOGY='4x4')
  done = run(path.name, *first, '--dry-run', *FLAGS, folder=tmp_path, **environ)
  assert done.returncode == 0, done.stderr
  assert 'configs/bert.py:test' in done.stdout
  assert [p.name for p in tmp_path.iterdir()] == ['bin']


def test_local_gives_each_process_its_place_and_every_argument_whole():
  commands = local.commands_of('3x2', FLAGS, 4321)
  assert [c.arguments[-1] for c in commands] == ['--process=0', '--process=1', '--process=2']
  for command in commands:
    assert list(command.arguments[3:6]) == FLAGS
    assert '--coordinator=127.0.0.1:4321' in command.arguments
    assert command.environ['XLA_FLAGS'].endswith('device_count=2')
  assert commands[0].log is None and commands[2].log.name.endswith('.process-2.log')


@pytest.mark.parametrize('size', ['0', 'x4', '2x0', '2x', '-1', '2x4x1', 'two'])
def test_a_size_that_is_none_is_refused(size, tmp_path):
  done = run('local.sh', size, *FLAGS, folder=tmp_path)
  assert done.returncode == 1 and 'expected N or NxM first' in done.stderr
  assert 'Traceback' not in done.stderr


def test_a_run_in_the_working_directory_has_its_log_beside_it():
  (_, second) = local.commands_of('2', ['--workdir=.'], 4321)
  assert second.log == pathlib.Path.cwd().with_name(f'{pathlib.Path.cwd().name}.process-1.log')


def test_arguments_are_found_in_all_their_forms():
  assert arguments.value(['--workdir', 'a', '-workdir=b=c'], 'workdir') == 'b=c'
  assert arguments.value(['--workdirs=a'], 'workdir') is None
  assert arguments.with_preset(['--config.preset=cpu'], 'gpu') == ['--config.preset=cpu']


SRUN = """
import json, os, sys
with open('srun.jsonl', 'a') as file:
  file.write(json.dumps(sys.argv[1:]) + '\\n')
count = len(open('srun.jsonl').readlines())
sys.exit([75, 75, 0][count - 1] if 'fail' not in os.environ else 9)
"""
SCONTROL = "import sys; open('requeued', 'a').write(' '.join(sys.argv[1:]) + '\\n')"


@mutation(
  'launch: a job of SLURM does not go back into the queue',
  'launch/slurm.sbatch',
  '  scontrol requeue "$SLURM_JOB_ID"\n',
  '',
)
@mutation(
  'launch: a flag of a job is taken apart at its spaces',
  'launch/slurm.sbatch',
  '"${run[@]}" "$@" || status=$?',
  '"${run[@]}" $* || status=$?',
)
def test_slurm_requeues_what_was_stopped_and_nothing_else(tmp_path, stand_in):
  stand_in('srun', SRUN)
  stand_in('scontrol', SCONTROL)
  for _ in range(3):  # stopped twice, then finished
    done = run('slurm.sbatch', *FLAGS, folder=tmp_path, SLURM_JOB_ID='77')
    assert done.returncode == 0, done.stderr
  assert (tmp_path / 'requeued').read_text() == 'requeue 77\n' * 2
  for line in (tmp_path / 'srun.jsonl').read_text().splitlines():
    words = json.loads(line)
    assert words[-4:] == ['--config.preset=gpu', *FLAGS]
    # The first of several that stops must not have the others killed, whose status would hide 75.
    assert words[:3] == ['--kill-on-bad-exit=0', '--wait=60', '--cpus-per-task=32']
  assert run('slurm.sbatch', *FLAGS, folder=tmp_path, SLURM_JOB_ID='7', fail='').returncode == 9
  assert (tmp_path / 'requeued').read_text() == 'requeue 77\n' * 2


@mutation(
  'launch: a host of --hosts takes flags apart',
  'bertjax/launch/gpu.py',
  'remote += shlex.join([*run, *place])',
  "remote += ' '.join([*run, *place])",
)
@mutation(
  'launch: hosts in a word of their own go on to the run',
  'bertjax/launch/gpu.py',
  "arguments.without_flags(argv, ('hosts', 'port'), ())",
  "[x for x in argv if not x.startswith('--hosts=')]",
  case='two words',
)
@pytest.mark.parametrize(
  'hosts', [['--hosts=me@one,two'], ['--hosts', 'me@one,two']], ids=['one word', 'two words']
)
def test_gpu_hosts_get_every_argument_whole(tmp_path, stand_in, monkeypatch, hosts):
  stand_in('ssh', """
    import subprocess, sys
    subprocess.run(['sh', '-c', sys.argv[-1]], check=True)
  """)  # fmt: skip
  recorder = tmp_path / 'recorder.py'
  recorder.write_text(
    f'#!{sys.executable}\nimport json, sys\n'
    "open(sys.argv[-1].partition('=')[2] + '.json', 'w').write(json.dumps(sys.argv[1:]))\n"
  )
  recorder.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(recorder))
  (tmp_path / "fol der's").mkdir()
  commands = gpu.commands_of([*hosts, *FLAGS], str(tmp_path / "fol der's"))
  for index, command in enumerate(commands):
    subprocess.run(command.arguments, check=True)
    given = json.loads((tmp_path / "fol der's" / f'{index}.json').read_text())
    assert given == [
      '-m', 'bertjax.main', *FLAGS, '--config.preset=gpu', '--coordinator=one:8482',
      '--processes=2', f'--process={index}',
    ]  # fmt: skip
  assert not list(tmp_path.rglob('pwned'))


GKE = {
  'tpu': dict(IMAGE='gcr.io/p/bertjax:1', TYPE='tpu-v5-lite-podslice', TOPOLOGY='4x4', SLICES='2'),
  'gpu': dict(IMAGE='i@sha256:00', TYPE='nvidia-h100-80gb', TOPOLOGY='3', NAME='mine'),
}


@mutation(
  'launch: Kubernetes puts its variables into flags',
  'bertjax/launch/gke.py',
  "flag.replace('$(', '$$(')",
  'flag',
  case='tpu',
)
@pytest.mark.parametrize('kind', GKE)
def test_gke_applies_a_job_set(kind, tmp_path, stand_in):
  stand_in('kubectl', """
    import sys
    open('applied.yaml', 'w').write(sys.stdin.read())
    sys.exit(sys.argv[1:] != ['apply', '-f', '-'])
  """)  # fmt: skip
  done = run('gke.sh', *FLAGS, folder=tmp_path, **GKE[kind])
  assert done.returncode == 0 and 'kubectl logs' in done.stdout, done.stderr
  job_set = yaml.safe_load((tmp_path / 'applied.yaml').read_text())
  assert job_set['kind'] == 'JobSet' and job_set['apiVersion'] == 'jobset.x-k8s.io/v1alpha2'
  (group,) = job_set['spec']['replicatedJobs']
  job = group['template']['spec']
  pod = job['template']['spec']
  (container,) = pod['containers']
  # Kubernetes makes $$ a $ and leaves the rest.
  assert [a.replace('$$(', '$(') for a in container['args']] == [*FLAGS, f'--config.preset={kind}']
  assert not any('$(' in a.replace('$$(', '') for a in container['args'])
  assert job['completions'] == job['parallelism'] == {'tpu': 4, 'gpu': 3}[kind]
  assert group['replicas'] == {'tpu': 2, 'gpu': 1}[kind]
  codes = [rule['onExitCodes']['values'] for rule in job['podFailurePolicy']['rules']
           if 'onExitCodes' in rule]  # fmt: skip
  assert codes == [[75]] and pod['restartPolicy'] == 'Never' and job['backoffLimit'] == 0
  limits = container['resources']['limits']
  assert limits == {'google.com/tpu': 4} if kind == 'tpu' else {'nvidia.com/gpu': 8}
  if kind == 'gpu':
    environ = {entry['name']: entry['value'] for entry in container['env']}
    assert environ == {'JAX_COORDINATOR_ADDRESS': 'mine-node-0-0.mine:8482',
                       'JAX_NUM_PROCESSES': '3'}  # fmt: skip


@pytest.mark.parametrize(
  'change',
  [dict(IMAGE=''), dict(TOPOLOGY='4'), dict(TOPOLOGY='3x3'), dict(NAME='A b'), dict(TYPE='a: b')],
)
def test_a_manifest_takes_no_nonsense(change):
  with pytest.raises(ValueError):
    gke.manifest_of(FLAGS, GKE['tpu'] | change)


# Two workers whose homes are folders; a TPU that is made, preempted, made again.
GCLOUD = """
import json, os, pathlib, shutil, subprocess, sys
home, words = pathlib.Path(os.environ['CLOUD']), sys.argv[1:]
with open(home / 'gcloud.jsonl', 'a') as file:
  file.write(json.dumps(words) + '\\n')
assert words[:2] == ['compute', 'tpus'] and '--zone=z' in words, words
kind, verb = words[2:4]
state = home / 'state'
flags = dict(w[2:].split('=', 1) for w in words if '=' in w and w[:2] == '--')
workers = [home / f'worker-{i}' for i in range(2)]
if verb == 'describe':
  found = state.read_text() if state.exists() and kind == 'queued-resources' else ''
  if not found:
    sys.exit('ERROR: NOT_FOUND: no such resource')
  print(found)
  if found == 'WAITING_FOR_RESOURCES':
    state.write_text('ACTIVE')
elif verb == 'create':
  state.write_text('WAITING_FOR_RESOURCES')
  for worker in workers:
    if worker.exists():  # what still runs there goes on elsewhere, as on a machine that is gone
      worker.rename(home / f'gone-{worker.name}')
    worker.mkdir()
elif verb == 'delete':
  assert '--force' in words and '--quiet' in words
  state.unlink()
elif state.read_text() != 'ACTIVE':
  sys.exit('ERROR: the machine does not answer')
elif verb == 'scp':
  for worker in workers:
    shutil.copy(words[4], worker / words[5].partition(':')[2])
elif verb == 'ssh':
  chosen = workers if flags['worker'] == 'all' else [workers[int(flags['worker'])]]
  for worker in chosen:
    done = subprocess.run(['bash', '-c', flags['command']], cwd=worker,
                          env=dict(os.environ, HOME=str(worker)))
    if done.returncode:
      sys.exit(done.returncode)
"""
# Stands for the python of a worker, and of its environment. Its first run ends with a preemption,
# its second one with status 75, its third one well.
PYTHON = """
import json, os, pathlib, shutil, sys, time
home, words = pathlib.Path(os.environ['CLOUD']), sys.argv[1:]
if words[:2] == ['-m', 'venv']:
  pathlib.Path(words[2], 'bin').mkdir(parents=True)
  shutil.copy(sys.argv[0], pathlib.Path(words[2], 'bin', 'python'))
elif words[:2] == ['-m', 'bertjax.launch']:
  me = pathlib.Path(os.environ['HOME']).name
  with open(home / f'{me}.jsonl', 'a') as file:
    file.write(json.dumps([words, os.path.exists('not_committed.txt')]) + '\\n')
  run = len((home / f'{me}.jsonl').read_text().splitlines())
  print(f'run {run} of {me}', flush=True)
  if run == 1:
    time.sleep(0.5)
    (home / 'state').write_text('SUSPENDED')
    time.sleep(1)
  sys.exit({1: 1, 2: 75, 3: 0}[run])
"""


@mutation(
  'launch: what is not committed is not copied',
  'bertjax/launch/tpu_worker.py',
  "'--cached', '--others', '--exclude-standard'",
  "'--cached'",
)
@mutation(
  'launch: a preempted TPU ends the launcher',
  'bertjax/launch/tpu_vm.py',
  "        print(f'{target.name} was preempted', flush=True)\n        return None\n",
  '        return 1\n',
)
@mutation(
  'launch: a run on a TPU that was stopped does not start again',
  'bertjax/launch/tpu_vm.py',
  "      print('The run was stopped before its end and starts again', flush=True)\n"
  '      return None\n',
  '      return 75\n',
)
@mutation(
  'launch: flags on a TPU are taken apart',
  'bertjax/launch/tpu_worker.py',
  'RUN.format(flags=shlex.join(flags))',
  "RUN.format(flags=' '.join(flags))",
)
def test_a_run_on_a_tpu_is_brought_to_its_end(tmp_path, stand_in, monkeypatch):
  cloud = tmp_path / 'cloud'
  cloud.mkdir()
  stand_in('gcloud', GCLOUD)
  for name in ('python3.12', 'python3.11', 'python3'):
    stand_in(name, PYTHON)
  tree = tmp_path / 'tree'
  for name in ('bertjax', 'launch'):
    (tree / name).parent.mkdir(exist_ok=True)
    subprocess.run(['cp', '-r', ROOT / name, tree / name], check=True)
  subprocess.run(['git', 'init', '-q', tree], check=True)
  subprocess.run(['git', '-C', tree, 'add', 'launch'], check=True)
  (tree / 'not_committed.txt').write_text('mine')
  environ = dict(os.environ, TPU='t', ZONE='z', TYPE='v5litepod-8', SPOT='1', POLL='0.1',
                 CLOUD=str(cloud))  # fmt: skip
  done = subprocess.run(
    ['bash', tree / 'launch' / 'tpu_vm.sh', *FLAGS], cwd=tmp_path, env=environ, text=True,
    capture_output=True, timeout=120, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout + done.stderr
  for worker in ('worker-0', 'worker-1'):
    runs = [json.loads(line) for line in (cloud / f'{worker}.jsonl').read_text().splitlines()]
    expected = ['-m', 'bertjax.launch', 'resumable', *FLAGS, '--config.preset=tpu']
    assert runs == [[expected, True]] * 3
  called = [json.loads(line) for line in (cloud / 'gcloud.jsonl').read_text().splitlines()]
  made = [words for words in called if words[3] == 'create']
  assert len(made) == 2 and sum(words[3] == 'delete' for words in called) == 1
  assert made[0][4:] == [
    't', '--zone=z', '--accelerator-type=v5litepod-8', '--runtime-version=v2-alpha-tpuv5-lite',
    '--node-id=t', '--spot',
  ]  # fmt: skip
  assert 't was preempted' in done.stdout and done.stdout.count('run 3 of worker-0') == 1
  assert not list(tmp_path.rglob('pwned'))


def test_a_tpu_that_is_not_there_is_not_made_without_a_type(tmp_path, stand_in):
  (tmp_path / 'cloud').mkdir()
  stand_in('gcloud', GCLOUD)
  done = run('tpu_vm.sh', *FLAGS, folder=tmp_path, TPU='t', ZONE='z', CLOUD=str(tmp_path / 'cloud'))
  assert done.returncode == 1 and 'TYPE=' in done.stderr and 'Traceback' not in done.stderr


def test_slices_are_nodes_of_one_queued_resource():
  target = tpu_vm.target_of(dict(TPU='t', ZONE='z', TYPE='v6e-16', SLICES='3'))
  assert target.nodes == ['t-0', 't-1', 't-2'] and target.runtime == 'v2-alpha-tpuv6e'
  assert '--node-count=3' in tpu_vm._create(target)
  with pytest.raises(ValueError, match='TPU'):
    tpu_vm.target_of(dict(TPU='t;rm', ZONE='z'))
