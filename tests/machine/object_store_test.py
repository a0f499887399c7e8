"""Runs whose workdir, store, vocabulary and text lie on an object store, on a real server."""

import json
import pathlib
import re
import subprocess
import sys

import finetune_runs
import fsspec
import jax
import kill_at
import numpy as np
import object_stores
import prepare_runs
import processes
import pytest
from mutation import mutation
from processes import ROOT, command, environment, exact, start, start_pair, wait_for

from bertjax.checkpoint import reading

FEWER = ('--config.total_steps=30',)


@pytest.fixture(scope='module', params=['gs', 's3'])
def bucket(request, tmp_path_factory):
  """The URL of a bucket that holds a text and a vocabulary."""
  folder = tmp_path_factory.mktemp(request.param)
  with object_stores.serving(request.param, folder) as url:
    vocab = prepare_runs.write_vocabulary(folder)
    object_stores.put(vocab, f'{url}/vocab/vocab.txt')
    for name, seed in (('a.txt', 1), ('b.txt', 2)):
      prepare_runs.write_text(folder / name, 300, seed)
      object_stores.put(folder / name, f'{url}/text/{name}')
    yield url


def prepare(source, vocab, output) -> None:
  given = dict(input=source, vocab=vocab, output=output, holdout=0.1)
  finetune_runs.run(prepare_runs.command(**given))


@pytest.fixture(scope='module')
def stores(bucket, tmp_path_factory):
  """The store on the server, and one of the same text on the disk."""
  folder = tmp_path_factory.mktemp('disk')
  for name in ('text', 'vocab'):
    object_stores.get(f'{bucket}/{name}', folder / name)
  prepare(f'{folder}/text/*.txt', folder / 'vocab/vocab.txt', folder / 'store')
  prepare(f'{bucket}/text/*.txt', f'{bucket}/vocab', f'{bucket}/store')
  return f'{bucket}/store', folder / 'store'


@pytest.fixture(scope='module')
def straight(stores, tmp_path_factory):
  """The uninterrupted run on the disk."""
  workdir = tmp_path_factory.mktemp('straight')
  processes.finish(stores[1], workdir, *FEWER)
  return workdir


def parameters(workdir):
  found = reading.read_variables(reading.newest(workdir))
  leaves = jax.tree_util.tree_leaves_with_path(found)
  return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def require_equal(workdir, expected) -> None:
  """Metrics but times, and parameters, bit for bit."""
  assert exact(workdir) == exact(expected)
  found, right = parameters(workdir), parameters(expected)
  assert found.keys() == right.keys()
  for name in right:
    np.testing.assert_array_equal(found[name], right[name], err_msg=name)


def has_checkpoint(workdir, step) -> bool:
  return f'checkpoints/{step}/manifest.json' in object_stores.names(workdir)


@pytest.mark.full
def test_a_store_on_the_server_is_the_one_on_the_disk(stores, tmp_path):
  there, disk = object_stores.get(stores[0], tmp_path / 'store'), stores[1]
  files = lambda folder: {
    p.relative_to(folder): p.read_bytes() for p in folder.rglob('*') if p.is_file()
  }
  found, expected = files(there), files(disk)
  assert found.keys() - {pathlib.Path('plans')} == expected.keys()
  told = [name for name in expected if found[name] != expected[name]]
  assert sorted(map(str, told)) == ['heldout/store.json', 'store.json']  # which name their source
  assert 'text/a.txt' in json.loads(found[pathlib.Path('store.json')])['source'][0]['path']


@pytest.mark.full
@mutation(
  'self._workdir.send_state(saving, step, {n for n in first if first[n] == hosts.index()})', 'pass'
)
def test_a_run_that_is_killed_goes_on_on_another_host(
  bucket, stores, straight, tmp_path, monkeypatch
):
  workdir, flags = f'{bucket}/run', (*FEWER, f'--config.data.vocab={bucket}/vocab')
  process = subprocess.Popen(
    command(stores[0], workdir, *flags), cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL
  )
  wait_for(lambda: has_checkpoint(workdir, 12), process)
  process.kill()
  process.wait()
  monkeypatch.setenv('BERTJAX_CACHE', str(tmp_path / 'other host'))
  said = processes.finish(stores[0], workdir, *flags)
  assert 'Resuming after step' in said and 'removed or changed' not in said
  there = object_stores.get(workdir, tmp_path / 'run')
  require_equal(there, straight)
  kept = lambda folder: sorted(p.name for p in (folder / 'checkpoints').iterdir())
  assert kept(there) == kept(straight)
  assert {'config.json', 'vocab', 'tensorboard'} <= {p.name for p in there.iterdir()}
  assert not (ROOT / f'{bucket.partition(":")[0]}:').exists()

  scores = []
  for place in (workdir, straight):
    evaluation = [sys.executable, '-m', 'bertjax.main', f'--workdir={place}', '--evaluate']
    said = finetune_runs.run(evaluation).splitlines()[-1]
    scores.append(json.loads(said) | dict(checkpoint=''))
  assert scores[0] == scores[1]

  files, name = fsspec.core.url_to_fs(f'{workdir}/metrics.jsonl')
  files.rm_file(name)
  said = processes.finish(stores[0], workdir, *flags)
  assert re.search(r'metrics.jsonl: expected the \d+ lines .* step 30, got 0: some', said)


@pytest.mark.full
def test_two_processes_write_parts_of_a_checkpoint(bucket, stores, tmp_path, monkeypatch):
  flags = ('--config.total_steps=12', '--config.mesh.fsdp=4', '--config.mesh.data=1')
  workdir, logs = f'{bucket}/pair', tmp_path / 'pair'
  pair = start_pair(stores[0], workdir, *flags, logs=logs)
  wait_for(lambda: has_checkpoint(workdir, 6), *pair)
  for process in pair:
    process.kill()
    process.wait()
  parts = [f'{logs}.{i}.log' for i in range(2)]
  monkeypatch.setenv('BERTJAX_CACHE', str(tmp_path / 'other hosts'))
  for process in start_pair(stores[0], workdir, *flags, logs=logs):
    assert process.wait(300) == 0, [pathlib.Path(part).read_text() for part in parts]
  assert 'Resuming after step 6' in pathlib.Path(parts[0]).read_text()
  for process in start_pair(stores[1], tmp_path / 'disk', *flags):
    assert process.wait(300) == 0
  require_equal(object_stores.get(workdir, tmp_path / 'run'), tmp_path / 'disk')


@pytest.mark.full
def test_a_run_that_was_started_later_takes_over(bucket, stores, tmp_path, monkeypatch):
  workdir, forever = f'{bucket}/shared', '--config.total_steps=100000'
  first = start(stores[0], workdir, forever, logs=tmp_path / 'first')
  wait_for(lambda: has_checkpoint(workdir, 6), first)
  monkeypatch.setenv('BERTJAX_CACHE', str(tmp_path / 'other host'))
  second = start(stores[0], workdir, forever, logs=tmp_path / 'second')
  try:
    wait_for(lambda: 'was taken over by process' in (tmp_path / 'first.log').read_text(), second)
    assert first.wait(60) != 0
  finally:
    for process in (first, second):
      process.kill()
      process.wait()


# In the order in which a run comes to them; each is of a start of its own.
MOMENTS = (
  'make made_of.json.tmp', 'rename /vocab.partial', 'folder /store.partial',
  'make store.partial/progress.json.tmp', 'rename /store.partial', 'send store/store.json',
  'make metrics.jsonl', 'rename config.json.tmp', 'send config.json', 'send manifest.json',
)  # fmt: skip


@pytest.mark.full
@mutation('          path.rmdir()', '          pass', case='gs')
def test_killed_at_each_moment_before_its_first_checkpoint_it_starts_again(
  bucket, tmp_path, monkeypatch
):
  """On the host that it was killed on, whose copies it finds, then on another one."""
  prepare_runs.write_text(tmp_path / 'text.txt', 300)
  given = ('--config.total_steps=8', '--config.checkpoint_steps=4', '--config.log_steps=1')
  given += ('--config.data.train_vocab.type=bpe', '--config.data.train_vocab.size=300')
  given += (f'--config.data.input={tmp_path}/text.txt', '--config.data.workers=1')
  made = lambda place: command('', place, *given)
  finetune_runs.run(made(tmp_path / 'straight'))
  workdir = f'{bucket}/killed'
  for number, moment in enumerate(MOMENTS):
    here = tmp_path / ('host' if number < 5 else 'other host')
    monkeypatch.setenv('BERTJAX_CACHE', str(here))
    kill_at.killed(made(workdir), moment, here / 'runs', environment())
    assert not any(name.endswith('manifest.json') for name in object_stores.names(workdir))
  said = finetune_runs.run(made(workdir))
  assert 'Resuming' not in said
  require_equal(object_stores.get(workdir, tmp_path / 'run'), tmp_path / 'straight')
