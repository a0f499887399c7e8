"""What no published model has of the block, against a plain NumPy layer."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from scipy.special import erf

from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers import positions
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.encoder import pattern

HEADS, WIDTH, LENGTH = 3, 18, 7
EXAMPLE_BT = np.array([[1] * 7, [1] * 3 + [2] * 3 + [0]])
FIELDS = dict(
  heads=HEADS, ffn=10, activation='gelu_erf', norm_eps=0.1, dropout=0.1, attention_dropout=0.1,
  initializer=jax.nn.initializers.normal(0.3), hidden=True,
)  # fmt: skip
CASES = {
  'swiglu': dict(gated=True, activation='silu', norm_place='before', norm='rms_norm'),
  'alibi': {},
}


def norm(x, p, fields):
  if fields.get('norm', 'layer_norm') == 'layer_norm':
    x = x - x.mean(-1, keepdims=True)
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * p['scale'] + p.get('bias', 0)


def attend(x, p, visible_TS, scores_NTS):
  """One row, heads side by side."""
  project = lambda name: np.einsum('td,dnh->nth', x, p[name]['kernel']) + p[name]['bias'][:, None]
  q, k, v = map(project, ('query', 'key', 'value'))
  score = np.einsum('nth,nsh->nts', q, k) / np.sqrt(q.shape[-1]) + scores_NTS
  weight = np.where(visible_TS, np.exp(score), 0)
  weight = weight / np.maximum(weight.sum(-1, keepdims=True), 1e-30)
  y = np.einsum('nts,nsh->tnh', weight, v)
  return np.einsum('tnh,nhd->td', y, p['out']['kernel']) + p['out']['bias']


def feed(x, p, fields):
  dense = lambda name, y: y @ p[f'ffn_{name}']['kernel'] + p[f'ffn_{name}']['bias']
  up = dense('up', x)
  if fields.get('gated'):
    return dense('down', up / (1 + np.exp(-up)) * dense('gate', x))
  return dense('down', up * (1 + erf(up / np.sqrt(2))) / 2)


def summed(x, added, p, fields):
  if fields.get('norm_place') == 'before':
    return x + added(norm(x, p, fields))
  return norm(x + added(x), p, fields)


def layer(case, row, x, p):
  """The layer of a row in NumPy."""
  fields, real, place = CASES[case], EXAMPLE_BT[row], np.arange(LENGTH)
  visible, scores = (real[:, None] == real) & (real > 0), np.zeros((HEADS, LENGTH, LENGTH))
  if case == 'alibi':  # of three heads: two of two heads' slopes, and the first of four heads'
    distance = abs(place[:, None] - place)
    scores = -np.array([2**-4, 2**-8, 2**-2])[:, None, None] * distance
  attended = lambda y: attend(y, p['attention'], visible, scores)
  x = summed(x, attended, p['attention_norm'], fields)
  return summed(x, lambda y: feed(y, p, fields), p['ffn_norm'], fields)


@pytest.mark.parametrize('case', CASES)
@mutation('  if gated:\n', '  if not gated and False:\n', case='swiglu')
@mutation("if self.kind == 'layer_norm':", 'if True:', case='swiglu')
def test_equals_a_plain_layer(case):
  x_BTD = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
  context, no_init = Context(Mask(EXAMPLE_BT, EXAMPLE_BT)), jax.nn.initializers.zeros
  if case == 'alibi':
    bias_NR = positions.bias_table(None, 'alibi', HEADS, LENGTH, no_init)
    context = context._replace(bias_NR=bias_NR)
  block = Block(**FIELDS | CASES[case])
  arguments = (x_BTD, context, None, None, jnp.int32(0))
  params = jax.tree.map(np.asarray, cases.variables(block.init, *arguments, std=0.5)['params'])
  ours, (_, again) = jax.jit(block.apply)({'params': params}, *arguments)
  for row in range(2):
    want, real = layer(case, row, x_BTD[row], params), EXAMPLE_BT[row] > 0
    np.testing.assert_allclose(ours[row][real], want[real], atol=2e-5)
  np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize(
  'kinds, least, expected',
  [
    ([0, 1, 1] * 7 + [0], 1, (1, 3)),
    ([0, 1, 1, 0, 1, 1], 0, (0, 3)),
    ([0], 1, (1, 1)),
    ([0, 0, 0, 0], 1, (1, 1)),
    ([0, 1, 1, 0, 1], 1, (2, 3)),
  ],
)
def test_a_pattern_is_written_as_short_as_it_goes(kinds, least, expected):
  lead, period = pattern(kinds, least)
  assert (len(kinds) - lead) % period == 0 and lead + period == sum(expected)
  again = [*kinds[:lead], *kinds[lead : lead + period] * ((len(kinds) - lead) // period)]
  assert again == kinds
