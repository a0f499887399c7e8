"""PyTorch's files, read without running what is in them.

A .pt file is a pickle, and a pickle may name any function of any module to be called. Only tensors,
plain containers and `argparse.Namespace`, in which fairseq keeps its options, are read here.
"""

import argparse
import pathlib
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError, is_foreign, package, require_file


def load(path: pathlib.Path) -> Any:
  """Loads a torch file onto the CPU, tensors and plain containers only. Raises UserError if torch
  is not installed, the file cannot be read, or it carries more than that; nothing of it has run."""
  torch = package('torch', f'{path}: its reader')
  require_file(path, 'a file of PyTorch')
  try:
    with torch.serialization.safe_globals([argparse.Namespace]):
      zipped = zipfile.is_zipfile(path)  # files of before 2020 are not, and cannot be mapped
      return torch.load(path, map_location='cpu', weights_only=True, mmap=zipped)
  except pickle.UnpicklingError as error:
    raise UserError(
      f'{path} carries more than tensors, plain containers and argparse.Namespace, and to read '
      f'that would run code of it: {_first(error)}. Where you trust it, load it with torch.load '
      'and save its tensors, and args as a dict, with torch.save: dict(args=.., model=..)'
    ) from error
  except Exception as error:  # a damaged pickle may end in any class
    if not is_foreign(error):
      raise
    raise UserError(
      f'{path} cannot be read; is it cut off, or no file of PyTorch? {_first(error)}'
    ) from error


def _first(error: Exception) -> str:
  """Returns the line of a message that says what is wrong; torch has advice around it."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  telling = [line for line in lines if 'GLOBAL' in line or 'nsupported' in line]
  return (telling or lines or [type(error).__name__])[0][:200].rstrip('.')


def arrays(state: Any, what: str, buffers: bool = False) -> dict[str, Any]:
  """Returns a state dict as float32 arrays, with or without buffers of integers. Raises UserError
  if it is none."""
  import torch

  tensors = state if isinstance(state, Mapping) else {}
  if not tensors or not all(isinstance(each, torch.Tensor) for each in tensors.values()):
    others = [f'{k}: {type(x).__name__}' for k, x in tensors.items() if not torch.is_tensor(x)]
    said = ', '.join(others[:5]) or type(state).__name__
    raise UserError(f'{what}: expected a state dict of tensors, got {said}')
  taken = {name: x for name, x in tensors.items() if buffers or x.is_floating_point()}
  return {name: tensor.float().numpy() for name, tensor in taken.items()}


def inner(found: Any) -> Any:
  """Returns the state dict in what trainers save around it, by a usual key or the only one, or what
  was found."""
  if not isinstance(found, Mapping) or any('.' in str(name) for name in found):
    return found
  inside = {key: inner(x) for key, x in found.items() if isinstance(x, Mapping)}
  states = {key: x for key, x in inside.items() if any('.' in str(name) for name in x)}
  usual = [key for key in ('state_dict', 'model_state_dict', 'model', 'module') if key in states]
  return states[[*usual, *states][0]] if usual or len(states) == 1 else found


def state_dict(path: pathlib.Path, mark: str, title: str) -> tuple[dict[str, Any], dict[str, Any]]:
  """Loads a state dict, alone or as dict(args=.., model=..); returns the args and its arrays.
  Raises UserError as `load` and `arrays`, or for tensors none of whose names begins with `mark`: it
  is no `title`."""
  found = load(path)
  whole = isinstance(found, Mapping) and 'model' in found
  state = arrays(found['model'] if whole else found, 'the state dict')
  if not any(name.startswith(mark) for name in state):
    raise UserError(
      f'this is no {title}: expected tensors like {mark}, got {", ".join(sorted(state)[:3])}'
    )
  return options(found.get('args')) if whole else {}, state


def options(found: Any) -> dict[str, Any]:
  """Returns options as a dict: of a Namespace, a dict of either (fairseq's cfg), or None."""
  found = vars(found) if isinstance(found, argparse.Namespace) else found
  return dict(found) if isinstance(found, Mapping) else {}
