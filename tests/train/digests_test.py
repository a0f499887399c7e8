"""Processes that disagree are told so by name before anything is computed."""

import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import labelled_cases
import numpy as np
import pytest
from finetune_runs import SIZE, main
from mutation import mutation
from processes import ROOT, environment, finish, free_port

from bertjax.errors import UserError
from bertjax.train import first_state, setup
from bertjax.train.watch import digests


def root_of(path: pathlib.Path) -> pathlib.Path:
  """A directory of its own to run in, so that a relative path may name other files in each."""
  path.mkdir()
  for name in ('bertjax', 'configs'):
    (path / name).symlink_to(ROOT / name)
  return path


def start_together(command, flags, roots) -> list[subprocess.Popen]:
  """A process of two devices in each of two directories, as one run."""
  env = dict(environment(2), JAX_CPU_COLLECTIVES_IMPLEMENTATION='gloo')
  place = (f'--coordinator=127.0.0.1:{free_port()}', '--processes=2')
  return [
    subprocess.Popen(
      [*command, *flags, *place, f'--process={number}'], cwd=root, env=env, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    for number, root in enumerate(roots)
  ]  # fmt: skip


@pytest.mark.full
@mutation('  if readers.of(run.config.data).repeats:', '  if readers.of(run.config.data).text:')
def test_other_labels_on_one_host_are_refused(tmp_path):
  """Each host has a file of its own under the same name; one label differs."""
  roots = [root_of(tmp_path / name) for name in 'ab']
  for root in roots:
    labels = ['0', '1'] * 8
    if root.name == 'b':
      labels[3] = '0'
    rows = [f'a film {number}\t{label}' for number, label in enumerate(labels)]
    (root / 'train.tsv').write_text('\n'.join(['sentence\tlabel', *rows, '']))
    (root / 'vocab.txt').write_text(
      '\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'film'])
    )
  flags = [
    f'--workdir={tmp_path}/run', '--config.data.train=train.tsv', '--config.data.dev=train.tsv',
    '--config.data.vocab=vocab.txt', '--config.length=16', '--config.batch_size=16',
    *(f'--config.model.{key}={value}' for key, value in SIZE.items()),
  ]  # fmt: skip
  both = start_together(main('configs/finetune/glue.py:sst2', tmp_path / 'run'), flags, roots)
  said = [process.communicate(timeout=240)[0] for process in both]
  assert [process.returncode for process in both] == [1, 1]
  assert "its data: first batch of phase 'main'" in said[0], said[0]


@pytest.mark.full
@mutation("  hosts.require_same('the checkpoint', record, 'give all the same --workdir')\n", '')
def test_an_evaluation_of_two_checkpoints_is_refused(rich_store, tmp_path):
  """Each host has a run under the same relative name; one has a checkpoint more."""
  roots = [root_of(tmp_path / name) for name in 'ab']
  finish(rich_store, roots[0] / 'run', '--config.total_steps=12')
  shutil.copytree(roots[0] / 'run', roots[1] / 'run')
  shutil.rmtree(roots[1] / 'run/checkpoints/12')
  command = [sys.executable, '-m', 'bertjax.main', '--workdir=run', '--evaluate']
  both = start_together(command, (), roots)
  said = [process.communicate(timeout=240)[0] for process in both]
  assert [process.returncode for process in both] == [1, 1], said
  assert 'process 1 differs from process 0 in the checkpoint: manifest is' in said[0], said


@mutation('records.sha256(path) for path, key in files.items() if path', 'path for path, key in ()')
@mutation('files.setdefault(given.get(name),', 'files.setdefault((key, given.get(name)) and None,')
@mutation("key.removeprefix('config.') not in changed", 'True')
def test_labelled_files_are_bound_to_the_run_by_what_is_in_them(tmp_path):
  """Also what its last batch did not see."""
  config = labelled_cases.config('texts', labelled_cases.write(tmp_path))
  path = labelled_cases.ensured(config, tmp_path / 'run')
  run = setup.make_run(config, path, jax.devices()[:1])
  meta = dict(fed_sha256=run.phases[0].batch_sha256(0), judged=digests.texts_sha256(run))
  first_state.check_last_batch(run, meta, 1)
  for key in ('train', 'dev'):
    file = pathlib.Path(config.data[key])
    before = file.read_bytes()
    file.write_bytes(before + before.splitlines(True)[-1])
    with pytest.raises(UserError, match=f'the text of config.data.{key} is not .*--override=KEY'):
      first_state.check_last_batch(run, meta, 1)
    first_state.check_last_batch(run, meta, 1, {f'data.{key}'})
    first_state.check_last_batch(run, meta | dict(judged={}), 1)  # of an earlier version
    file.write_bytes(before)


def test_where_xla_dumps_to_may_differ():
  one, two = ({'XLA_FLAGS': f'--xla_a=1 --xla_dump_to=/tmp/{n}'} for n in 'ab')
  assert digests.settings(one) == digests.settings(two)
  assert digests.settings(one) != digests.settings({'XLA_FLAGS': '--xla_a=2'})


def test_replicas_that_differ_are_found():
  mesh = jax.make_mesh((2,), ('data',), devices=jax.devices()[:2])
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  parts = [jax.device_put(np.full(3, i, np.float32), d) for i, d in enumerate(jax.devices()[:2])]
  wrong = jax.make_array_from_single_device_arrays((3,), whole, parts)
  right = jax.device_put(jnp.arange(3.0), whole)
  assert digests.check_replicas(1, dict(w=right)) == digests.check_replicas(2, dict(w=right))
  with pytest.raises(UserError, match='devices of process 0 hold other values of a/w'):
    digests.check_replicas(3, dict(a=dict(w=wrong)))
