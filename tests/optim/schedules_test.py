"""Every schedule against hand-calculated values and against a plain NumPy loop over its range."""

import math

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from mutation import mutation

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
    ('bert_linear', BERT, 10_000, 9.9e-5),  # the downward jump
    ('bert_linear', BERT, 1_000_000, 0.0),
    ('bert_linear', BERT, 2_000_000, 0.0),
    ('product_linear', BERT, 5_000, 4.975e-5),
    ('product_linear', GPT, 20, 0.998),  # GPT-1 fine-tuning: warm-up over .002 of the steps
    ('linear', BERT, 10_000, 1e-4),
    ('linear', BERT, 505_000, 5e-5),
    ('linear', XLNET, 500_000, 4e-7),
    ('sqrt_poly', NVIDIA, 2843, math.sqrt(1 - 0.2843)),  # .8460 of the peak
    ('inverse_sqrt', XLM, 0, 1e-7),
    ('inverse_sqrt', XLM, 30_000, 1e-4),
    ('inverse_sqrt', XLM, 120_000, 5e-5),
    ('rsqrt', T5, 0, 0.01),
    ('rsqrt', T5, 10_000, 0.01),
    ('rsqrt', T5, 40_000, 0.005),
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
@mutation('decayed = _left(step, 0, total_steps', 'decayed = _left(step, warmup_steps, total_steps')
@mutation('one_minus_sqrt = left / (1 + jnp.sqrt(1 - left))', 'one_minus_sqrt = jnp.sqrt(left)')
@mutation('step / max(warmup_steps, 1)', '(step + 1) / max(warmup_steps, 1)')
def test_values_calculated_by_hand(name, fields, step, expected):
  np.testing.assert_allclose(make(name, **fields)(step), expected, rtol=1e-6)


@mutation('_left(step, first, total_steps)', '1 - (step - first) / (first * (cut - 1))')
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
  ],
)
def test_mistakes_are_named(fields, message):
  with pytest.raises(ValueError, match=message):
    schedules.make(ConfigDict(fields))
