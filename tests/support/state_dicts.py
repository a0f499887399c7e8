"""Whole state dicts of transformers to and from our parameters."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.formats import huggingface


def from_huggingface(state_dict: Mapping[str, np.ndarray], model: Any) -> dict[str, Any]:
  """The parameters of `take`, of a state dict that has all heads of the model."""
  taken = huggingface.take(state_dict, model)
  assert not taken.made, taken.made
  return taken.params


def electra(judge: Mapping[str, Any], generator: Mapping[str, Any], model: Any) -> dict[str, Any]:
  """The parameters of an ELECTRA model with a generator of its own: the inverse of
  `models.electra.beside`. Tied tables are those of the discriminator `judge`."""
  tables = dict(generator['embeddings'])
  net = dict(encoder=generator['encoder'])
  if 'projection' in tables:
    net['projection'] = tables.pop('projection')
  params = dict(judge, generator_net=net, mlm=generator['mlm'])
  return params if model.tied_embeddings else dict(params, generator_embeddings=tables)


def to_huggingface(params: Mapping[str, Any], model: Any) -> dict[str, np.ndarray]:
  """Our parameters as a state dict of NumPy arrays: the inverse of `from_huggingface`. Returns
  float32 arrays under the names of the class, tied copies included, so that its
  `load_state_dict(strict=True)` takes it. Raises UserError: no class of transformers computes the
  model, or the parameters are not its own.

  Args:
    params: nested dict of arrays, without partitioning boxes.
    model: `config.model` with the vocabulary size filled in.
  """
  layout = huggingface.layout_of(model)
  state = {name: array for name, _, array in huggingface.tensors(params, model)}
  return state | {copy: state[source] for copy, source in layout.tied.items()}
