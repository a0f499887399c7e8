"""Checkpoints of original programs with all that is read of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict


class Original(NamedTuple):
  """A checkpoint; see `bertjax.formats.originals.original.Opening` and `huggingface.Taken`."""

  model: dict[str, Any]
  recipe: str
  params: dict[str, Any]
  made: list[str]
  left_out: list[str]
  vocabulary: Any
  assumed: list[str]


def read(program: Any, path: Any, heads: Mapping[str, Any] = {}) -> Original:
  """Reads a checkpoint by a module of `formats/originals`, as a model with these `heads`, which are
  made where it lacks them."""
  opened = program.open_checkpoint(path)
  model = ConfigDict(opened.model | dict(heads))
  params, made, left_out = opened.take(ConfigDict({'init_std': 0.02, **model}))
  assert heads or not made
  return Original(
    model.to_dict(), opened.recipe, params, made, left_out, opened.vocabulary, opened.assumed
  )
