"""MASS's runs beside those of the original: where they lie, and what both texts have there."""

import dataclasses

import numpy as np
import pytest
from masking import rows_of
from mutation import mutation
from toy_store import MASK, SPECIAL

from bertjax.errors import UserError
from bertjax.examples.noise import mass_runs
from bertjax.examples.noise.mass_runs import Options

RUNS = Options(0.5, 0, 0.2, 0.8, 0.1, False)
CLEAR = dataclasses.replace(RUNS, mask_share=1.0, random_share=0.0)


def made(texts, options):
  """Of each text [CLS] text [SEP], what is read of it, and what the decoder reads, where, for
  which targets."""
  rows, store = rows_of(texts)
  found = mass_runs.corrupt(rows, options, store)
  read, run = found['T'], found['U']
  fields = run.field
  for example, text in enumerate(texts):
    own, mine = (rows.example_n[s.source_m] == example for s in (read, run))
    whole = np.array([SPECIAL['cls'], *text, SPECIAL['sep']])
    yield (
      whole,
      read.token_m[own],
      run.token_m[mine],
      *(fields[name][mine] for name in ('out_position', 'target')),
    )


def check_run(whole, read, given, place, target, hidden):
  """One run: the token before each target is given with its place, and nothing else changes."""
  assert len(target) == hidden and np.all(np.diff(place) == 1)
  np.testing.assert_array_equal(given, whole[place])
  np.testing.assert_array_equal(target, whole[place + 1])
  outside = np.isin(np.arange(len(whole)), place + 1, invert=True)
  np.testing.assert_array_equal(read[outside], whole[outside])


@pytest.mark.parametrize('length', [10, 21, 64])
@mutation('out_position=column_h - 1', 'out_position=column_h')
@mutation('text.token_m[at_h - 1]', 'text.token_m[at_h]')
@mutation('np.rint(np.asarray(tokens) * rate)', 'np.ceil(np.asarray(tokens) * rate)')
def test_a_run_is_that_of_the_original(golden, length):
  original, _ = golden('bart_mass')
  of = lambda name: original[f'mass/{length}/{name}']
  for turn in range(3):  # the original's: [columns, rows]
    at = lambda name, turn=turn: of(f'100000/{turn}/{name}').T
    target = of(f'100000/{turn}/y').reshape(-1, at('x2').shape[0]).T
    hidden = at('x2').shape[1]
    for row in zip(of('x').T, at('x1'), at('x2'), at('pos'), target, strict=True):
      check_run(*row, hidden)
  for whole, read, given, place, target in made([np.arange(5, 3 + length)] * 50, RUNS):
    check_run(whole, read, given, place, target, hidden)
    assert place[0] >= 0 and place[-1] + 1 < length


@mutation('coin_b < options.edges, 0, place_b', 'coin_b < 0, 0, place_b')
def test_runs_lie_at_the_ends_as_often_as_in_the_original(golden):
  theirs = golden('bart_mass')[1]['cases']['mass_position_counts_of_20000']
  count_of, share = 2000, 0.2 + 0.6 / 11
  made_by_us = made([np.arange(5, 24)] * count_of, CLEAR)
  first = np.array([place[0] for _, _, _, place, _ in made_by_us])
  ours = dict(start=(first == 0).sum(), end=(first == 10).sum())
  for name, count in ours.items():
    deviation = (count_of * share * (1 - share)) ** 0.5
    assert abs(count - count_of * share) < 4 * deviation
    # Theirs are of ten times as many.
    assert abs(count - theirs[name] / 10) < 4 * 1.1**0.5 * deviation
  middle = np.bincount(first)[1:10]
  assert ((middle - middle.mean()) ** 2 / middle.mean()).sum() < 26  # 8 degrees, 1 in 1000


@mutation('coin_h >= 1 - options.random_share', 'coin_h >= 1.0')
def test_hidden_tokens_show_what_is_asked_for():
  shown, count = np.zeros(3), 0
  for whole, read, _, place, _ in made([np.arange(5, 405)] * 50, RUNS):
    own, true = read[place + 1], whole[place + 1]
    shown += (own == MASK).sum(), (own == true).sum(), ((own != MASK) & (own != true)).sum()
    count += len(own)
  np.testing.assert_allclose(shown / count, [0.8, 0.1, 0.1], atol=0.012)


def test_blocks_have_a_run_each_and_both_texts_the_sizes_that_are_promised():
  options = dataclasses.replace(CLEAR, block=64, edges=0.0, rate=0.15)
  for n in (1, 62, 63, 64, 130, 200):
    ((whole, read, given, place, target),) = made([np.arange(5, 5 + n)], options)
    np.testing.assert_array_equal(target, whole[place + 1])
    np.testing.assert_array_equal(given, whole[place])
    blocks, count = np.unique(place // 64, return_counts=True)
    assert len(blocks) == -(-(n + 1) // 64) and count.max() <= 10
    assert mass_runs.sizes(options, n) == dict(T=len(read), U=len(target))
    assert mass_runs.sizes(RUNS, n)['U'] >= len(next(made([whole[1:-1]], RUNS))[3])
  with pytest.raises(UserError, match='edges <= 0.5'):
    mass_runs.MASKING.check(dataclasses.replace(RUNS, edges=0.6), None, 64)
