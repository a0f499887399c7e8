"""Optimizers against NumPy, PyTorch and optax; every rule on stacks against separate layers."""

import logging
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from absl import logging as absl_logging
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from bertjax import optim

LAYERS = 3
WEIGHTS_ONLY = ((r'.*norm/(scale|bias)', 0.0), (r'.*bias', 0.0), (r'.*', 1.0))
LR = 0.05
ADAM = dict(b1=0.9, b2=0.99, eps=1e-6, bias_correction=False, weight_decay=0.1)
FACTORS = dict(
  decay_rate=0.8, eps=1e-30, min_factored=4, clip_rms=0.7, min_scale=1e-3, weight_decay=0.1
)
LISTED = ((r'.*/layers/1/.*', 0.0), (r'.*scale', 0.0), (r'.*', 1.0))

# Every optimizer in every mode; a new one is a new row and gets every test below that uses ROWS.
ROWS = dict(
  bert=dict(name='adamw', **ADAM),
  torch=dict(name='adamw', **ADAM | dict(bias_correction=True)),
  fairseq=dict(name='adamw', **ADAM | dict(bias_correction=True), eps_first=True),
  lamb_decayed=dict(name='lamb', **ADAM, trust='decayed'),
  lamb_corrected=dict(name='lamb', **ADAM | dict(bias_correction=True), trust='decayed'),
  lamb_listed=dict(name='lamb', **ADAM, trust='listed', trust_rules=LISTED),
  lamb_all=dict(name='lamb', **ADAM, trust='all'),
  adafactor=dict(name='adafactor', **FACTORS),
)
rows = pytest.mark.parametrize('row', ROWS)


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
  return optim.make(config, nest(flat), axes_of(flat))[0]


def train(config, flat, grads, stacked=False):
  """Takes one step per dict of gradients; returns path -> array, one tensor per layer."""
  view = stack if stacked else dict
  params, tx = nest(view(flat)), make(config, view(flat))
  state = tx.init(params)

  @jax.jit
  def step(params, state, grads):
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state

  for grad in grads:
    params, state = step(params, state, nest(view(grad)))
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


def numpy_adam(p, grads, corrected, decay, ratio, eps_first, b1=0.9, b2=0.99, eps=1e-6):
  """AdamW and LAMB of one tensor in float64."""
  p, m, v = p.astype(np.float64), 0.0, 0.0
  for t, g in enumerate(grads, 1):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g.astype(np.float64) ** 2
    c1, c2 = (1 - b1**t, 1 - b2**t) if corrected else (1, 1)
    late, early = (0, eps) if eps_first else (eps, 0)
    u = m / c1 / ((np.sqrt(v) + early) / np.sqrt(c2) + late) + decay * p
    norms = np.linalg.norm(p), np.linalg.norm(u)
    p = p - LR * u * (norms[0] / norms[1] if ratio and all(norms) else 1.0)
  return p


def numpy_adafactor(p, grads, decay):
  """Shazeer and Stern 2018, algorithms 4 and 5, of one tensor in float64."""
  rms = lambda x: np.sqrt(np.mean(x**2))
  p, row, col, v = p.astype(np.float64), 0.0, 0.0, 0.0
  for t, g in enumerate(grads, 1):
    beta, square = 1 - t**-0.8, g.astype(np.float64) ** 2 + 1e-30
    if p.ndim == 2 and min(p.shape) >= 4:
      row = beta * row + (1 - beta) * square.mean(1)
      col = beta * col + (1 - beta) * square.mean(0)
      v = np.outer(row, col) / row.mean()
    else:
      v = beta * v + (1 - beta) * square
    u = g / np.sqrt(v)
    u = u / max(1.0, rms(u) / 0.7) * max(1e-3, rms(p))
    p = p - LR * (u + decay * p)
  return p


def reference(row, path, p, grads):
  decay = 0.1 if is_weight(path) else 0.0
  if row == 'adafactor':
    return numpy_adafactor(p, grads, decay)
  trusted = {
    'lamb_decayed': is_weight(path),
    'lamb_corrected': is_weight(path),
    'lamb_listed': '/layers/1/' not in path and not path.endswith('scale'),
    'lamb_all': True,
  }
  corrected = row in ('torch', 'fairseq', 'lamb_corrected')
  return numpy_adam(p, grads, corrected, decay, trusted.get(row, False), row == 'fairseq')


@rows
def test_against_numpy(row):
  flat, grads = tensors(0), some_grads()
  found = train(config(row), flat, grads, stacked=True)
  for path, p in flat.items():
    expected = reference(row, path, p, [g[path] for g in grads])
    np.testing.assert_allclose(found[path], expected, rtol=1e-5, atol=1e-6, err_msg=path)


@rows
def test_stacked_equals_unstacked_under_every_rule(row):
  """Layers of very different sizes, so that whatever mixes them shows."""
  flat, grads = tensors(0, growth=10.0), some_grads(growth=30.0)
  every_rule = dict(
    decay=((r'.*/layers/2/.*', 3.0), *WEIGHTS_ONLY),
    lr_scale=((r'.*/layers/0/.*', 0.25), (r'.*/layers/1/.*', 0.5), (r'.*', 1.0)),
    freeze=(r'.*/layers/1/norm/.*',),
    clip=1.0,
  )
  apart = train(config(row, **every_rule), flat, grads)
  stacked = train(config(row, **every_rule), flat, grads, stacked=True)
  for path in flat:
    np.testing.assert_allclose(stacked[path], apart[path], rtol=1e-6, atol=1e-7, err_msg=path)


@rows
def test_converges_and_does_not_retrace(row):
  flat = tensors(0)
  target = nest(stack(tensors(1)))
  tx = make(config(row, weight_decay=0.0, clip=1.0), stack(flat))
  loss = lambda p: optax.tree.norm(jax.tree.map(jnp.subtract, p, target), squared=True)
  chex.clear_trace_counter()

  @jax.jit
  @chex.assert_max_traces(n=1)
  def step(params, state):
    updates, state = tx.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state

  params, first = nest(stack(flat)), loss(nest(stack(flat)))
  state = tx.init(params)
  for _ in range(200):
    params, state = step(params, state)
  assert loss(params) < 0.05 * first


def test_corrected_adamw_is_torchs():
  flat, grads = tensors(0), some_grads(6)
  found = train(config('torch'), flat, grads, stacked=True)
  params = {path: torch.nn.Parameter(torch.tensor(p)) for path, p in flat.items()}
  groups = [
    dict(params=[p for path, p in params.items() if is_weight(path) == weight], weight_decay=decay)
    for weight, decay in ((True, 0.1), (False, 0.0))
  ]
  optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), eps=1e-6)
  for grad in grads:
    for path, p in params.items():
      p.grad = torch.tensor(grad[path])
    optimizer.step()
  for path, p in params.items():
    np.testing.assert_allclose(found[path], p.detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=path)


def test_eps_first_is_fairseqs_adam():
  """fairseq adam.py as RoBERTa runs it: everything decays. Gradients near eps, where it shows."""
  flat = tensors(0)
  grads = [{k: np.float32(1e-6) * g for k, g in grad.items()} for grad in some_grads()]
  fairseq = dict(decay=(('.*', 1.0),), b2=0.98)
  found = train(config('fairseq', **fairseq), flat, grads, stacked=True)
  torchs = train(config('torch', **fairseq), flat, grads, stacked=True)
  for path, start in flat.items():
    p, m, v = start.astype(np.float64), 0.0, 0.0
    for t, grad in enumerate(grads, 1):
      g = grad[path].astype(np.float64)
      m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
      step_size = LR * np.sqrt(1 - 0.98**t) / (1 - 0.9**t)
      p = p - LR * 0.1 * p - step_size * m / (np.sqrt(v) + 1e-6)
    np.testing.assert_allclose(found[path], p, rtol=1e-5, atol=1e-6, err_msg=path)
    assert np.abs(torchs[path] - p).max() > 0.01


def test_adafactor_is_optax_adafactor_on_separate_layers():
  flat, grads = tensors(0), some_grads()
  found = train(config('adafactor', weight_decay=0.0), flat, grads, stacked=True)
  theirs = optax.adafactor(LR, min_dim_size_to_factor=4, clipping_threshold=0.7)
  state, params, update = theirs.init(flat), flat, jax.jit(theirs.update)
  for grad in grads:
    updates, state = update(grad, state, params)
    params = optax.apply_updates(params, updates)
  for path, p in params.items():
    np.testing.assert_allclose(found[path], p, rtol=1e-5, atol=1e-7, err_msg=path)


def one_tensor(row, p, g, **changes):
  """p after one step of a single tensor."""
  everything = (('.*', 1.0),)
  changes = dict(schedule=dict(name='constant', peak=0.1), decay=everything) | changes
  if 'trust_rules' in ROWS[row]:
    changes['trust_rules'] = everything
  return train(config(row, **changes), {'w': np.float32(p)}, [{'w': np.float32(g)}])['w']


@pytest.mark.parametrize('row', [row for row in ROWS if row.startswith('lamb')])
def test_lamb_on_one_tensor(row):
  twos, ones, zeros = np.full(4, 2.0), np.ones(4), np.zeros(4)
  check = dict(b2=0.999, weight_decay=0.0)
  # the ratio cancels the missing correction: ||w|| = 4, u all equal, so w moves by .1 * 4 / 2
  np.testing.assert_allclose(one_tensor(row, twos, ones, **check), np.full(4, 1.8), rtol=1e-5)
  # r is 1 where either norm is 0: a zero tensor still starts, a zero gradient keeps a tensor
  size = 1.0 if 'corrected' in row else 0.1 / np.sqrt(0.001)
  np.testing.assert_allclose(one_tensor(row, zeros, ones, **check), -0.1 * size * ones, rtol=1e-4)
  np.testing.assert_array_equal(one_tensor(row, twos, zeros, **check), np.float32(twos))


def test_without_correction_the_first_step_is_three_times_larger():
  check = dict(b2=0.999, weight_decay=0.0)
  raw, corrected = (one_tensor(row, np.zeros(1), np.ones(1), **check) for row in ('bert', 'torch'))
  np.testing.assert_allclose(raw, [-0.1 * 0.1 / np.sqrt(0.001)], rtol=1e-4)  # 3.16 x lr
  np.testing.assert_allclose(corrected, [-0.1], rtol=1e-4)


def test_clip_holds_the_global_norm_of_what_is_not_frozen():
  flat, grads = tensors(0), some_grads(1)
  raw = config(name='adamw', **ADAM | dict(weight_decay=0.0, b1=0.0, b2=0.0, eps=1.0))
  frozen = ('embeddings/.*', '.*/layers/[01]/.*')
  moving = [p for p in flat if not any(re.fullmatch(f, p) for f in frozen)]
  for path in flat:
    if path not in moving:
      grads[0][path] = np.full_like(grads[0][path], np.nan)  # a frozen gradient is never looked at
  norm = np.sqrt(sum(np.sum(grads[0][p] ** 2) for p in moving))
  for clip, scale in ((0.5 * norm, 0.5), (2 * norm, 1.0), (0.0, 1.0)):
    raw.update(clip=float(clip), freeze=frozen)
    found = train(raw, flat, grads, stacked=True)
    for path in moving:  # b1 = b2 = 0, eps = 1: the direction is g / (|g| + 1)
      g = scale * grads[0][path]
      expected = flat[path] - LR * g / (np.abs(g) + 1)
      np.testing.assert_allclose(found[path], expected, rtol=1e-5, atol=1e-6)


@rows
def test_frozen_layers_stay_bit_for_bit_and_the_rest_moves(row):
  flat = tensors(0)
  flat['encoder/layers/0/norm/scale'][:2] = (-0.0, 0.0)
  frozen = ('embeddings/word', r'.*/layers/[0-1]/.*')
  found = train(config(row, freeze=frozen), flat, some_grads(), stacked=True)
  for path, p in flat.items():
    same = found[path].tobytes() == p.tobytes()
    assert same == any(re.fullmatch(f, path) for f in frozen), path


def test_lr_scale_multiplies_the_step_decay_included():
  flat, grads = tensors(0), some_grads(1)
  half = ((r'.*/layers/1/.*', 0.5), (r'mlm/.*', 2.0), (r'.*', 1.0))
  plain = train(config(), flat, grads, stacked=True)
  scaled = train(config(lr_scale=half), flat, grads, stacked=True)
  for path, p in flat.items():
    factor = 0.5 if '/layers/1/' in path else 2.0 if path.startswith('mlm') else 1.0
    np.testing.assert_allclose(
      scaled[path] - p, factor * (plain[path] - p), rtol=1e-4, atol=1e-6, err_msg=path
    )


def test_the_first_matching_rule_decides_and_every_match_is_logged(caplog):
  absl_logging.set_verbosity('info')
  with caplog.at_level(logging.INFO, logger='absl'):
    make(config(freeze=(r'.*/layers/[02]/dense/bias',)), stack(tensors(0)))
  lines = [record.getMessage() for record in caplog.records]
  key = 'config.optimizer'
  assert lines == [
    f"{key}.decay: '.*norm/(scale|bias)' -> 0: embeddings/norm/scale, "
    'encoder/layers/0-2/norm/scale',
    f"{key}.decay: '.*bias' -> 0: encoder/layers/0-2/dense/bias, mlm/bias",
    f"{key}.decay: '.*' -> 1: embeddings/word, encoder/layers/0-2/dense/kernel",
    f"{key}.lr_scale: '.*' -> 1: every parameter",
    f"{key}.freeze: '.*/layers/[02]/dense/bias' -> 1: encoder/layers/0,2/dense/bias",
    f"{key}.freeze: '.*' -> 0: embeddings/norm/scale, embeddings/word, "
    'encoder/layers/1/dense/bias, encoder/layers/0-2/dense/kernel, '
    'encoder/layers/0-2/norm/scale, mlm/bias',
  ]


@pytest.mark.parametrize(
  'changes, message',
  [
    (dict(name='adam'), r"optimizer.name: expected one of .*, got 'adam'; did you mean 'adamw'"),
    (dict(weight_decai=0.1), "did you mean 'weight_decay'"),
    (dict(eps_first=True), 'eps_first is about the bias correction, which is off'),
    (dict(trust='decayed'), "fields of config.optimizer .adamw.: .*got 'trust'"),
    (dict(decay=WEIGHTS_ONLY[:2]), r'decay covers every parameter but embeddings/word, enc'),
    (dict(decay=((r'.*/layers/[01]/.*', 1.0),)), 'but .*encoder/layers/2/dense/kernel'),
    (dict(freeze=('encoder/layer/0/.*',)), "freeze: 'encoder/layer/0/.*' matches none"),
    (dict(freeze=('.*/layers/3/.*',)), 'matches none of .*layers/0-2'),
    (dict(lr_scale=(('dense/kernel', 0.5), ('.*', 1.0))), 'must match the whole path'),
    (dict(lr_scale=(('.*(', 0.5), ('.*', 1.0))), 'is not a regular expression'),
    (dict(schedule=dict(name='constant')), 'schedule .constant. lacks peak'),
    (dict(row='lamb_decayed', trust='some'), 'trust: expected one of all, decayed, listed'),
    (dict(row='lamb_all', trust_rules=LISTED), "trust_rules are read with .*'listed' only"),
    (dict(row='lamb_listed', trust_rules=()), 'trust_rules covers every parameter but'),
  ],
)
def test_mistakes_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    make(config(**changes), stack(tensors(0)))


def test_a_lacking_field_is_named():
  lacking = config()
  del lacking['b2'], lacking['clip']
  with pytest.raises(ValueError, match=r'config.optimizer .adamw. lacks b2, clip'):
    make(lacking, tensors(0))


def test_a_stack_that_is_not_named_layers_is_refused():
  params = dict(blocks=dict(kernel=np.zeros((3, 4, 4), np.float32)))
  axes = dict(blocks=dict(kernel=('layers', 'embed', 'ffn')))
  with pytest.raises(ValueError, match="blocks/kernel has the logical axes .*component 'layers'"):
    optim.make(config(), params, axes)


def test_phases_that_freeze_or_clip_differently_share_one_state():
  flat = stack(tensors(0))
  init = lambda **changes: make(config(**changes), flat).init(nest(flat))
  plain = init()
  for changes in (dict(clip=1.0), dict(freeze=('.*bias',)), dict(row='fairseq')):
    chex.assert_trees_all_equal_shapes_and_dtypes(plain, init(**changes))


def test_state_is_laid_out_like_the_parameters():
  flat = stack(tensors(0))
  flat['mlm/norm/scale'], flat['norm/scale'] = np.zeros(4, np.float32), np.zeros(4, np.float32)
  params = nest(flat)
  kernel = P(None, 'fsdp', 'tensor')
  specs = {k: P() for k in flat} | {
    'encoder/layers/dense/kernel': kernel, 'embeddings/word': P('tensor', 'fsdp'),
    'mlm/norm/scale': P('fsdp'), 'norm/scale': P('tensor'),
  }  # fmt: skip
  adam = optim.state_specs(make(config(), flat), params, nest(specs))
  moments = adam[2][0]
  assert moments.mu == moments.nu == nest(specs) and moments.count == P()
  chex.assert_trees_all_equal_structs(adam, make(config(), flat).init(params))

  factored = optim.state_specs(make(config('adafactor'), flat), params, nest(specs))[2][0]
  state = factored['encoder']['layers']['dense']['kernel'][0]
  # a kernel of 6 x 5: the row factor keeps the shorter axis, which is sharded over tensor
  assert (state.v_row, state.v_col, state.v) == (P(None, 'tensor'), P(None, 'fsdp'), P())
  assert factored['embeddings']['word'][0].v_row == P('fsdp')
  assert factored['mlm']['norm']['scale'][0].v == P('fsdp')


def test_a_factor_of_a_square_is_replicated_where_its_axis_cannot_be_told():
  square = {'w': np.zeros((6, 6), np.float32)}
  tx = make(config('adafactor', decay=(('.*', 1.0),)), square)
  state = optim.state_specs(tx, square, {'w': P('fsdp', 'tensor')})[2][0]['w'][0]
  assert state.v_row == state.v_col == P()
