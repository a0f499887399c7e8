"""Counter-based draws: uniform, unrelated across keys, sites and positions, and pure."""

import numpy as np
import pytest

from bertjax import counter_rng

N = 1 << 16


def chi_square(value_n, bins):
  """Returns the normalised chi-square statistic of uniform counts: about N(0, 1) where uniform."""
  count = np.bincount(value_n, minlength=bins)
  expected = len(value_n) / bins
  return (((count - expected) ** 2 / expected).sum() - (bins - 1)) / np.sqrt(2 * (bins - 1))


@pytest.fixture(scope='module', params=['positions', 'examples', 'epochs', 'seeds'])
def stream(request):
  """(name, uint64 [N]) of a sequence that neighbouring batches, rows or sites would draw; of seeds,
  each of which costs a hash, an eighth as many."""
  fold, key = counter_rng.fold, counter_rng.root(0, 'test')
  drawn = dict(
    positions=lambda: fold(key, np.arange(N)),
    examples=lambda: fold(fold(key, np.arange(N)), 5),
    epochs=lambda: fold(fold(fold(key, np.arange(N)), 7), 3),
    seeds=lambda: fold(
      fold(np.concatenate([counter_rng.root(seed, 'test') for seed in range(N // 8)]), 0), 0
    ),
  )
  return request.param, drawn[request.param]()


def test_uniform_in_every_bit_and_byte(stream):
  name, bits = stream
  ones = np.array([(bits >> np.uint64(shift) & np.uint64(1)).mean() for shift in range(64)])
  assert abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits)), name
  for shift in range(0, 64, 8):
    assert abs(chi_square((bits >> np.uint64(shift) & np.uint64(255)).astype(int), 256)) < 5
  assert len(np.unique(bits)) == len(bits)


def test_neighbours_are_uncorrelated(stream):
  name, bits = stream
  value = counter_rng.uniform(bits) - 0.5
  for lag in (1, 2, 64, 128, 512):
    correlation = (value[lag:] * value[:-lag]).mean() * 12
    assert abs(correlation) < 5 / np.sqrt(len(bits) - lag), (name, lag)
  pairs = (bits >> np.uint64(60)).astype(int)
  assert abs(chi_square(pairs[1:] * 16 + pairs[:-1], 256)) < 5


def test_draws_do_not_depend_on_the_batch_they_are_made_in():
  key_n = counter_rng.fold(counter_rng.root(9, 'test'), np.arange(100))
  alone = np.concatenate([counter_rng.fold(key_n[i : i + 1], 4) for i in range(100)])
  np.testing.assert_array_equal(alone, counter_rng.fold(key_n, 4))
  assert len({int(counter_rng.root(seed, name)[0]) for seed in (-1, 0, 1) for name in 'ab'}) == 6


def test_known_values_stay():
  """SplitMix64 from state 0, as Vigna's splitmix64.c has it, so that plans and masks last."""
  expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
  assert counter_rng.fold(np.zeros(1, np.uint64), np.arange(3)).tolist() == expected


@pytest.mark.parametrize('bound', [1, 2, 3, 1000, 2**32])
def test_below_covers_its_range_evenly(bound):
  value = counter_rng.below(counter_rng.fold(counter_rng.root(2, 'test'), np.arange(N)), bound)
  assert value.min() >= 0 and value.max() < bound
  assert abs(value.mean() - (bound - 1) / 2) < 5 * bound / np.sqrt(12 * N)


def test_coin_flips_are_binomial():
  flips_n = np.repeat([0, 1, 7, 63, 64, 65, 300], 20000)
  key_n = counter_rng.fold(counter_rng.root(3, 'test'), np.arange(len(flips_n)))
  heads_n = counter_rng.coin_flips(key_n, flips_n)
  for flips in (0, 1, 7, 63, 64, 65, 300):
    heads = heads_n[flips_n == flips]
    assert abs(heads.mean() - flips / 2) <= 5 * np.sqrt(flips / 4 / 20000)
    assert abs(heads.var() - flips / 4) <= 5 * np.sqrt(2 / 20000) * flips / 4
    assert heads.min() >= 0 and heads.max() <= flips


@pytest.mark.parametrize('size', [1, 2, 3, 7, 64, 65, 1000])
def test_permute_is_a_permutation_per_key(size):
  seen = []
  for seed in range(3):
    key_n = np.repeat(counter_rng.root(seed, 'test'), size)
    order = counter_rng.permute(key_n, np.arange(size), size)
    assert sorted(order.tolist()) == list(range(size))
    alone = [
      int(counter_rng.permute(key_n[:1], np.array([i]), size)[0]) for i in range(min(size, 9))
    ]
    assert alone == order[:9].tolist()
    seen.append(tuple(order))
  assert size < 7 or len(set(seen)) == 3
