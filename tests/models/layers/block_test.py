"""The block against a plain NumPy layer, option by option."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation
from scipy.special import erf

from bertjax.kernels.relative_attention import Mask
from bertjax.models.layers import attention, positions
from bertjax.models.layers.block import Block, Context
from bertjax.models.layers.encoder import pattern

HEADS, WIDTH, LENGTH = 3, 18, 7
EXAMPLE_BT = np.array([[1] * 7, [1] * 3 + [2] * 3 + [0]])
POSITION_BT = np.array([[*range(7)], [0, 1, 2, 0, 1, 2, 0]])
FIELDS = dict(
  heads=HEADS, ffn=10, activation='gelu_erf', norm_eps=0.1, dropout=0.1, attention_dropout=0.1,
  initializer=jax.nn.initializers.normal(0.3), hidden=True,
)  # fmt: skip
CASES = {
  'after': {},
  'before': dict(norm_place='before'),
  'none': dict(norm_place='none'),
  'rms': dict(norm='rms_norm', norm_bias=False),
  'geglu': dict(gated=True, ffn_bias=False),
  'swiglu': dict(gated=True, activation='silu', norm_place='before', norm='rms_norm'),
  'no biases': dict(attention_bias=False, ffn_bias=False, norm_bias=False),
  'nested': dict(nested=True, activation='relu'),
  'wide heads': dict(head_size=4),
  'rotary': {},
  'alibi': {},
  'buckets': {},
  'window': {},
  'cross': dict(cross=True),
  'enters': dict(norm_place='before', enters=True),
}


def norm(x, p, fields):
  if fields.get('norm', 'layer_norm') == 'layer_norm':
    x = x - x.mean(-1, keepdims=True)
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * p['scale'] + p.get('bias', 0)


def attend(x, seen, p, visible_TS, scores_NTS, turn):
  """One row, heads side by side."""
  project = lambda name, y: (
    np.einsum('td,dnh->nth', y, p[name]['kernel'])
    + (p[name]['bias'][:, None] if 'bias' in p[name] else 0)
  )
  q, k, v = project('query', x), project('key', seen), project('value', seen)
  if turn is not None:  # each pair of a head is a complex number
    half = q.shape[-1] // 2
    turned = lambda y: (y[..., :half] + 1j * y[..., half:]) * np.exp(1j * turn)
    q, k = (np.concatenate([z.real, z.imag], -1) for z in map(turned, (q, k)))
  score = np.einsum('nth,nsh->nts', q, k) / np.sqrt(q.shape[-1]) + scores_NTS
  weight = np.where(visible_TS, np.exp(score), 0)
  weight = weight / np.maximum(weight.sum(-1, keepdims=True), 1e-30)
  y = np.einsum('nts,nsh->tnh', weight, v)
  return np.einsum('tnh,nhd->td', y, p['out']['kernel']) + p['out'].get('bias', 0)


def feed(x, p, fields):
  act = dict(
    gelu_erf=lambda y: y * (1 + erf(y / np.sqrt(2))) / 2,
    silu=lambda y: y / (1 + np.exp(-y)),
    relu=lambda y: np.maximum(y, 0),
  )[fields.get('activation', 'gelu_erf')]
  part = lambda name: p['ffn'][name] if fields.get('nested') else p[f'ffn_{name}']
  dense = lambda name, y: y @ part(name)['kernel'] + part(name).get('bias', 0)
  inner = act(dense('up', x))
  return dense('down', inner * dense('gate', x) if fields.get('gated') else inner)


def summed(x, added, p, fields):
  place = fields.get('norm_place', 'after')
  if place == 'none' or p is None:
    return x + added(x)
  return x + added(norm(x, p, fields)) if place == 'before' else norm(x + added(x), p, fields)


def layer(case, row, x, other, p, table):
  """The layer of a row in NumPy; other is what cross-attention sees."""
  fields, real = CASES[case], EXAMPLE_BT[row]
  visible = (real[:, None] == real) & (real > 0)
  place = np.arange(LENGTH)
  distance = place[:, None] - place
  scores, turn = np.zeros((HEADS, LENGTH, LENGTH)), None
  if case == 'window':
    visible = visible & (abs(distance) <= 1)
  if case == 'alibi':  # of three heads: two of two heads' slopes, and the first of four heads'
    scores = -np.array([2**-4, 2**-8, 2**-2])[:, None, None] * abs(distance)
  if case == 'buckets':  # near distances have a bucket each, later keys the upper half
    scores = table[np.where(distance < 0, 16, 0) + abs(distance)].transpose(2, 0, 1)
  if case == 'rotary':
    turn = POSITION_BT[row][:, None] * 100.0 ** (-np.arange(3) / 3)
  first = p.get('attention_norm')
  if case == 'enters':
    x, first = norm(x, first, fields), None
  x = summed(x, lambda y: attend(y, y, p['attention'], visible, scores, turn), first, fields)
  if case == 'cross':
    seen = np.broadcast_to((real > 0)[:, None], (LENGTH, len(other)))
    crossed = lambda y: attend(y, other, p['cross_attention'], seen, 0, None)
    x = summed(x, crossed, p['cross_attention_norm'], fields)
  return summed(x, lambda y: feed(y, p, fields), p.get('ffn_norm'), fields)


@pytest.mark.parametrize('case', CASES)
@mutation('  if gated:\n', '  if not gated and False:\n', case='geglu')
@mutation("if self.kind == 'layer_norm':", 'if True:', case='rms')
@mutation(
  'first, second = jnp.split(x_BTNH.astype(jnp.float32), 2, -1)',
  'x = x_BTNH.astype(jnp.float32)\n  first, second = x[..., ::2], x[..., 1::2]',
  case='rotary',
)
@mutation(
  '(BUCKETS, heads), init)[bucket_R].T', '(BUCKETS, heads), init)[bucket_R[::-1]].T', case='buckets'
)
def test_equals_a_plain_layer(case):
  rng = np.random.default_rng(0)
  x_BTD, other_BSD = rng.normal(size=(2, 2, LENGTH, WIDTH)).astype(np.float32)
  other_BSD = other_BSD[:, :5] if case == 'cross' else other_BSD
  mask = Mask(EXAMPLE_BT, EXAMPLE_BT, window=2 if case == 'window' else None)
  context, table = Context(mask), rng.normal(size=(32, HEADS)).astype(np.float32)
  if case == 'rotary':
    context = context._replace(rotary=attention.rotary(jnp.asarray(POSITION_BT), 6, 100.0))
  if case in ('alibi', 'buckets'):
    context = context._replace(bias_NR=bias(case, table))
  if case == 'cross':
    real = (EXAMPLE_BT > 0).astype(int)
    context = context._replace(other_BSD=other_BSD, other_mask=Mask(real, np.ones((2, 5), int)))
  block = Block(**FIELDS | CASES[case])
  arguments = (x_BTD, context, None, None, jnp.int32(0))
  shapes = meta.unbox(jax.eval_shape(block.init, jax.random.key(0), *arguments))['params']
  params = cases.random_params(shapes, 0.5)
  ours, (_, again) = jax.jit(block.apply)({'params': params}, *arguments)
  for row in range(2):
    want = layer(case, row, x_BTD[row], other_BSD[row], params, table)
    real = EXAMPLE_BT[row] > 0
    np.testing.assert_allclose(ours[row][real], want[real], atol=2e-5)
  np.testing.assert_array_equal(ours, again)


def bias(kind: str, table):
  """`bias_table` with a table that is given."""
  import flax.linen as nn

  class Holder(nn.Module):
    @nn.compact
    def __call__(self):
      return positions.bias_table(self, kind, HEADS, LENGTH, jax.nn.initializers.zeros)

  return Holder().apply({'params': dict(buckets=table)} if kind == 'buckets' else {})


@pytest.mark.parametrize(
  'kinds, least, expected',
  [
    ([0, 1, 1] * 7 + [0], 1, (1, 3)),
    ([0, 1, 1] * 9 + [0], 1, (1, 3)),
    ([0, 1, 1] * 7 + [0], 0, (1, 3)),
    ([0, 1, 1, 0, 1, 1], 0, (0, 3)),
    ([0, 1], 1, (1, 1)),
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
