"""Decay, freeze, lr_scale and clip: which tensors they reach, what is logged, what is refused."""

import logging
import re

import numpy as np
import optimizer_cases
import pytest
from mutation import mutation
from optimizer_cases import ADAM, LR, WEIGHTS_ONLY, config, make, some_grads, stack, tensors, train

from bertjax.optim import optimizer


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


@mutation('a == 1.0, chosen, rest', 'a == 1.0, 1.0, rest')
def test_what_is_clipped_apart_has_a_norm_of_its_own():
  flat, grads = tensors(0), some_grads(1)
  raw = config(name='adamw', **ADAM | dict(weight_decay=0.0, b1=0.0, b2=0.0, eps=1.0))
  apart = ('embeddings/.*', '.*/layers/1/.*')
  groups = [[p for p in flat if any(re.fullmatch(a, p) for a in apart) == one] for one in (0, 1)]
  norms = [np.sqrt(sum(np.sum(grads[0][p] ** 2) for p in group)) for group in groups]
  raw.update(clip=float(0.5 * min(norms)), clip_apart=apart)
  found = train(raw, flat, grads, stacked=True)
  for group, norm in zip(groups, norms, strict=True):
    for path in group:
      g = grads[0][path] * (0.5 * min(norms) / norm)
      expected = flat[path] - LR * g / (np.abs(g) + 1)
      np.testing.assert_allclose(found[path], expected, rtol=1e-5, atol=1e-6)


def test_clipping_apart_without_a_clip_is_refused():
  with pytest.raises(
    ValueError, match='clip_apart=.*expected config.optimizer.clip above 0, got 0.0'
  ):
    make(config('bert', clip=0.0, clip_apart=('embeddings/.*',)), stack(tensors(0)))


@pytest.mark.parametrize('row', ['bert', 'lamb', 'adafactor'])
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


def test_every_match_is_logged_with_the_layers_that_it_takes(caplog):
  with caplog.at_level(logging.INFO):
    make(config(freeze=(r'.*/layers/[02]/dense/bias',)), stack(tensors(0)))
  said = [record.getMessage() for record in caplog.records]
  freeze = 'config.optimizer.freeze: '
  assert "config.optimizer.lr_scale: '.*' -> 1: every parameter" in said
  assert f"{freeze}'.*/layers/[02]/dense/bias' -> 1: encoder/layers/0,2/dense/bias" in said
  assert said[-1].startswith(f"{freeze}'.*' -> 0: ") and 'layers/1/dense/bias, ' in said[-1]


@pytest.mark.parametrize(
  'changes, message',
  [
    (dict(name='adam'), r"optimizer.name: expected one of .*, got 'adam'; did you mean 'adamw'"),
    (dict(weight_decai=0.1), "did you mean 'weight_decay'"),
    (dict(eps_first=True), 'eps_first is about the bias correction, which is off'),
    (dict(trust='all'), r'config.optimizer.trust was removed in 0.2, remove it: the ratio'),
    (dict(decay=WEIGHTS_ONLY[:2]), r'decay covers every parameter but embeddings/word, enc'),
    (dict(decay=((r'.*/layers/[01]/.*', 1.0),)), 'but .*encoder/layers/2/dense/kernel'),
    (dict(freeze=('encoder/layer/0/.*',)), "freeze: 'encoder/layer/0/.*' matches none"),
    (dict(freeze=('.*/layers/3/.*',)), 'matches none of .*layers/0-2'),
    (dict(freeze=('encoder/layers/1',)), 'must match the whole path'),
    (dict(lr_scale=(('.*(', 0.5), ('.*', 1.0))), 'is not a regular expression'),
    (dict(schedule=dict(name='constant')), 'schedule .constant. lacks peak'),
  ],
)
@mutation('re.fullmatch', 're.match', file='bertjax/optim/param_rules.py')
def test_mistakes_are_named(changes, message):
  with pytest.raises(ValueError, match=message):
    make(config(**changes), stack(tensors(0)))


@mutation(
  'new = {path: left.pop(path) for path in matched if path in left}',
  'new = {path: (left.pop(path, 0), sizes[path])[1] for path in matched}',
)
def test_what_each_rule_decides_can_be_shown():
  given, params = config(freeze=('embeddings/.*',)), tensors(0)
  axes = optimizer_cases.axes_of(params)
  shown = optimizer.describe(given, optimizer_cases.nest(params), axes).splitlines()
  sizes = {path: array.size for path, array in params.items()}
  count = lambda *parts: sum(n for path, n in sizes.items() if any(p in path for p in parts))
  norms, total = count('norm/'), sum(sizes.values())
  biases = count('bias')
  rest = total - norms - biases
  assert shown[0] == 'config.optimizer.decay'
  assert [line.split()[:4] for line in shown[1:4]] == [
    ['.*norm/(scale|bias)', '->', '0', f'{norms:,}'],
    ['.*bias', '->', '0', f'{biases:,}'],
    ['.*', '->', '1', f'{rest:,}'],
  ]
  assert shown[4] == f'config.optimizer.lr_scale: 1 for all {total:,} parameters'
  frozen = count('embeddings/')
  assert shown[6].split()[:4] == ['embeddings/.*', '->', '1', f'{frozen:,}']
  assert shown[6].endswith('embeddings/norm/scale, embeddings/word')
  assert shown[7].split()[:4] == ['.*', '->', '0', f'{total - frozen:,}'] and len(shown) == 8
