"""The scripts of launch/, each run to its end with stand-ins for gcloud, srun and ssh."""

import importlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest
import yaml
from mutation import mutation
from processes import ROOT, wait_for

from bertjax.launch import local
from bertjax.launch.processes import UNFINISHED

SCRIPTS = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / 'launch' / 'slurm.sbatch']
# What a shell would take apart, expand or run.
NASTY = (
  """a b  c;touch pwned `touch pwned` $(touch pwned) "q" 'q' \\ * ~ & | > é a$$b $HOME !!\n\t-x"""
)
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
  for name in ('gcloud', 'srun', 'ssh', 'scontrol'):
    stand_in(name, 'open("started", "w")')
  first = ['2x4'] if path.name == 'local.sh' else []
  done = run(path.name, *first, '--dry-run', *FLAGS, folder=tmp_path, TPU='t', ZONE='z')
  assert done.returncode == 0, done.stderr
  assert 'configs/bert.py:test' in done.stdout
  assert [p.name for p in tmp_path.iterdir()] == ['bin']


def test_local_gives_each_process_its_place_and_every_argument_whole():
  commands = local.commands_of('3x2', FLAGS, 4321)
  assert [c.arguments[-1] for c in commands] == ['--process=0', '--process=1', '--process=2']
  for command in commands:
    assert list(command.arguments[3:6]) == FLAGS
    assert '--coordinator=127.0.0.1:4321' in command.arguments
    *patience, devices = command.environ['XLA_FLAGS'].split()[-3:]
    assert [word.partition('=')[2] for word in patience] == ['1800', '1800']
    assert devices.endswith('device_count=2')
  assert commands[0].log is None and commands[2].log.name.endswith('.process-2.log')


SRUN = """
import json, os, sys
with open('srun.jsonl', 'a') as file:
  file.write(json.dumps(sys.argv[1:]) + '\\n')
count = len(open('srun.jsonl').readlines())
sys.exit([75, 75, 0][count - 1] if 'fail' not in os.environ else 9)
"""
SCONTROL = "import sys; open('requeued', 'a').write(' '.join(sys.argv[1:]) + '\\n')"


@mutation('  scontrol requeue "$SLURM_JOB_ID"\n', '')
@mutation('"${run[@]}" "$@" || status=$?', '"${run[@]}" $* || status=$?')
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


@mutation('"${hosts[0]##*@}:$port"', '"${hosts[0]}:$port"')
@mutation("trap 'kill ", "trap ': ")
@mutation('do wait -n; done', 'do wait; done', file='launch/gpu.sh')
@mutation("""printf " '%s'\"""", """printf " %q\"""")
def test_gpu_hosts_get_every_argument_whole(tmp_path, stand_in, monkeypatch):
  stand_in('ssh', """
    import os, sys
    os.execvp('sh', ['sh', '-c', sys.argv[-1]])
  """)  # fmt: skip
  stand_in('recorder', """
    import json, sys, time
    number = sys.argv[-1].partition('=')[2]
    open(number + '.json', 'w').write(json.dumps(sys.argv[1:]))
    if '--config.name=fails' in sys.argv:
      sys.exit(7) if number == '1' else time.sleep(600)
  """)  # fmt: skip
  monkeypatch.setenv('PYTHON', str(tmp_path / 'bin' / 'recorder'))
  folder = tmp_path / "fol der's"
  folder.mkdir()
  done = run('gpu.sh', '--hosts=me@one,two', *FLAGS, folder=folder)
  assert done.returncode == 0, done.stderr
  for index in range(2):
    assert json.loads((folder / f'{index}.json').read_text()) == [
      '-m', 'bertjax.main', *FLAGS, '--config.preset=gpu', '--coordinator=one:8482',
      '--processes=2', f'--process={index}',
    ]  # fmt: skip
  assert not list(tmp_path.rglob('pwned'))
  done = run('gpu.sh', '--hosts=one,two', *FLAGS, '--config.name=fails', folder=folder)
  assert done.returncode == 7


@pytest.mark.parametrize(
  'word',
  ['--hosts=', '--hosts=-oX=y,b', '--hosts=a,me@-oX', '--hosts=a\nb', '--port=0', '--port=70000'],
)
@mutation(',-* | ', '', file='launch/gpu.sh', case='--hosts=-oX=y,b')
@mutation(' && $port -lt 65536', '', file='launch/gpu.sh', case='--port=70000')
def test_gpu_hosts_that_are_none_are_refused(word, tmp_path):
  done = run('gpu.sh', '--hosts=a', word, '--dry-run', '--workdir=w', folder=tmp_path)
  assert done.returncode == 1 and done.stdout == '' and f'got: {word}' in done.stderr


@pytest.mark.parametrize('tpu, zone', [('-x', 'z'), ('t', '-z'), ('t;x', 'z')])
@mutation('-* | *:-* | ', '', file='launch/tpu_vm.sh', case='-x-z')
def test_a_tpu_that_has_no_name_is_refused(tpu, zone, tmp_path):
  done = run('tpu_vm.sh', '--dry-run', '--workdir=w', folder=tmp_path, TPU=tpu, ZONE=zone)
  assert done.returncode == 1 and done.stdout == '' and 'expected names, got' in done.stderr


@mutation('|| command -v python3)', '|| echo python3)')
def test_gpu_hosts_get_the_interpreter_by_its_whole_path(tmp_path, monkeypatch):
  for name, program in dict(python3=sys.executable, bash='bash', dirname='dirname').items():
    (tmp_path / name).symlink_to(str(shutil.which(program)))
  monkeypatch.delenv('PYTHON', raising=False)
  words = ('--hosts=one', '--dry-run', '--workdir=w')
  done = run('gpu.sh', *words, folder=tmp_path, PATH=str(tmp_path))
  assert done.returncode == 0 and f'{tmp_path}/python3' in done.stdout, done.stderr


def manifest(*edit) -> dict:
  """launch/gke.yaml, edited as its first lines say."""
  path = ROOT / 'launch' / 'gke.yaml'
  if edit:
    command = next(line for line in path.read_text().splitlines() if line.startswith('#   sed '))
    words = shlex.split(command.lstrip('# ').partition(' | ')[0])
    return yaml.safe_load(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout)
  return yaml.safe_load(path.read_text())


@pytest.mark.parametrize('kind', ['tpu', 'gpu'])
@mutation('values: [75]', 'values: [1]', case='tpu')
def test_a_job_set_of_gke_begins_anew_what_was_stopped(kind):
  job_set = manifest(*['edited'] * (kind == 'gpu'))
  assert (job_set['apiVersion'], job_set['kind']) == ('jobset.x-k8s.io/v1alpha2', 'JobSet')
  assert job_set['spec']['failurePolicy'] == dict(maxRestarts=3, rules=[dict(
    action='RestartJobSetAndIgnoreMaxRestarts', onJobFailureReasons=['PodFailurePolicy'],
  )])  # fmt: skip
  (group,) = job_set['spec']['replicatedJobs']
  job = group['template']['spec']
  assert job['completions'] == job['parallelism'] and job['completionMode'] == 'Indexed'
  assert job['podFailurePolicy']['rules'][0]['onExitCodes']['values'] == [UNFINISHED]
  pod = job['template']['spec']
  assert pod['restartPolicy'] == 'Never' and job['backoffLimit'] == 0
  (container,) = pod['containers']
  assert container['command'] == ['python', '-m', 'bertjax.launch', 'resumable']
  (limit,) = container['resources']['limits']
  assert limit == {'tpu': 'google.com/tpu', 'gpu': 'nvidia.com/gpu'}[kind]
  place = [word for word in container['args'] if not word.startswith(('--config', '--workdir'))]
  name = f'{job_set["metadata"]["name"]}-{group["name"]}-0-0.{job_set["metadata"]["name"]}'
  assert place == [] if kind == 'tpu' else place == [
    f'--coordinator={name}:8482', f'--processes={job["completions"]}',
    '--process=$(JOB_COMPLETION_INDEX)',
  ]  # fmt: skip


SKY = {
  'tpu': ('', [], 1), 'one node': ('nvidia0', [], 1),
  'two nodes': ('nvidia0', ['--coordinator=10.0.0.1:8482', '--processes=2', '--process=1'], 2),
}  # fmt: skip


@pytest.mark.parametrize('kind', SKY)
@mutation('  set -ef', '  set -e', case='tpu')
@mutation('--process=$SKYPILOT_NODE_RANK', '--process=0', case='two nodes')
def test_a_job_of_skypilot_resumes_by_the_same_command(kind, tmp_path, stand_in):
  device, place, nodes = SKY[kind]
  path = ROOT / 'launch' / 'sky.yaml'
  task = yaml.safe_load(path.read_text())
  if importlib.util.find_spec('sky'):  # none of the requirements
    importlib.import_module('sky').Task.from_yaml(str(path))
  assert task.keys() <= {'name', 'workdir', 'envs', 'resources', 'setup', 'run'}
  resources = task['resources']
  assert resources.keys() == {'accelerators', 'use_spot', 'job_recovery'} and resources['use_spot']
  assert resources['job_recovery']['recover_on_exit_codes'] == [UNFINISHED]
  stand_in('ls', f"print('null {device}')")
  stand_in('recorder', 'import json, sys\nprint(json.dumps(sys.argv[1:]))')
  (tmp_path / '.venv' / 'bin').mkdir(parents=True)
  (tmp_path / '.venv' / 'bin' / 'python').symlink_to(tmp_path / 'bin' / 'recorder')
  environ = dict(
    os.environ, FLAGS='--config=a --workdir=gs://b b*', SKYPILOT_NUM_NODES=str(nodes),
    SKYPILOT_NODE_RANK='1', SKYPILOT_NODE_IPS='10.0.0.1\n10.0.0.2',
  )  # fmt: skip
  said = subprocess.check_output(['bash', '-c', task['run']], cwd=tmp_path, env=environ)
  preset = f'--config.preset={"gpu" if device else "tpu"}'
  started = ['-m', 'bertjax.launch', 'resumable', '--config=a', '--workdir=gs://b', 'b*', preset]
  assert json.loads(said) == started + place


# A pod of two workers, whose homes are folders.
GCLOUD = """
import os, pathlib, shutil, subprocess, sys
home, words = pathlib.Path(os.environ['CLOUD']), sys.argv[1:]
assert words[:3] == ['compute', 'tpus', 'tpu-vm'] and '--zone=z' in words, words
flags = dict(w[2:].split('=', 1) for w in words if '=' in w and w[:2] == '--')
workers = [home / f'worker-{i}' for i in range(2)]
chosen = workers if flags['worker'] == 'all' else [workers[int(flags['worker'])]]
for worker in chosen:
  worker.mkdir(exist_ok=True)
  if words[3] == 'scp':
    shutil.copy(words[4], worker / words[5].removeprefix('t:'))
  else:
    assert words[3:5] == ['ssh', 't']
    done = subprocess.run(['bash', '-c', flags['command']], cwd=worker,
                          env=dict(os.environ, HOME=str(worker)))
    if done.returncode:
      sys.exit(done.returncode)
"""
# Stands for the python of a worker, and of its environment. Its first run lasts until a signal.
PYTHON = """
import json, os, pathlib, shutil, signal, sys, time
home, words = pathlib.Path(os.environ['CLOUD']), sys.argv[1:]
if words[:3] == ['-m', 'uv', 'venv']:
  pathlib.Path(words[-1], 'bin').mkdir(parents=True)
  shutil.copy(sys.argv[0], pathlib.Path(words[-1], 'bin', 'python'))
elif words[:2] == ['-m', 'bertjax.main']:
  me = pathlib.Path(os.environ['HOME']).name
  stopped = []
  signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
  again = (home / f'{me}.jsonl').exists()
  with open(home / f'{me}.jsonl', 'a') as file:
    file.write(json.dumps([words, os.path.exists('not_committed.txt')]) + '\\n')
  print(f'run of {me}', flush=True)
  while not again and not stopped:
    time.sleep(0.05)
  (home / f'{me}.saved').touch()
  sys.exit(3 if again else 0)
"""


@mutation('--cached --others --exclude-standard', '--cached')
@mutation('kill -TERM -- "-$(cat run.pid)" 2> /dev/null', 'false')
@mutation('$(printf \'%q \' "$@")', '$*')
def test_the_same_command_on_a_tpu_stops_and_resumes(tmp_path, stand_in):
  cloud, tree = tmp_path / 'cloud', tmp_path / 'tree'
  for name in (cloud, tree / 'launch'):
    name.mkdir(parents=True)
  stand_in('gcloud', GCLOUD)
  stand_in('python3', PYTHON)
  shutil.copy(ROOT / 'launch' / 'tpu_vm.sh', tree / 'launch')
  (tree / 'deleted.txt').touch()
  subprocess.run(['git', 'init', '-q', tree], check=True)
  subprocess.run(['git', '-C', tree, 'add', 'launch', 'deleted.txt'], check=True)
  (tree / 'deleted.txt').unlink()
  (tree / 'not_committed.txt').write_text('mine')
  command = ['bash', tree / 'launch' / 'tpu_vm.sh', *FLAGS]
  environ = dict(os.environ, TPU='t', ZONE='z', CLOUD=str(cloud))
  first = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True)
  wait_for(lambda: len(list(cloud.glob('*.jsonl'))) == 2, first)
  second = subprocess.run(
    command, cwd=tmp_path, env=environ, text=True, capture_output=True, timeout=120, check=False
  )
  assert second.returncode == 3 and second.stdout.count('run of worker-0') == 1, second.stderr
  first.communicate(timeout=60)
  for worker in ('worker-0', 'worker-1'):
    log = cloud / f'{worker}.jsonl'
    wait_for(lambda log=log: log.read_bytes().count(b'\n') == 2)  # worker 0 alone is followed
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    assert runs == [[['-m', 'bertjax.main', *FLAGS, '--config.preset=tpu'], True]] * 2
    assert (cloud / f'{worker}.saved').exists()
  assert not list(tmp_path.rglob('pwned'))
