"""A small model, as separate layers or as stacks, and the optimizers that the tests go through."""

import re

import jax
import numpy as np
import optax
from ml_collections import ConfigDict
from slow_imports import torch

from bertjax.optim import optimizer, schedules

LAYERS = 3
WEIGHTS_ONLY = ((r'.*norm/(scale|bias)', 0.0), (r'.*bias', 0.0), (r'.*', 1.0))
LR = 0.05
ADAM = dict(b1=0.9, b2=0.99, eps=1e-6, bias_correction=False, weight_decay=0.1)
FACTORS = dict(
  decay_rate=0.8, eps=1e-30, min_factored=4, clip_rms=0.7, min_scale=1e-3, weight_decay=0.1
)
MATRICES = ((r'.*/layers/.*kernel', 1.0), (r'.*', 0.0))

# Every optimizer in every mode; a new one is a new row and gets every test below that uses ROWS.
ROWS = dict(
  bert=dict(name='adamw', **ADAM),
  torch=dict(name='adamw', **ADAM | dict(bias_correction=True)),
  fairseq=dict(name='adamw', **ADAM | dict(bias_correction=True), eps_first=True),
  openai=dict(name='openai_adam', b1=0.9, b2=0.99, eps=1e-6, weight_decay=0.1),
  lamb=dict(name='lamb', **ADAM),
  lamb_corrected=dict(name='lamb', **ADAM | dict(bias_correction=True)),
  adafactor=dict(name='adafactor', **FACTORS),
  muon=dict(
    name='muon', matrices=MATRICES, momentum=0.9, nesterov=True, newton_schulz_steps=5,
    update_rms=0.0, b1=0.9, b2=0.99, eps=1e-6, weight_decay=0.1,
  ),
  stable=dict(name='stable_adamw', b1=0.9, b2=0.99, eps=1e-6, weight_decay=0.1),
)  # fmt: skip


def config(row='bert', **changes):
  common = dict(
    schedule=dict(name='constant', peak=LR), clip=0.0, freeze=(), lr_scale=(('.*', 1.0),),
    decay=WEIGHTS_ONLY,
  )  # fmt: skip
  return ConfigDict(common | ROWS.get(row, {}) | changes)


def tensors(seed, growth=1.0):
  """path -> array, one tensor per layer; layer i is growth^i times larger than layer 0."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  out = {'embeddings/word': draw(9, 6), 'embeddings/norm/scale': draw(6), 'mlm/bias': draw(9)}
  for i in range(LAYERS):
    for name, shape in (('dense/kernel', (6, 5)), ('dense/bias', (5,)), ('norm/scale', (6,))):
      out[f'encoder/layers/{i}/{name}'] = draw(*shape) * np.float32(growth**i)
  return out


def nest(flat):
  tree = {}
  for path, value in flat.items():
    *parents, last = path.split('/')
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
    node[last] = value
  return tree


def flatten(tree, path=''):
  if not isinstance(tree, dict):
    return {path: tree}
  return {
    k: v for name in tree for k, v in flatten(tree[name], f'{path}/{name}'.strip('/')).items()
  }


def stack(flat):
  """Layers of one name as one array with the layers in front."""
  out = {k: v for k, v in flat.items() if '/layers/' not in k}
  for path in flat:
    if '/layers/0/' in path:
      group = [flat[path.replace('/0/', f'/{i}/')] for i in range(LAYERS)]
      out[path.replace('/0/', '/')] = np.stack(group)
  return out


def axes_of(flat):
  """Logical axes; a path with 'layers' but no number is a stack."""

  def names(path, value):
    stacked = '/layers/' in path and not re.search(r'/layers/\d', path)
    return ('layers',) * stacked + ('embed', 'ffn')[: value.ndim - stacked]

  return nest({k: names(k, v) for k, v in flat.items()})


def make(config, flat):
  return optimizer.make(config, nest(flat), axes_of(flat))[0]


def train(config, flat, grads, stacked=False):
  """Takes one step per dict of gradients; returns path -> array, one tensor per layer."""
  view = stack if stacked else dict
  params, tx = nest(view(flat)), make(config, view(flat))
  state, schedule = tx.init(params), schedules.make(config.schedule)

  @jax.jit
  def step(params, state, grads, rate):
    updates, state = tx.update(grads, state, params, rate=rate)
    return optax.apply_updates(params, updates), state

  for index, grad in enumerate(grads):
    params, state = step(params, state, nest(view(grad)), schedule(index))
  found = flatten(jax.device_get(params))
  return {
    path: found[re.sub(r'/\d+/', '/', path)][int(re.search(r'\d+', path).group())]
    if stacked and '/layers/' in path
    else found[path]
    for path in flat
  }


def some_grads(count=4, growth=1.0):
  return [tensors(100 + i, growth) for i in range(count)]


def is_weight(path):
  return not path.endswith(('bias', 'scale'))


def check_ends(theirs, params, grads, found):
  """Steps an optimizer of torch through these gradients and expects the found parameters."""
  for grad in grads:
    for path, p in params.items():
      p.grad = torch.tensor(grad[path])
    theirs.step()
  for path, p in params.items():
    np.testing.assert_allclose(found[path], p.detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=path)
