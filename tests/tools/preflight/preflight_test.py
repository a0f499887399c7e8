"""The command: a config's step for TPUs that are not there."""

import json
import os
import subprocess
import sys
import tempfile

import forks
import pytest
from jax.experimental import topologies
from mutation import mutation
from processes import ROOT, environment

from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.tools.preflight import checking, topology
from configs import bert


@pytest.mark.parametrize('name', ['v99:2x2', 'v5e', 'v5e:4x4x4x4', 'h100:0', 'h100:2x2'])
def test_an_unknown_slice_is_refused(name):
  with pytest.raises(ValueError, match='v5e, v5p, v6e, v4, or GPUs as h100:8, of a100, h100, h200'):
    topology.devices(name)


@mutation('RuntimeError as error', 'Exception as error', file='bertjax/tools/preflight/topology.py')
def test_what_libtpu_refuses_is_said_and_an_error_of_ours_keeps_its_type(monkeypatch):
  pytest.importorskip('libtpu')
  with pytest.raises(UserError, match='no compiler for v5e:3x7: .*give a slice that exists'):
    topology.devices('v5e:3x7')
  monkeypatch.setattr(topologies, 'get_topology_desc', lambda platform: None)
  with pytest.raises(TypeError, match='unexpected keyword'):
    topology.devices('v5e:2x2')


@mutation('RuntimeError as', 'NotImplementedError as', file='bertjax/tools/preflight/topology.py')
def test_without_libtpu_it_is_asked_for(monkeypatch):
  def absent(**names):
    raise RuntimeError('JAX TPU support not installed')  # in jax's words

  monkeypatch.setattr(topologies, 'get_topology_desc', absent)
  with pytest.raises(UserError, match='no compiler for v5e:2x2: .*pip install libtpu'):
    topology.devices('v5e:2x2')


def test_what_a_program_would_need_is_read_from_the_compiler():
  said = 'Ran out of memory in memory space hbm. Used 22.40G of 15.75G hbm. Exceeded hbm capacity'
  assert topology.needed_bytes(RuntimeError(said)) == int(22.4 * 2**30)
  said = 'the total memory required for HLO temporaries (53.08G) exceeds available HBM (15.75G)'
  assert topology.needed_bytes(RuntimeError(said)) == int(53.08 * 2**30)
  assert topology.needed_bytes(RuntimeError('INTERNAL: something else')) is None


def preflight(*flags: str) -> subprocess.CompletedProcess:
  return forks.run('bertjax.preflight', '--json', *flags, cwd=ROOT, env=environment())


@pytest.mark.full
@mutation('config.mesh.update(sharding.typed_mesh(_MESH.value)', 'sharding.typed_mesh(_MESH.value')
def test_a_mesh_is_typed():
  size = ('--topology=v5e:4x4', '--estimate', '--batch_size=64', '--length=64')
  done = preflight('--config=configs/bert.py:test', *size, '--mesh=4,2,2')
  assert done.returncode == 0, done.stderr
  said = json.loads(done.stdout)
  assert said['mesh'] == dict(data=4, fsdp=2, tensor=2, sequence=1)
  # The keys of a line are the same whether the compiler was asked or not.
  assert said['flops_per_step'] > 0 and {'bytes_per_token', 'mfu_bound'} < said.keys()
  done = preflight('--config=configs/bert.py:test', *size, '--mesh=fsdp=2')
  assert done.returncode == 1 and 'expected data,fsdp,tensor as in 1,4,2' in done.stderr
  done = preflight('--config=configs/bert.py:test', *size, '--mesh=4,2,2', '--config.mesh.fsdp=4')
  assert done.returncode == 1 and '--mesh and --config.mesh.fsdp' in done.stderr


@mutation("platform, remedy = 'cuda', f", "platform, remedy = 'tpu', f")
def test_gpus_are_estimated_and_their_compiler_is_asked_for(monkeypatch):
  size = ('--batch_size=64', '--length=64')
  done = preflight('--config=configs/bert.py:test', '--topology=h100:8', '--estimate', *size)
  said = json.loads(done.stdout)
  assert said['chips'] == 8 and said['impl'] == 'gpu' and said['remat'] == 'none', done.stderr
  assert said['hbm_limit_bytes'] == 81559 * 2**20 * 3 // 4

  def absent(platform, **_):
    raise NotImplementedError(f'topology not implemented for {platform}')  # in jax's words

  monkeypatch.setattr(topologies, 'get_topology_desc', absent)
  with pytest.raises(UserError, match='no compiler for h200:1: .*cuda; .*-r requirements-gpu-comp'):
    topology.devices('h200:1')


def test_cards_of_several_hosts_are_refused():
  with pytest.raises(UserError, match='h100:16: expected the cards of one host, 8 at most, got 16'):
    topology.select('h100:16')


@pytest.mark.full
def test_a_step_on_a_card():
  pytest.importorskip('jax_plugins.xla_cuda13')
  done = preflight(
    '--config=configs/bert.py:test', '--topology=h200:1', '--batch_size=4', '--length=64'
  )
  (said,) = map(json.loads, done.stdout.splitlines())
  assert said['fits'] and said['parts']['pallas'] > 0 and 0 < said['mfu_bound'] <= 1, done.stderr
  assert said['hbm_bytes'] < said['hbm_limit_bytes'] == 143771 * 2**20 * 3 // 4


@mutation('2**30:.2f} GiB', '1e9:.2f} GiB')
def test_memory_is_said_in_gib():
  """As libtpu and the makers of cards count it: a v5e has 16 GiB, less what libtpu keeps."""
  size = ('--estimate', '--batch_size=65536', '--length=512', '--config.model.positions=512')
  done = preflight('--config=configs/bert.py:test', '--nojson', *size)
  assert done.returncode == 1 and ' of 15.75 GiB a chip. By shapes alone it fits' in done.stdout


def test_one_size_without_the_other_is_refused():
  with pytest.raises(UserError, match='--batch_size and --length'):
    checking.phases(bert.get_config('test'), 8, None)


@pytest.mark.full
@mutation('target.compiled_for(kind):', 'contextlib.nullcontext():')
def test_a_step_on_four_chips_of_v4():
  """v4 has no strided rotation; the kind assumed where no TPU is there has one."""
  pytest.importorskip('libtpu')
  done = preflight(
    '--config=configs/xlnet.py:test', '--topology=v4:2x2x1', '--batch_size=16', '--length=64',
    '--config.mesh.fsdp=2',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  (said,) = map(json.loads, done.stdout.splitlines())
  assert said['fits'] and said['parts']['pallas'] > 0 and said['dtype'] == 'bfloat16'
  assert said['bytes_per_token'] <= said['bytes_per_token_padded']
  assert {kind['kind'] for kind in said['collectives']} & {'all-reduce', 'reduce-scatter'}
  assert 0 < said['mfu_bound'] <= 1 and said['chips'] == said['mesh']['data'] * 2


@pytest.mark.full
@mutation("round(limit * needed / said['hbm_bytes'])", 'limit')
def test_phases_are_one_line_each_and_what_does_not_fit_is_said():
  pytest.importorskip('libtpu')
  done = preflight('--config=configs/bert.py:test')
  phases = [json.loads(line) for line in done.stdout.splitlines()]
  assert [p['phase'] for p in phases] == ['phase1', 'phase2'], done.stderr
  assert phases[0]['length'] < phases[1]['length']
  flags = ('--batch_size=4096', '--length=512', '--config.model.positions=512')
  done = preflight('--config=configs/bert.py:test', *flags, '--config.model.remat=none')
  (said,) = map(json.loads, done.stdout.splitlines())
  assert done.returncode == 1 and not said['fits'] and said['hbm_bytes'] > said['hbm_limit_bytes']
  assert not said['compiled']
  # Arrays of 64 columns, which the estimate takes as they are, fill half a tile of the chip: at
  # most twice as much. What is proposed where the compiler has said so compiles and fits.
  for fits in (False, True):
    done = preflight('--config=configs/bert.py:test', *flags, *said['proposal'].split())
    (said,) = map(json.loads, done.stdout.splitlines())
    assert said['compiled'] and said['fits'] == fits == (done.returncode == 0), done.stderr
    assert 0.8 < said['hbm_bytes'] / said['estimate_bytes'] < 2


@pytest.mark.full
def test_the_estimate_is_within_a_tenth_of_the_compiler():
  """Of a paper's model; of smaller ones shapes say more (BERT small, 64 x 512: 1.13 times it)."""
  pytest.importorskip('libtpu')
  done = preflight('--config=configs/bert.py:base', '--batch_size=32', '--length=512')
  (said,) = map(json.loads, done.stdout.splitlines())
  assert 0.9 < said['estimate_bytes'] / said['hbm_bytes'] < 1.1
  config = bert.get_config('base')
  sections.complete(config)
  config = own_step.sized(config, 32, 512)
  state = own_step.footprint(config, synthetic_batch(config))['state_bytes']
  assert said['arguments_bytes'] > state and said['bytes_per_token'] * 32 * 512 > state


@mutation('path, lambda holder: say', 'path.with_suffix(str(os.getpid())), lambda holder: say')
def test_two_preflights_queue(tmp_path, monkeypatch):
  monkeypatch.setenv('TMPDIR', str(tmp_path))
  monkeypatch.setattr(tempfile, 'tempdir', None)
  code = (
    'from bertjax.tools.preflight import topology\n'
    'with topology.in_turn(lambda line: print(line, flush=True)): print("mine", flush=True)'
  )
  with topology.in_turn(print):
    other = subprocess.Popen(
      [sys.executable, '-c', code], cwd=ROOT, env=environment() | dict(TMPDIR=str(tmp_path)),
      text=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    assert f'process {os.getpid()}' in other.stdout.readline()
  assert other.communicate(timeout=60)[0] == 'mine\n'
