"""Presets: what they set, what stands against them, and that the compilers know their flags."""

import os
import subprocess
import sys

import pytest
from mutation import mutation

from bertjax.config import presets, schema, sections
from bertjax.errors import UserError
from configs import bert


def config(preset: str, **model):
  found = bert.get_config('test')
  found.preset = preset
  sections.complete(found)
  found.model.update(model)
  return found


def warnings(c, *given):
  return presets.warnings(c.preset, c.model.dtype, *given)


@mutation('    if not as_given:\n', '    if True:\n')
@mutation('if name not in known]', ']')
def test_a_preset_sets_what_nobody_has_given():
  environ = {'XLA_FLAGS': '--xla_gpu_enable_latency_hiding_scheduler=false --xla_other=1'}
  gpu = config('gpu', remat='full')
  said = presets.apply(gpu, (), environ)
  assert gpu.model.dtype == 'bfloat16' and gpu.model.remat == 'none'
  flags = environ['XLA_FLAGS'].split()
  assert flags[:2] == ['--xla_gpu_enable_latency_hiding_scheduler=false', '--xla_other=1']
  assert '--xla_gpu_enable_pipelined_all_gather=true' in flags
  assert sum('latency_hiding' in flag for flag in flags) == 1
  assert 'bfloat16' in said[0] and 'none' in said[1]
  assert '--xla_gpu_enable_pipelined_all_gather=true' in said[2] and 'says itself' in said[3]
  given = config('tpu', dtype='float32')
  presets.apply(given, ('model.dtype',), {})
  assert given.model.dtype == 'float32'


def test_no_preset_changes_nothing_and_an_unknown_one_is_refused():
  environ = {}
  none = config('')
  assert presets.apply(none, (), environ) == [] and environ == {} and none == config('')
  with pytest.raises(UserError, match='tpu'):
    presets.apply(config('tpus'), (), {})
  with pytest.raises(UserError, match='config.preset'):
    schema.check(config('tpus'))


@mutation("or 'preset' in given or", 'or')
@mutation("or begun == ''", '')
@mutation('  if begun is not None:', '  if False:')
@mutation("in ('', '-1')", "in ('-1',)")
@mutation("in ('', 'cuda', 'gpu')", "in ('', 'cuda', 'cpu')")
@mutation('and DRIVER.exists()', '')
def test_a_machine_with_a_gpu_has_its_preset(monkeypatch, tmp_path):
  monkeypatch.setattr(presets.importlib.util, 'find_spec', lambda name: '13' in name)

  def chosen(preset='', given=(), platforms='', visible='0', begun=None):
    c, environ = config(preset), dict(JAX_PLATFORMS=platforms, CUDA_VISIBLE_DEVICES=visible)
    return presets.choose_own(c, given, environ, begun), c.preset

  monkeypatch.setattr(presets, 'DRIVER', tmp_path / 'absent')
  assert chosen() == ([], '')
  monkeypatch.setattr(presets, 'DRIVER', tmp_path)
  (said,), preset = chosen(platforms='cuda,cpu')
  assert preset == 'gpu' and '--config.preset= leaves' in said
  assert chosen(platforms='cpu') == ([], '') == chosen(given=('preset',))
  assert chosen('cpu') == ([], 'cpu') and chosen(visible='') == ([], '')
  assert chosen(begun='') == ([], '')  # a run of before goes on as it began
  monkeypatch.setattr(presets, 'DRIVER', tmp_path / 'absent')
  (said,), preset = chosen(begun='gpu')
  assert preset == 'gpu' and 'has begun with it' in said


def test_what_does_not_fit_the_devices_is_said():
  assert warnings(config(''), 'cpu', {}) == []
  assert warnings(config('cpu'), 'cpu', {}) == []
  environ = {}
  for preset in ('tpu', 'gpu'):
    presets.apply(config(preset), (), environ)
  tpu = warnings(config('tpu', dtype='bfloat16'), 'cpu', environ)
  assert len(tpu) == 1 and 'other devices' in tpu[0]
  (said,) = warnings(config(''), 'gpu', environ)
  assert 'float32' in said and '--config.preset=gpu' in said
  assert warnings(config('gpu', dtype='bfloat16'), 'gpu', environ) == []
  (said,) = warnings(config('gpu', dtype='bfloat16'), 'gpu', {})
  assert 'has not applied' in said and 'xla_gpu_enable_latency_hiding_scheduler' in said


COMPUTES = 'import jax; jax.numpy.ones(3).sum(); print(1)'
COMPILES = """
import jax
from bertjax.tools.preflight import topology
place = jax.sharding.SingleDeviceSharding(topology.devices('v5e:2x2')[0])
x = jax.ShapeDtypeStruct((8, 128), 'float32', sharding=place)
topology.compile_absent(jax.jit(lambda x: x @ x.T).lower(x))
print(1)
"""


@pytest.mark.full
@pytest.mark.parametrize(
  'preset, variable, unknown, code',
  [
    *((preset, 'XLA_FLAGS', '--xla_gpu_none=true', COMPUTES) for preset in presets.PRESETS),
    ('tpu', 'LIBTPU_INIT_ARGS', '--xla_tpu_none=true', COMPILES),  # no more is at hand here
  ],
)
def test_the_compiler_knows_every_flag(preset, variable, unknown, code):
  """It ends the process at a flag that it does not know."""
  environ = dict(os.environ, JAX_PLATFORMS='cpu', **{variable: ''})
  presets.apply(config(preset), (), environ)
  run = lambda: subprocess.run([sys.executable, '-c', code], env=environ, capture_output=True)
  done = run()
  assert done.stdout == b'1\n', done.stderr
  environ[variable] += f' {unknown}'
  assert run().returncode != 0
