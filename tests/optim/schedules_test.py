"""Every schedule against hand-calculated values and against a plain NumPy loop over its range."""

import math

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax import options
from bertjax.optim import schedules


def make(name, **fields):
  return schedules.make(ConfigDict(dict(name=name, **fields)))


BERT = dict(peak=1e-4, warmup_steps=10_000, total_steps=1_000_000)
GPT = dict(peak=1.0, warmup_steps=20, total_steps=10_000)
NVIDIA = dict(peak=1.0, warmup_steps=2843, total_steps=10_000)
T5 = dict(peak=0.01, warmup_steps=10_000)
XLM = dict(peak=1e-4, warmup_steps=30_000)
WSD = dict(peak=8e-4, warmup_steps=3_000, decay_steps=10_000, total_steps=100_000, end_ratio=0.001)
XLNET = dict(peak=4e-4, warmup_steps=40_000, total_steps=500_000, end_ratio=0.001)


@pytest.mark.parametrize(
  'name, fields, step, expected',
  [
    ('bert_linear', BERT, 0, 0.0),
    ('bert_linear', BERT, 5_000, 5e-5),
    ('bert_linear', BERT, 9_999, 9.999e-5),
    ('bert_linear', BERT, 10_000, 9.9e-5),  # the downward jump
    ('bert_linear', BERT, 999_999, 1e-10),
    ('bert_linear', BERT, 1_000_000, 0.0),
    ('bert_linear', BERT, 2_000_000, 0.0),
    ('product_linear', BERT, 5_000, 4.975e-5),
    ('product_linear', BERT, 10_000, 9.9e-5),
    ('product_linear', GPT, 20, 0.998),  # GPT-1 fine-tuning: warm-up over .002 of the steps
    ('product_linear', GPT, 5_000, 0.5),
    ('linear', BERT, 10_000, 1e-4),
    ('linear', BERT, 505_000, 5e-5),
    ('linear', BERT, 1_000_000, 0.0),
    ('linear', XLNET, 40_000, 4e-4),
    ('linear', XLNET, 500_000, 4e-7),
    ('sqrt_poly', NVIDIA, 2843, math.sqrt(1 - 0.2843)),  # .8460 of the peak
    ('sqrt_poly', NVIDIA, 7500, 0.5),
    ('inverse_sqrt', XLM, 0, 1e-7),
    ('inverse_sqrt', XLM, 30_000, 1e-4),
    ('inverse_sqrt', XLM, 120_000, 5e-5),
    ('rsqrt', T5, 0, 0.01),
    ('rsqrt', T5, 10_000, 0.01),
    ('rsqrt', T5, 40_000, 0.005),
    ('warmup_stable_decay', WSD, 1_500, 4e-4),
    ('warmup_stable_decay', WSD, 3_000, 8e-4),
    ('warmup_stable_decay', WSD, 90_000, 8e-4),
    ('warmup_stable_decay', WSD, 92_500, 4e-4 + 4e-7),  # half of the way after a quarter of it
    ('warmup_stable_decay', WSD, 99_999, 8e-7 + 7.992e-4 * (1 - math.sqrt(0.9999))),
    ('warmup_stable_decay', WSD, 100_000, 8e-7),
    ('warmup_stable_decay', WSD, 200_000, 8e-7),
    ('warmup_stable_decay', WSD | dict(decay_steps=0), 100_000, 8e-4),
    ('constant', dict(peak=1e-3), 12_345, 1e-3),
  ],
)
@mutation(
  'decayed = _left(step, 0, total_steps) ** power',
  'decayed = _left(step, warmup_steps, total_steps) ** power',
)
@mutation('one_minus_sqrt = left / (1 + jnp.sqrt(1 - left))', 'one_minus_sqrt = jnp.sqrt(left)')
@mutation('step / max(warmup_steps, 1)', '(step + 1) / max(warmup_steps, 1)')
def test_values_calculated_by_hand(name, fields, step, expected):
  np.testing.assert_allclose(make(name, **fields)(step), expected, rtol=1e-6)


DECAY = 90  # steps, of 400


def reference(name, t, peak, warmup, total):
  """The original programs, one step at a time, in float64."""
  if name == 'rsqrt':
    return peak * math.sqrt(warmup) / math.sqrt(max(t, warmup))
  if name == 'product_linear':
    return peak * (1 - t / total) * min(1.0, t / warmup)
  if name == 'inverse_sqrt':
    if t < warmup:
      return 1e-7 + t * (peak - 1e-7) / warmup
    return peak * warmup**0.5 * t**-0.5
  if t < warmup:
    return peak * t / warmup
  if name == 'warmup_stable_decay':  # Hägele et al. 2024: n of N steps, the last N_decay of them
    if t <= total - DECAY:
      return peak
    return peak * (0.1 + 0.9 * (1 - math.sqrt((t - (total - DECAY)) / DECAY)))
  if name == 'slanted_triangular':
    first = total // 10
    share = t / first if t <= first else (total - t) / (total - first)
    return peak * (1 + 31 * share) / 32
  after = (t - warmup) / (total - warmup)
  return {
    'bert_linear': peak * (1 - t / total),
    'sqrt_poly': peak * (1 - t / total) ** 0.5,
    'linear': (peak - 0.1 * peak) * (1 - after) ** 2 + 0.1 * peak,
    'cosine': peak * (0.9 * 0.5 * (1 + math.cos(math.pi * after)) + 0.1),
    'cosine_absolute': peak * 0.5 * (1 + math.cos(math.pi * t / total)),
    'constant': peak,
  }[name]


MORE = dict(
  linear=dict(end_ratio=0.1, power=2.0), cosine=dict(end_ratio=0.1),
  warmup_stable_decay=dict(end_ratio=0.1),
)  # fmt: skip
DIVIDE_BY_WARMUP = ('product_linear', 'inverse_sqrt', 'rsqrt')  # the originals cannot do without


def fields_for(name, **values):
  """The values that the shape takes."""
  known = options.fields_of(schedules.SHAPES[name])
  return {k: v for k, v in values.items() if k in known}


@pytest.mark.parametrize('warmup', [0, 1, 40])
@pytest.mark.parametrize('name', sorted(schedules.SHAPES))
def test_whole_range_against_numpy(name, warmup):
  given = dict(peak=3e-4, warmup_steps=warmup, decay_steps=DECAY, total_steps=400)
  fields = fields_for(name, **given) | MORE.get(name, {})
  steps = np.arange(401)
  if warmup == 0 and name in DIVIDE_BY_WARMUP:
    assert make(name, **fields)(0) == np.float32(3e-4)  # the peak at once, and no division by 0
    return
  found = jax.vmap(make(name, **fields))(steps)
  warmup = fields.get('warmup_steps', 0)
  expected = [reference(name, t, 3e-4, warmup, 400) for t in steps]
  np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7 * 3e-4)


@mutation(
  '_left(step, first, total_steps))\n  return peak * (1 + share',
  '1 - (step - first) / (first * (cut - 1)))\n  return peak * (1 + share',
)
def test_slanted_triangles_are_those_of_fastai(shared):
  golden = np.load(shared / 'golden' / 'family' / 'ulmfit_schedules.npz')
  cases = [name for name in golden.files if name.startswith('clr/')]
  for name in cases:
    ratio, cut, total = map(int, name.removeprefix('clr/').split('_'))
    fields = dict(peak=1.0, ratio=float(ratio), cut=cut, total_steps=total)
    found = jax.vmap(make('slanted_triangular', **fields))(np.arange(total))
    np.testing.assert_allclose(found, golden[name][:total], rtol=2e-6, err_msg=name)
  paper = golden['stlr_paper/100']
  fields = dict(peak=0.01, total_steps=100)
  np.testing.assert_allclose(
    jax.vmap(make('slanted_triangular', **fields))(np.arange(101)), paper, rtol=2e-6
  )


@pytest.mark.parametrize(
  'fields, message',
  [
    (dict(name='bert_liner', **BERT), "did you mean 'bert_linear'"),
    (dict(name='linear', **BERT, end_ration=0.1), "did you mean 'end_ratio'"),
    (dict(name='linear', peak=1.0), 'lacks warmup_steps, total_steps'),
    (BERT, 'lacks name'),
    (dict(name='linear', peak=1.0, warmup_steps=11, total_steps=10), 'got 11 and 10'),
    (dict(name='rsqrt', peak=1.0, warmup_steps=-1), 'got -1'),
    (dict(name='warmup_stable_decay', **WSD | dict(decay_steps=-1)), 'decay_steps: .* got -1'),
    (dict(name='warmup_stable_decay', **WSD | dict(end_ratio=1.5)), 'end_ratio: .* got 1.5'),
    (
      dict(name='warmup_stable_decay', **WSD | dict(decay_steps=97_001)),
      r'warmup_steps . decay_steps <= total_steps, got 3000 . 97001 and 100000',
    ),
    (dict(name='linear', **BERT, decay_steps=9), "got 'decay_steps'"),
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    schedules.make(ConfigDict(fields))
