"""A module for each model, with its `MODEL`; `build` is what finds them."""

from typing import Any

from bertjax import registry


def build(model: Any) -> Any:
  """The `layers.contracts.Model` of a `config.model`.

  Raises:
    UserError: no such model, or what its `make` refuses.
  """
  return registry.find('bertjax.models', model.name, 'config.model.name').MODEL.make(model)
