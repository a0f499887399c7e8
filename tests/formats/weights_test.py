"""Files of tensors: streams, shards, dtypes, and what is damaged."""

import contextlib
import json
import warnings

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from mutation import mutation
from slow_imports import torch

from bertjax.errors import UserError
from bertjax.formats import weights

RNG = np.random.default_rng(0)
TENSORS = {f't{i}': RNG.normal(size=(3, i + 1)).astype(np.float32) for i in range(5)}
SHAPES = {name: x.shape for name, x in TENSORS.items()}


def write(path, dtype='float32', limit=10**9):
  return weights.write(path, SHAPES, iter(TENSORS.items()), dtype, limit)


@mutation('if shards[-1] and used + size > limit:', 'if False:')
@pytest.mark.parametrize('limit', [10**9, 80])
def test_files_are_what_safetensors_reads(limit, tmp_path):
  digests = write(tmp_path, limit=limit)
  files = weights.files_of(tmp_path)
  assert len(files) == (1 if limit == 10**9 else 3)
  assert sum(f.stat().st_size for f in files) > 4 * sum(x.size for x in TENSORS.values())
  for file in files:
    for name, value in safetensors.numpy.load_file(file).items():
      np.testing.assert_array_equal(value, TENSORS[name])
  found = weights.read(tmp_path)
  assert set(found) == set(TENSORS) == set(digests)
  for name, value in TENSORS.items():
    np.testing.assert_array_equal(found[name], value)
    assert found.shape(name) == value.shape


def test_bfloat16_is_rounded_and_read_back(tmp_path):
  write(tmp_path, 'bfloat16')
  found = weights.read(tmp_path)
  for name, value in TENSORS.items():
    np.testing.assert_array_equal(found[name], value.astype(ml_dtypes.bfloat16).astype(np.float32))


@mutation('zipped = zipfile.is_zipfile(path)', 'zipped = True', case='False')
@mutation('weights_only=True', 'weights_only=False', case='True')
@pytest.mark.parametrize('zipped', [True, False])
def test_files_of_torch_are_read_without_running_them(tmp_path, zipped):
  state = {name: torch.tensor(x) for name, x in TENSORS.items()}
  torch.save(state, tmp_path / weights.TORCH, _use_new_zipfile_serialization=zipped)
  found = weights.read(tmp_path)
  assert all(np.array_equal(found[name], x) for name, x in TENSORS.items())

  class Bomb:
    def __reduce__(self):
      return (open, (str(tmp_path / 'ran'), 'w'))

  torch.save(dict(state, bomb=Bomb()), tmp_path / weights.TORCH)
  with pytest.raises(UserError, match='carries more than tensors'):
    weights.read(tmp_path)
  assert not (tmp_path / 'ran').exists()


def test_damage_and_absence_are_named(tmp_path):
  with pytest.raises(UserError, match='holds no tensors: expected model.safetensors'):
    weights.read(tmp_path)
  write(tmp_path)
  whole = (tmp_path / weights.NAME).read_bytes()
  (tmp_path / weights.NAME).write_bytes(whole[:-7])
  with pytest.raises(UserError, match='model.safetensors cannot be read as safetensors'):
    weights.read(tmp_path)
  (tmp_path / weights.NAME).unlink()
  (tmp_path / weights.INDEX).write_text(json.dumps(dict(weight_map=dict(a='../x', b='gone'))))
  with pytest.raises(UserError, match=r'names ../x: expected files beside it'):
    weights.read(tmp_path)
  (tmp_path / weights.INDEX).write_text(json.dumps(dict(weight_map=dict(b='gone'))))
  with pytest.raises(UserError, match=r'there is no file .*/gone: expected tensors'):
    weights.read(tmp_path)


@mutation('      require_file(file, ', '      str(file, ', case='model.safetensors')
@mutation('  require_file(index, ', '  str(index, ', case='model.safetensors.index.json')
@pytest.mark.parametrize('name', [weights.NAME, weights.INDEX])
def test_a_link_of_the_hub_whose_file_was_not_copied_is_named(tmp_path, name):
  (tmp_path / name).symlink_to('../../blobs/1')
  with pytest.raises(UserError, match=f'{name} is a link to ../../blobs/1, which leads to no file'):
    weights.read(tmp_path)


@mutation('if not is_foreign(error):', 'if True:', file='bertjax/formats/originals/torch_files.py')
def test_a_damaged_file_of_torch_is_named(tmp_path):
  path = tmp_path / weights.TORCH
  state = {name: torch.tensor(x) for name, x in TENSORS.items()}
  for zipped in (True, False):
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    ends = [0, 1, 7, *range(20, len(whole), len(whole) // 25)]
    torn = [whole[:end] for end in ends]
    torn += [whole[:at] + b'R0.' + whole[at + 3 :] for at in ends]  # a step of the pickle machine
    for data in torn:
      path.write_bytes(data)
      with contextlib.suppress(UserError), warnings.catch_warnings(action='ignore'):
        weights.read(tmp_path)
  path.write_bytes(b'garbage')
  with pytest.raises(UserError, match='pytorch_model.bin (cannot be read|carries more)'):
    weights.read(tmp_path)
  torch.save([1, 2], path)
  with pytest.raises(UserError, match='pytorch_model.bin: expected a state dict of tensors'):
    weights.read(tmp_path)


@mutation('if not is_foreign(error):', 'if False:', file='bertjax/formats/originals/torch_files.py')
def test_a_wrong_call_of_torch_keeps_its_type(tmp_path, monkeypatch):
  torch.save({}, tmp_path / weights.TORCH)
  monkeypatch.setattr('torch.load', lambda path: {})
  with pytest.raises(TypeError, match='unexpected keyword'):
    weights.read(tmp_path)
