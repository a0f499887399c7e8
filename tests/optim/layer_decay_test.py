"""Layer-wise decay of the learning rate against ELECTRA's rule and PyTorch's parameter groups."""

import json
import pathlib
import re

import numpy as np
import optimizer_cases
import pytest
from mutation import mutation
from optimizer_cases import LAYERS, LR, config, flatten, some_grads, stack, tensors, train
from slow_imports import torch

from bertjax.optim import layer_decay, optimizer, param_rules

DECAY = 0.8
PATHS = json.loads(
  (pathlib.Path(__file__).resolve().parents[1] / 'goldens' / 'sharding.json').read_text()
)
SHARE = ('albert', 'elmo', 'ulmfit')  # their layers have parameters in common, or are no stack


def electra_name(path):
  """What google-research/electra calls a parameter, as far as its rule reads it."""
  if number := re.search(r'layers/(\d+)/', path):
    return f'electra/encoder/layer_{number[1]}/attention/self/query/kernel:0'
  if path in ('word', 'mask', 'u', 'w', 'z') or path.startswith(('embeddings/', 'generator_emb')):
    return 'electra/embeddings/word_embeddings:0'
  if 'projection/' in path:
    return 'electra/embeddings_project/kernel:0'
  return 'task_specific/sst/classifier/kernel:0'


def electra_rate(name, layers):
  """optimization.py: the rate of a variable is that of the part of the model which its name has."""
  depths = {'/embeddings/': 0, '/embeddings_project/': 0, 'task_specific/': layers + 2}
  depths |= {f'encoder/layer_{layer}/': layer + 1 for layer in range(layers)}
  (depth,) = (depth for part, depth in depths.items() if part in name)
  return DECAY ** (layers + 2 - depth)


def scales(name, layers):
  """path -> multiplier of a system's parameters, one for each layer."""
  shapes = {path: np.zeros(layers if '/layers/' in f'/{path}' else 1) for path in PATHS[name]}
  axes = {path: ('layers',) if '/layers/' in f'/{path}' else ('embed',) for path in PATHS[name]}
  shapes, axes = optimizer_cases.nest(shapes), optimizer_cases.nest(axes)
  found = layer_decay.rules(DECAY, shapes, axes, 'key')
  resolved = param_rules.resolve(found, shapes, axes, 'key')
  out = {}
  for path, values in flatten(resolved).items():
    for layer, value in enumerate(np.ravel(values)):
      stacked = '/layers/' in f'/{path}'
      out[path.replace('layers/', f'layers/{layer}/', 1) if stacked else path] = float(value)
  return out


@pytest.mark.parametrize('name', [name for name in PATHS if name not in SHARE])
@mutation('decay ** (max(stacks.values()) + 2)', 'decay ** (max(stacks.values()) + 1)', case='bert')
@mutation('decay ** (count + 1 - layer)', 'decay ** (count - 1 - layer)', case='roberta')
@mutation(r'|\w+/projection/.*|', '|', case='electra')
def test_every_parameter_of_every_system_has_the_rate_of_electras_rule(name):
  found = scales(name, 12)
  assert found
  for path, value in found.items():
    expected = electra_rate(electra_name(path), 12)
    assert value == pytest.approx(expected, rel=1e-6), path


@mutation('scales = jax.tree.map(np.multiply, scales, by_depth)', 'scales = by_depth')
def test_updates_are_those_of_torchs_parameter_groups():
  """AdamW, whose decay has the rate of its parameter as well; lr_scale multiplies it further."""
  flat, grads = tensors(0), some_grads(3)
  given = config('torch', layer_decay=DECAY, lr_scale=(('.*bias', 2.0), ('.*', 1.0)))
  found = train(given, flat, grads, stacked=True)
  params = {path: torch.nn.Parameter(torch.tensor(p)) for path, p in flat.items()}
  groups = [
    dict(
      params=[p],
      lr=LR * electra_rate(electra_name(path), LAYERS) * (2 if path.endswith('bias') else 1),
      weight_decay=0.1 if optimizer_cases.is_weight(path) else 0.0,
    )
    for path, p in params.items()
  ]
  theirs = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), eps=1e-6)
  optimizer_cases.check_ends(theirs, params, grads, found)


def test_lambs_step_is_as_much_shorter():
  """Behind the trust ratio: the first step of a tensor is the plain one times its rate."""
  flat, grads = tensors(0), some_grads(1)
  plain = train(config('lamb'), flat, grads, stacked=True)
  found = train(config('lamb', layer_decay=DECAY), flat, grads, stacked=True)
  for path, p in flat.items():
    rate = electra_rate(electra_name(path), LAYERS)
    np.testing.assert_allclose(found[path] - p, rate * (plain[path] - p), rtol=2e-3, err_msg=path)


def test_the_start_says_which_layer_has_which_rate():
  flat = stack(tensors(0))
  params, axes = optimizer_cases.nest(flat), optimizer_cases.axes_of(flat)
  shown = optimizer.describe(config(layer_decay=0.5), params, axes)
  assert re.search(r'layers/2/\.\* +-> +0\.25 ', shown)
  assert 'layer_decay' not in optimizer.describe(config(), params, axes)
