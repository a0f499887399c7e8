"""Files of tensors: safetensors, one or several, read one tensor at a time and written as a stream.

Whole models need never be in memory twice. Files of `torch.save` are read where torch is installed,
by its reader that runs no code.
"""

import hashlib
import json
import pathlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import safetensors

from bertjax import json_files
from bertjax.errors import UserError, require_file
from bertjax.formats.originals import torch_files

NAME = 'model.safetensors'
INDEX = f'{NAME}.index.json'
TORCH = 'pytorch_model.bin'
_WRAPPERS = ('_orig_mod', '_fsdp_wrapped_module', '_checkpoint_wrapped_module')
DTYPES = {
  'float32': ('F32', np.dtype(np.float32)),
  'bfloat16': ('BF16', np.dtype(ml_dtypes.bfloat16)),
}

READ = {code: kind for code, kind in DTYPES.values()} | {
  'F16': np.dtype(np.float16),
  'F64': np.dtype(np.float64),
  'I64': np.dtype(np.int64),  # position_ids of old files
}


class Lazy(Mapping[str, np.ndarray]):
  """Tensors that are read when they are asked for; to ask whether one is there reads nothing.
  `names` holds by name what a subclass needs to read it."""

  def __init__(self, names: dict[str, Any]):
    self.names = names

  def __contains__(self, name: object) -> bool:
    return name in self.names

  def __iter__(self) -> Iterator[str]:
    return iter(self.names)

  def __len__(self) -> int:
    return len(self.names)


class View(Lazy):
  """The tensors of another mapping by other names: ours -> its own."""

  def __init__(self, state: Mapping[str, Any], names: dict[str, str]):
    super().__init__(names)
    self.state = state

  def __getitem__(self, name: str) -> np.ndarray:
    return self.state[self.names[name]]

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns the shape of a tensor, which is not read for it."""
    return shape_of(self.state, self.names[name])


def shape_of(state: Any, name: str) -> tuple[int, ...]:
  """Returns the shape of a tensor, without reading it where the state is a file."""
  return tuple(state.shape(name)) if hasattr(state, 'shape') else tuple(np.shape(state[name]))


class Tensors(Lazy):
  """The tensors of safetensors files, each read when it is asked for, as float32; not mapped, since
  pages of a mapped file would count as memory of this process."""

  def __init__(self, files: Sequence[pathlib.Path]):
    """Reads the headers. Raises UserError if a file is truncated or no safetensors file, or has a
    dtype that we do not read."""
    where: dict[str, tuple[pathlib.Path, int, dict[str, Any]]] = {}
    for path in files:
      try:
        with safetensors.safe_open(path, framework='np'):
          pass  # the library judges the file
      except (safetensors.SafetensorError, OSError) as error:
        raise UserError(f'{path} cannot be read as safetensors: {error}') from error
      with open(path, 'rb') as file:
        (length,) = struct.unpack('<Q', file.read(8))
        header = json.loads(file.read(length))
      header.pop('__metadata__', None)
      for name, entry in header.items():
        if entry['dtype'] not in READ:
          raise UserError(
            f'{path}: {name} is of {entry["dtype"]}, expected one of {", ".join(READ)}'
          )
        where[name] = path, 8 + length, entry
    super().__init__(where)

  def __getitem__(self, name: str) -> np.ndarray:
    path, start, entry = self.names[name]
    begin, end = entry['data_offsets']
    kind = READ[entry['dtype']]
    flat = np.fromfile(path, kind, (end - begin) // kind.itemsize, offset=start + begin)
    return flat.reshape(entry['shape']).astype(np.float32, copy=False)

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns the shape of a tensor, which is not read for it."""
    return tuple(self.names[name][2]['shape'])


def read(directory: pathlib.Path) -> Mapping[str, np.ndarray]:
  """Returns the tensors of a directory of transformers, `unwrapped`. Raises UserError if there are
  none, a file is missing or damaged, or torch is needed and not there."""
  there = {path.name for path in directory.iterdir()}  # links that lead nowhere, too
  for name in (NAME, TORCH):  # transformers' order
    index = directory / f'{name}.index.json'
    if not there & {name, index.name}:
      continue
    files = [directory / name] if name in there else _shards(index)
    for file in files:
      require_file(file, f'tensors, as its name or {index.name} says')
    return unwrapped(Tensors(files)) if name == NAME else of_torch(files)
  raise UserError(
    f'{directory} holds no tensors: expected {NAME} or {TORCH}, or a {INDEX} or {TORCH}.index.json '
    f'that names such, got {", ".join(sorted(there)[:20]) or "none"}'
  )


def of_torch(files: Sequence[pathlib.Path]) -> Mapping[str, np.ndarray]:
  """Returns the tensors of files of `torch.save`, `unwrapped`; raises as `torch_files.load`."""
  state: dict[str, np.ndarray] = {}
  for file in files:
    state |= torch_files.arrays(torch_files.inner(torch_files.load(file)), str(file), True)
  return unwrapped(state)


def _shards(index: pathlib.Path) -> list[pathlib.Path]:
  require_file(index, 'names of files of tensors')
  found = json_files.read(index)
  json_files.check(index, found, dict(weight_map=dict))
  names = sorted(set(map(str, (found.get('weight_map') or {}).values())))
  if outside := [name for name in names if pathlib.Path(name).name != name]:
    raise UserError(f'{index} names {", ".join(outside)}: expected files beside it')
  return [index.parent / name for name in names]


def unwrapped(state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
  """Returns a state without what wrappers of PyTorch put into its names: their own parts, the count
  of AveragedModel, and whatever all names begin with, as a trainer's `model.`; the encoder's own
  `bert.` may be left out of a whole file, too."""
  parts = {
    name: [part for part in name.split('.') if part not in _WRAPPERS]
    for name in state
    if name != 'n_averaged'
  }
  while len({each[0] for each in parts.values()}) == 1 and min(map(len, parts.values())) > 1:
    parts = {name: rest for name, (_, *rest) in parts.items()}
  names = {'.'.join(rest): name for name, rest in parts.items()}
  same = len(names) < len(parts) or names.keys() == state.keys()
  return state if same else View(state, names)


def files_of(directory: pathlib.Path) -> list[pathlib.Path]:
  """Returns the files that hold the tensors of a directory."""
  torch = TORCH.removesuffix('.bin')
  ours = lambda p: p.suffix == '.safetensors' or p.suffix == '.bin' and p.name.startswith(torch)
  return sorted(filter(ours, directory.iterdir()))


def write(
  directory: pathlib.Path,
  shapes: Mapping[str, tuple[int, ...]],
  tensors: Iterable[tuple[str, np.ndarray]],
  dtype: str,
  shard_bytes: int,
) -> dict[str, str]:
  """Writes model.safetensors in float32 or bfloat16, or files of `shard_bytes` and their index; a
  larger tensor has a file of its own. The tensors come in the order of `shapes`. Returns name ->
  sha256."""
  shards = _divide(shapes, DTYPES[dtype][1].itemsize, shard_bytes)
  names = [NAME]
  if len(shards) > 1:
    names = [f'model-{i + 1:05}-of-{len(shards):05}.safetensors' for i in range(len(shards))]
  digests, stream = {}, iter(tensors)
  for file_name, shard in zip(names, shards, strict=True):
    with open(directory / file_name, 'wb') as file:
      digests |= _write_file(file, {name: shapes[name] for name in shard}, stream, dtype)
  if len(shards) > 1:
    where = {name: f for f, shard in zip(names, shards, strict=True) for name in shard}
    size = sum(int(np.prod(s)) for s in shapes.values()) * DTYPES[dtype][1].itemsize
    index = dict(metadata=dict(total_size=size), weight_map=where)
    (directory / INDEX).write_text(json.dumps(index, indent=2) + '\n')
  return digests


def save(path: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
  """Writes one file of float32 tensors; the library would say a full disk by a class of its own."""
  shapes = {name: array.shape for name, array in tensors.items()}
  with open(path, 'wb') as file:
    _write_file(file, shapes, iter(tensors.items()), 'float32')


def _divide(shapes: Mapping[str, tuple[int, ...]], itemsize: int, limit: int) -> list[list[str]]:
  shards: list[list[str]] = [[]]
  used = 0
  for name, shape in shapes.items():
    size = int(np.prod(shape)) * itemsize
    if shards[-1] and used + size > limit:
      shards.append([])
      used = 0
    shards[-1].append(name)
    used += size
  return shards


def _write_file(
  file: BinaryIO,
  shapes: Mapping[str, tuple[int, ...]],
  stream: Iterator[tuple[str, np.ndarray]],
  dtype: str,
) -> dict[str, str]:
  """Header and tensors of one file; the format is a length, JSON and the bytes end to end."""
  code, kind = DTYPES[dtype]
  header: dict[str, Any] = {'__metadata__': {'format': 'pt'}}
  offset = 0
  for name, shape in shapes.items():
    end = offset + int(np.prod(shape)) * kind.itemsize
    header[name] = dict(dtype=code, shape=list(shape), data_offsets=[offset, end])
    offset = end
  text = json.dumps(header, separators=(',', ':')).encode()
  text += b' ' * (-len(text) % 8)
  file.write(struct.pack('<Q', len(text)) + text)
  digests = {}
  for name in shapes:
    found, array = next(stream)
    if found != name or array.shape != shapes[name]:
      raise ValueError(f'expected {name} {shapes[name]}, got {found} {array.shape}')
    data = np.ascontiguousarray(array, kind).reshape(-1).view(np.uint8).data
    digests[name] = hashlib.sha256(data).hexdigest()
    file.write(data)
  return digests
