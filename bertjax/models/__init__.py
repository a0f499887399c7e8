"""A module for each model, with its `MODEL`; `build` is what finds them."""

from typing import Any

from bertjax import registry
from bertjax.models.layers.basic import METADATA
from bertjax.models.layers.heads import Head
from bertjax.types import Factory


def build(model: Any) -> Any:
  """Returns the `layers.contracts.Model` of a `config.model`. Raises UserError: no such model, or
  what its `make` refuses."""
  return factory(model).make(model)


def heads_of(model: Any) -> tuple[Head, ...]:
  """Returns the heads of a `config.model`; as `bare`."""
  return bare(model).output_heads


def bare(model: Any) -> Any:
  """Returns the `layers.contracts.Model` of a `config.model` whose sizes and ids may be left to the
  vocabulary yet: what it says of itself, not what it computes. Raises UserError: no such model."""
  made = factory(model)
  if not hasattr(made.options, 'module'):  # somebody's own, with options of another kind
    return made.make(model)
  fields = {key: value for key, value in dict(model).items() if key not in METADATA}
  return made.options.module(**fields)  # pyright: ignore


def head_paths(model: Any) -> tuple[str, ...]:
  """Subtrees of the parameters of a `config.model` that are heads of a task."""
  return tuple(h.path for h in heads_of(model) if h.kind in ('text', 'token', 'answers'))


def factory(model: Any) -> Factory:
  """Returns the MODEL of the module that a `config.model` names."""
  return registry.chosen('bertjax.models', model['name'], 'config.model.name')
