"""model.onnx of a class of transformers, by PyTorch's exporter, to be served without PyTorch; batch
and length are free. optimum-onnx 0.1.0 exports too, and asks for transformers below 4.58."""

import contextlib
import io
import logging
import pathlib
import warnings
from typing import Any

import numpy as np

from bertjax import models
from bertjax.errors import UserError, package
from bertjax.export import parity
from bertjax.formats import family as family_lib
from bertjax.formats import weights

NAME = 'model.onnx'
LIBRARIES = ('torch', 'transformers', 'onnxscript', 'onnxruntime')
AXES = ('batch_size', 'sequence_length')
OF_CHOICES = ('batch_size', 'num_choices', 'sequence_length')


def check(model: Any) -> None:
  """Refuses a model that writes text, keeps a memory or searches for answers, and a machine without
  the libraries."""
  writes = models.build(model).causal or family_lib.find(model.family).pair
  wrong = {
    'it writes text': writes,
    'it has a memory': 'mem_len' in model,
    'it searches for answers': model.get('answers', 'none') != 'none',
  }
  if said := [why for why, is_so in wrong.items() if is_so]:
    raise UserError(
      f'--to=onnx takes encoders, alone or with words, labels, tags or answers, and no '
      f'{family_lib.class_of(model)}, because {" and ".join(said)}: expected --to=hf'
    )
  for name in LIBRARIES:
    package(name, '--to=onnx', '-r requirements-onnx.txt')


def compared(
  directory: pathlib.Path, model: Any, inputs: parity.Inputs, mine: parity.Outputs
) -> dict[str, Any]:
  """Writes model.onnx in place of the tensors of a directory. Returns the parity block, our outputs
  beside those of onnxruntime, for all texts at once, padded, and for each alone."""
  import torch

  net, keys = parity.load(directory, model)
  given = parity.arguments(net, model, models.build(model), inputs)
  with torch.no_grad():
    names = list(net(**given))
  _write(directory / NAME, net, given, names)
  for path in weights.files_of(directory):
    path.unlink()
  ort = package('onnxruntime', '--to=onnx')
  session = ort.InferenceSession(directory / NAME, providers=['CPUExecutionProvider'])

  def run(real_BT: np.ndarray | None = None, **given: Any) -> parity.Outputs:
    found = session.run(names, {name: x.numpy() for name, x in given.items()})
    out = dict(zip(names, map(torch.from_numpy, found), strict=True))
    last = out.get('last_hidden_state')
    states = {} if last is None else dict(hidden_states=(None, last))
    return parity.outputs(out | states, model, real_BT)

  lengths = enumerate(inputs.example_BT.sum(1))
  alone = [run(**{name: x[i : i + 1, ..., :n] for name, x in given.items()}) for i, n in lengths]
  found = []
  for how, other in (
    ('', run(inputs.example_BT > 0, **given)), (' of texts alone', parity.joined(alone)),
  ):  # fmt: skip
    here = mine._replace(hidden=mine.hidden[-1:] if other.hidden else [])
    for each in parity.differences(here, other):
      name = each['of'].replace('hidden state 1', 'last hidden state')
      found.append(dict(each, of=name + how))
  return dict(missing=keys['missing_keys'], unexpected=keys['unexpected_keys'], differences=found)


def _write(path: pathlib.Path, net: Any, given: dict[str, Any], names: list[str]) -> None:
  """Writes the graph, without the places of PyTorch's files on this machine. Raises UserError: a
  class that PyTorch cannot write so, such as Longformer's, whose windows depend on the length."""
  import torch

  axes = OF_CHOICES if given['input_ids'].dim() == len(OF_CHOICES) else AXES
  shapes = {name: dict(enumerate(axes)) for name in given}
  # They say what they cannot fold, that inputs share the names of axes, and print what fails.
  for name in ('torch.onnx', 'torch.fx.experimental.symbolic_shapes', 'onnxscript'):
    logging.getLogger(name).setLevel(logging.ERROR)
  with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
    warnings.simplefilter('ignore')
    try:
      program: Any = torch.onnx.export(
        net, kwargs=given, dynamo=True, dynamic_shapes=shapes, output_names=names, verbose=False
      )
    except torch.onnx.OnnxExporterError as error:
      why = str(error.__cause__ or error).strip().partition('\n')[0]
      raise UserError(
        f"PyTorch's exporter makes no graph with free batch and length of {type(net).__name__}: "
        f'{why}: expected another class, or --to=hf'
      ) from error
  for node in program.model.graph:
    node.metadata_props.clear()
  program.save(path)
