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
  step: int | None
  assumed: list[str]


def there(row: Any, shape: tuple[int, ...]) -> Any:
  """Refuses to make what a checkpoint should hold."""
  raise AssertionError(f'{row.theirs} is there')


def read(
  program: Any, path: Any, absent: Any = there, heads: Mapping[str, Any] = {}, into=None
) -> Original:
  """Reads a checkpoint by a module of `formats/originals`, as a model with these `heads`."""
  opened = program.open_checkpoint(path, into)
  model = ConfigDict(opened.model | dict(heads))
  params, made, left_out = opened.take(model, absent)
  return Original(
    model.to_dict(), opened.recipe, params, made, left_out, opened.vocabulary, opened.step,
    opened.assumed,
  )  # fmt: skip
