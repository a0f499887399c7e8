"""States with NaN, infinity or numbers too large to go on from: found, refused, passed over."""

import math
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import processes
import pytest
import torch_models
import used_models
from checkpoint_cases import abstract_of, assert_equal, kept_names, mesh_of, spoil, state_of
from ml_collections import ConfigDict
from mutation import mutation

import bertjax
from bertjax import sharding
from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import finite, manifest, reading
from bertjax.errors import UserError
from bertjax.sources import init_from, runs

BEST = ConfigDict(dict(metric='eval/loss', mode='min'))
TWO = pathlib.Path(__file__).parents[1] / 'support' / 'look_together.py'
PARAMS = 'variables/params/layers/w'
HALF = 'variables/params/half'  # bfloat16
MU, NU = (f'opt_state/1/inner_state/{name}/layers/w' for name in ('mu', 'nu'))
CARRY = 'carry/two/layers/w'


def spoiled(state, path, value, place=-1):
  """The state with a value in one place of one array."""

  def change(at, x):
    if sharding.leaf_path(at) != path:
      return x
    whole = np.array(x)
    whole.reshape(-1)[place] = value
    return jax.device_put(whole, x.sharding)

  return jax.tree_util.tree_map_with_path(change, state)


@mutation('return fine if mesh is None else jax.lax.pmin(fine, mesh.axis_names)', 'return fine')
@mutation("1 if name.startswith('opt_state') else 4", '1 if name else 4')
@mutation("1 if name.startswith('opt_state') else 4", '4 if name else 1')
@pytest.mark.parametrize(
  'path, value, place, refused',
  [
    (PARAMS, math.nan, -1, True),
    (PARAMS, -math.inf, 0, True),
    (PARAMS, -1e11, 5, True),  # a loss of such parameters is not finite
    (PARAMS, 1e6, 5, False),
    (HALF, math.nan, 3, True),
    (HALF, math.inf, 3, True),
    (MU, math.inf, -1, True),
    (NU, math.nan, 0, True),
    (NU, 1e30, -1, False),
    (CARRY, math.nan, -1, True),
  ],
)
def test_what_is_not_finite_is_named_on_whatever_device_it_lies(path, value, place, refused):
  state = state_of(1, mesh_of(2, 4))
  finite.require(state, 'the state')
  bad = spoiled(state, path, value, place)
  if not refused:
    finite.require(bad, 'the state')
    return
  with pytest.raises(finite.NotFinite, match=rf'^the state has .* 1 of its arrays, {path}; stop$'):
    finite.require(bad, 'the state', '; stop')


def test_a_copy_on_one_device_counts_and_so_do_arrays_of_the_host():
  state = state_of(1, mesh_of(2, 4))
  whole = state.variables['params']['layers']['b']
  copies = [np.array([1, math.nan if n == 7 else 1, 1], np.float32) for n in range(8)]
  placed = [jax.device_put(x, d) for x, d in zip(copies, jax.devices(), strict=True)]
  state.variables['params']['layers']['b'] = jax.make_array_from_single_device_arrays(
    (3,), whole.sharding, placed
  )
  with pytest.raises(finite.NotFinite, match='variables/params/layers/b$'):
    finite.require(state, 'the state')
  host = dict(a=np.ones(3, np.float32), b=np.array([2, math.inf], ml_dtypes.bfloat16))
  with pytest.raises(finite.NotFinite, match='1 of its arrays, b$'):
    finite.require(host, 'it')
  finite.require(dict(count=jnp.int32(3)), 'it')


def test_processes_hear_of_what_one_of_them_holds():
  """Both refuse to save, so that neither waits for the other."""
  port = processes.free_port()
  started = [
    subprocess.Popen(
      [sys.executable, TWO, str(port), str(index)], cwd=processes.ROOT,
      env=processes.environment(2) | dict(JAX_CPU_COLLECTIVES_IMPLEMENTATION='gloo'), text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    for index in range(2)
  ]  # fmt: skip
  for each in started:
    out, error = each.communicate(timeout=120)
    assert each.returncode == 0, error
    for kind in ('shard', 'copy'):
      said = f'has NaN, infinity or too large numbers in 1 of its arrays, {kind}'
      assert all(f'{kind} of process {number} {said}' in out for number in range(2)), out


def saved(path):
  """Checkpoints 10, 20 and 30, as a run that never looked has left them."""
  checkpoints = checkpoints_lib.Checkpoints(path, 3, BEST)
  for step in (10, 20, 30):
    checkpoints.save(step, state_of(step), {}, wait=True)
  return checkpoints


@mutation('  finite.require(state, directory)\n', '')
@mutation('_set_aside(s for s in steps if s > step)', '_set_aside(s for s in steps if s > 30)')
@pytest.mark.parametrize('path, value', [(PARAMS, math.nan), (MU, math.inf)])
def test_a_resume_falls_back_to_what_is_finite(tmp_path, path, value):
  checkpoints = saved(tmp_path / 'checkpoints')
  for step in (20, 30):
    spoil(tmp_path / 'checkpoints' / str(step), path, value)
  found = checkpoints.restore(abstract_of(state_of(0)))
  checkpoints.close()
  assert found is not None and found[0] == 10
  assert_equal(found[1], state_of(10))
  assert kept_names(tmp_path / 'checkpoints') == ['10', '20.damaged', '30.damaged']


@mutation(
  "  finite.require(found, directory, ': take an earlier checkpoint (--step) or another model')\n",
  '',
)
def test_every_door_to_a_run_refuses_what_is_not_finite(tmp_path):
  run = used_models.make(tmp_path, 'bert').workdir
  [checkpoint] = (run / 'checkpoints').iterdir()
  spoil(checkpoint, 'variables/params/embeddings/word')
  doors = dict(
    use=lambda: bertjax.Model.load(run),
    best=lambda: bertjax.Model.load(checkpoint),
    convert=lambda: runs.open_run(run).params(),
    whole=lambda: init_from.open_source(str(run)).params(),
    part=lambda: init_from._read(str(run), None),
    numpy=lambda: reading.read_variables(checkpoint),
  )
  for name, door in doors.items():
    with pytest.raises(UserError) as caught:
      door()
    said = str(caught.value)
    assert f'{checkpoint} has NaN' in said and 'params/embeddings/word: take an' in said, name


def test_what_training_alone_has_spoils_no_answer(tmp_path):
  saved(tmp_path / 'checkpoints').close()
  spoil(tmp_path / 'checkpoints' / '30', NU)
  found = reading.read_variables(reading.newest(tmp_path))
  assert_equal(found, state_of(30).variables)
  manifest.verify(tmp_path / 'checkpoints' / '30')


@mutation("    finite.require(variables, opened.path, ': take another model')\n", '')
@mutation("  finite.require(state, 'the model', ': nothing is written, take another one')\n", '')
def test_a_directory_of_transformers_with_nan_is_no_model(tmp_path):
  import safetensors.numpy as safetensors

  used_models.write_vocabulary(tmp_path / 'theirs', used_models.BERT)
  torch_models.save('BertForMaskedLM', tmp_path / 'theirs')
  file = tmp_path / 'theirs' / 'model.safetensors'
  tensors = safetensors.load_file(file)
  name = 'bert.encoder.layer.1.output.dense.weight'
  tensors[name] = tensors[name].copy()
  tensors[name][-1, -1] = math.nan
  safetensors.save_file(tensors, file, dict(format='pt'))
  with pytest.raises(UserError, match='theirs has NaN.*encoder/layers/ffn_down/kernel'):
    bertjax.Model.load(tmp_path / 'theirs')
  source = init_from.open_source(f'hf:{tmp_path / "theirs"}')
  config = runs.recipe_of('bert')
  config.model = ConfigDict(dict(source.model))
  (tmp_path / 'run').mkdir()
  with pytest.raises(UserError, match='the model has NaN.*nothing is written'):
    runs.write_run(tmp_path / 'run', config, source.params(), source.vocabulary, {})
  assert kept_names(tmp_path / 'run') == []
