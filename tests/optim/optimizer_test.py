"""Optimizers against NumPy, PyTorch and optax; every rule on stacks against separate layers."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P
from mutation import mutation
from optimizer_cases import (
  LR,
  ROWS,
  WEIGHTS_ONLY,
  check_ends,
  config,
  flatten,
  is_weight,
  make,
  nest,
  some_grads,
  stack,
  tensors,
  train,
)
from slow_imports import torch
from tiers import in_tiers

from bertjax.optim import optimizer

MODES = ('torch', 'fairseq', 'openai', 'lamb_corrected', 'stable')  # of what a row of its own has
ADAMS = ('bert', 'torch', 'fairseq', 'openai')
in_both_tiers = pytest.mark.parametrize('row', in_tiers(ROWS, MODES))


def numpy_adam(p, grads, corrected, decay, ratio, row, b1=0.9, b2=0.99, eps=1e-6):
  """AdamW and LAMB of one tensor in float64; 'fairseq' is adam.py of that, as RoBERTa runs it."""
  p, m, v = p.astype(np.float64), 0.0, 0.0
  for t, g in enumerate(grads, 1):
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g.astype(np.float64) ** 2
    c1, c2 = (1 - b1**t, 1 - b2**t) if corrected else (1, 1)
    late, early = (0, eps) if row in ('fairseq', 'openai') else (eps, 0)
    u = m / c1 / ((np.sqrt(v) + early) / np.sqrt(c2) + late)
    u = u + decay * p * (np.sqrt(c2) / c1 if row == 'openai' else 1.0)
    norms = np.linalg.norm(p), np.linalg.norm(u)
    p = p - LR * u * (norms[0] / norms[1] if ratio and all(norms) else 1.0)
  return p


def numpy_adafactor(p, grads, decay, least=4):
  """Shazeer and Stern 2018, algorithms 4 and 5, of one tensor in float64."""
  rms = lambda x: np.sqrt(np.mean(x**2))
  p, row, col, v = p.astype(np.float64), 0.0, 0.0, 0.0
  for t, g in enumerate(grads, 1):
    beta, square = 1 - t**-0.8, g.astype(np.float64) ** 2 + 1e-30
    if p.ndim == 2 and min(p.shape) >= least:
      row = beta * row + (1 - beta) * square.mean(1)
      col = beta * col + (1 - beta) * square.mean(0)
      v = np.outer(row, col) / row.mean()
    else:
      v = beta * v + (1 - beta) * square
    u = g / np.sqrt(v)
    u = u / max(1.0, rms(u) / 0.7) * max(1e-3, rms(p))
    p = p - LR * (u + decay * p)
  return p


def newton_schulz(g):
  """Jordan et al. 2024: five steps of a quintic polynomial, of one matrix in float64."""
  x = g / np.linalg.norm(g)
  for _ in range(5):
    square = x @ x.T
    x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
  return x


def numpy_muon(p, grads, decay, beta=0.9):
  """Muon of one matrix, inputs x outputs, with Nesterov moments corrected as in Dozat 2016."""
  p, m = p.astype(np.float64), 0.0
  for t, g in enumerate(grads, 1):
    m = beta * m + (1 - beta) * g.astype(np.float64)
    ahead = beta * m / (1 - beta ** (t + 1)) + (1 - beta) * g / (1 - beta**t)
    u = newton_schulz(ahead) * np.sqrt(max(1, p.shape[1] / p.shape[0]))
    p = p - LR * (u + decay * p)
  return p


def reference(row, path, p, grads):
  decay = 0.1 if is_weight(path) else 0.0
  if row == 'adafactor':
    return numpy_adafactor(p, grads, decay)
  if row == 'muon' and path.endswith('kernel'):
    return numpy_muon(p, grads, decay)
  trusted = row.startswith('lamb') and is_weight(path)
  corrected = row in ('torch', 'fairseq', 'openai', 'lamb_corrected', 'muon')
  return numpy_adam(p, grads, corrected, decay, trusted, row)


@pytest.mark.parametrize('row', sorted({*ROWS} - {'stable'}))  # which optimi has
@mutation('/ (1 - b1**count) if corrected else 1.0', '/ (1 - b1**count)')
@mutation('self.is_stack, *trees', 'jax.tree.map(lambda s: False, self.is_stack), *trees')
@mutation(
  'lambda v: v != 0', 'lambda v: v == v', file='bertjax/optim/directions/lamb.py', case='lamb'
)
@mutation('decayed, changed, updates), state', 'decayed, updates, changed), state', case='lamb')
@mutation('    optax.clip_by_block_rms(clip_rms),\n', '', case='adafactor')
@mutation('beta=momentum', 'beta=0.0', case='muon')
@mutation('tuple(range(first, cut))', 'tuple(range(cut))', case='muon')
def test_against_numpy(row):
  flat, grads = tensors(0), some_grads(6)
  size = 1e-6 if row in ADAMS else 1.0  # near eps, where its place shows
  for i, grad in enumerate(grads):  # up and down, so that clips by the second moment bite
    grad.update({path: np.float32(size * 3 ** (i % 4)) * g for path, g in grad.items()})
  found = train(config(row), flat, grads, stacked=True)
  for path, p in flat.items():
    expected = reference(row, path, p, [g[path] for g in grads])
    np.testing.assert_allclose(found[path], expected, rtol=1e-5, atol=1e-6, err_msg=path)


@in_both_tiers
@jax.enable_x64(True)  # sums of other lengths: float32 would differ by their rounding
def test_stacked_equals_unstacked_under_every_rule(row):
  """Layers of very different sizes, so that whatever mixes them shows."""
  flat, grads = jax.tree.map(np.float64, (tensors(0, growth=10.0), some_grads(growth=30.0)))
  every_rule = dict(
    decay=((r'.*/layers/2/.*', 3.0), *WEIGHTS_ONLY),
    lr_scale=((r'.*/layers/0/.*', 0.25), (r'.*/layers/1/.*', 0.5), (r'.*', 1.0)),
    freeze=(r'.*/layers/1/norm/.*',),
    clip=1.0,
  )
  apart = train(config(row, **every_rule), flat, grads)
  stacked = train(config(row, **every_rule), flat, grads, stacked=True)
  for path in flat:
    np.testing.assert_allclose(stacked[path], apart[path], rtol=1e-9, err_msg=path)


@in_both_tiers
def test_converges_and_does_not_retrace(row):
  flat = tensors(0)
  target = nest(stack(tensors(1)))
  tx = make(config(row, weight_decay=0.0, clip=1.0), stack(flat))
  loss = lambda p: optax.tree.norm(jax.tree.map(jnp.subtract, p, target), squared=True)
  chex.clear_trace_counter()

  @jax.jit
  @chex.assert_max_traces(n=1)
  def step(params, state):
    updates, state = tx.update(jax.grad(loss)(params), state, params, rate=LR)
    return optax.apply_updates(params, updates), state

  params, first = nest(stack(flat)), loss(nest(stack(flat)))
  state = tx.init(params)
  for _ in range(200):
    params, state = step(params, state)
  assert loss(params) < 0.05 * first


@pytest.mark.parametrize('decoupled', [False, True])
@mutation('update / jnp.maximum(1.0, rms)', 'update / rms')
@mutation('optax.tree.bias_correction(state[0].nu, b2, state[0].count)', 'state[0].nu')
@mutation('leaves.map_tensors', '__import__("jax").tree.map')
def test_stable_adamw_is_optimis(decoupled):
  """torch-optimi, whose author trained ModernBERT; decoupled as there, the rate below its peak."""
  optimi = pytest.importorskip('optimi', reason='torch-optimi is in requirements-test.txt')
  flat, grads, peak = tensors(0), some_grads(8, growth=30.0), 2 * LR
  for i, grad in enumerate(grads):
    grad.update({path: np.float32(10 ** (i % 3)) * g for path, g in grad.items()})
  decay = 0.1 / peak if decoupled else 0.1
  found = train(config('stable', b2=0.98, weight_decay=decay), flat, grads, stacked=True)
  params = {path: torch.nn.Parameter(torch.tensor(p)) for path, p in flat.items()}
  groups = [
    dict(params=[p for path, p in params.items() if is_weight(path) == weight], weight_decay=decay)
    for weight, decay in ((True, 0.1), (False, 0.0))
  ]
  with warnings.catch_warnings(action='ignore'):  # of a decay that is large if decoupled
    theirs = optimi.StableAdamW(
      groups, LR, (0.9, 0.98), eps=1e-6, decouple_lr=decoupled,
      max_lr=peak if decoupled else None, triton=False,
    )  # fmt: skip
  check_ends(theirs, params, grads, found)


@pytest.mark.parametrize('heads, least', [((2, 3), 4), ((5, 7), 50)], ids=str)
@mutation('joined if any(large) else shape', 'shape', case='(2, 3)-4')
def test_adafactor_takes_projections_as_the_matrices_that_multiply(heads, least):
  """t5x, examples/t5/layers.py: queries are D x NH, outputs NH x D, biases of NH; a stack of 3."""
  inner, both = heads[0] * heads[1], ('heads', 'head')
  axes = {
    'layers/query': ('layers', 'embed', *both), 'layers/out': ('layers', *both, 'embed'),
    'bias': both,
  }  # fmt: skip
  whole = {'layers/query': (3, 6, inner), 'layers/out': (3, inner, 6), 'bias': (inner,)}
  sizes = dict(layers=3, embed=6, heads=heads[0], head=heads[1])
  split = lambda tree: nest({k: x.reshape([sizes[a] for a in axes[k]]) for k, x in tree.items()})
  rng = np.random.default_rng(0)
  start, *grads = (
    {k: rng.normal(size=s).astype(np.float32) for k, s in whole.items()} for _ in range(4)
  )
  given = config('adafactor', decay=(('.*', 1.0),), min_factored=least)
  params, tx = split(start), optimizer.make(given, split(start), nest(axes))[0]
  state, update = tx.init(params), jax.jit(tx.update)
  for grad in grads:
    updates, state = update(split(grad), state, params, rate=LR)
    params = optax.apply_updates(params, updates)
  for name, found in flatten(params).items():
    stacked = np.stack([start[name], *(grad[name] for grad in grads)], 1)
    tensors_of = stacked if name != 'bias' else [stacked.T]
    expected = [numpy_adafactor(p, gs, 0.1, least) for p, *gs in tensors_of]
    np.testing.assert_allclose(found.ravel(), np.ravel(expected), rtol=1e-5, atol=1e-6)


def one_tensor(row, p, g, **changes):
  """p after one step of a single tensor."""
  everything = (('.*', 1.0),)
  changes = dict(schedule=dict(name='constant', peak=0.1), decay=everything) | changes
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


def test_phases_that_freeze_or_clip_differently_share_one_state():
  flat = stack(tensors(0))
  init = lambda **changes: make(config(**changes), flat).init(nest(flat))
  plain = init()
  for changes in (dict(clip=1.0), dict(freeze=('.*bias',)), dict(row='stable')):
    chex.assert_trees_all_equal_shapes_and_dtypes(plain, init(**changes))


@mutation("and not fields['weight_decay'] and not fields['average']", '')
@mutation('eps=0.0), leaves.add_decay(weight_decay)', 'eps=0.0), leaves.add_decay(0.1)')
def test_what_is_called_sparse_leaves_entries_without_a_gradient_as_they_are():
  adagrad = dict(name='adagrad', accumulator=1.0)
  cases = [dict(row=row, weight_decay=0.0) for row in ROWS]
  cases += [adagrad, adagrad | dict(weight_decay=0.1), adagrad | dict(average=5)]
  flat, called = stack(tensors(0)), []
  ends = lambda leaf: np.asarray(leaf)[:2] if np.ndim(leaf) else leaf
  same = lambda x, y: np.array_equal(ends(x), ends(y))
  for given in cases:
    chosen = config(**dict(row='') | given | dict(clip=1.0))
    tx, params = make(chosen, flat), nest(flat)
    update = jax.jit(lambda grads, state, params, tx=tx: tx.update(grads, state, params, rate=LR))
    updates, state = update(nest(stack(some_grads(1)[0])), tx.init(params), params)
    half = jax.tree.map(lambda x: np.where(np.arange(len(x)) < 2, 0, x.T).T, params)
    updates, later = update(half, state, params)
    still = not any(np.any(ends(leaf)) for leaf in jax.tree.leaves(updates))
    still &= jax.tree.all(jax.tree.map(same, state, later))
    assert still or not optimizer.sparse(chosen), given
    called.append(optimizer.sparse(chosen))
  assert called == [False] * len(ROWS) + [True, False, False]


def test_state_is_laid_out_like_the_parameters():
  flat = stack(tensors(0))
  flat['mlm/norm/scale'], flat['norm/scale'] = np.zeros(4, np.float32), np.zeros(4, np.float32)
  params = nest(flat)
  kernel = P(None, 'fsdp', 'tensor')
  specs = {k: P() for k in flat} | {
    'encoder/layers/dense/kernel': kernel, 'embeddings/word': P('tensor', 'fsdp'),
    'mlm/norm/scale': P('fsdp'), 'norm/scale': P('tensor'),
  }  # fmt: skip
  adam = optimizer.state_specs(make(config(), flat), params, nest(specs))
  moments = adam[2][0]
  assert moments.mu == moments.nu == nest(specs) and moments.count == P()
  chex.assert_trees_all_equal_structs(adam, make(config(), flat).init(params))

  factored = optimizer.state_specs(make(config('adafactor'), flat), params, nest(specs))[2][0]
  state = factored['encoder']['layers']['dense']['kernel'][0]
  # a kernel of 6 x 5: the row factor keeps the shorter axis, which is sharded over tensor
  assert (state.v_row, state.v_col, state.v) == (P(None, 'tensor'), P(None, 'fsdp'), P())
  assert factored['embeddings']['word'][0].v_row == P('fsdp')
  assert factored['mlm']['norm']['scale'][0].v == P('fsdp')
