"""XLNet's targets and orders against the original's loops, run with the same draws."""

import numpy as np
import pytest
from masking import mask_options
from mutation import mutation
from toy_store import xlnet, xlnet_store

from bertjax import counter_rng
from bertjax.examples import examples as examples_lib
from bertjax.examples.noise import xlnet_permutation
from bertjax.models.xlnet import MEMORY_ORDER

LENGTH, REUSE, SEED = 96, 48, 5


def cut(perm_size=48, **mask):
  """Rows of two equal parts."""
  changes = dict(perm_size=perm_size, reuse_len=REUSE) | mask
  return xlnet(
    plan__reuse_len=changes['reuse_len'], **{f'mask__{k}': v for k, v in changes.items()}
  )


def sample_mask(word, goal, key, mask, backwards):
  """data_utils.py:_sample_mask of one part, piece by piece; turn t of a site has its t-th draw."""
  size = len(word)
  word = word[::-1] if backwards else word
  chosen, taken, at, turn = np.zeros(size, bool), 0, 0, 0
  draw = lambda site, turn: counter_rng.fold(counter_rng.fold(key, site), turn)
  until = np.cumsum(xlnet_permutation.pmf(mask.max_words))
  while at < size and taken < goal:
    n = 1 + int((counter_rng.uniform(draw(xlnet_permutation._GRAM, turn)) >= until[:-1]).sum())
    n = min(n, goal - taken)
    context = n * mask.context
    left = int(counter_rng.below(draw(xlnet_permutation._LEFT, turn), context)[0])
    turn += 1
    begin = at + left
    while begin < size and not word[begin]:
      begin += 1
    if begin >= size:
      break
    end, count = begin + 1, 1
    while end < size:
      if word[begin]:
        count += 1
        if count > n:
          break
      end += 1
    if end >= size:
      break
    end = min(end, begin + goal - taken)
    at = end + context - left
    chosen[begin:end] = True
    taken += end - begin
  turn = 0
  while taken < goal:
    i = counter_rng.below(draw(xlnet_permutation._FILL, turn), size)[0]
    turn += 1
    taken += not chosen[i]
    chosen[i] = True
  return chosen[::-1] if backwards else chosen


def local_perm(chosen, special, perm_size, key):
  """data_utils.py:_local_perm of one part: the mask (True: hidden) and the targets."""
  size = len(chosen)
  index = np.arange(size).reshape(-1, perm_size).T
  index = index[np.argsort(counter_rng.fold(key, np.arange(perm_size)))].T.reshape(-1)
  plain = ~chosen & ~special
  rev = np.where(plain, -1, index)
  target = ~plain & ~special
  own = np.where(target, rev, rev + 1)
  return (own[:, None] <= rev[None, :]) & ~plain[None, :], target


def parts_of(batch, row, store):
  token = batch['token_BT'][row]
  special = (token == store.special['cls']) | (token == store.special['sep'])
  for number, part in enumerate((slice(0, REUSE), slice(REUSE, LENGTH))):
    yield number, part, store.word_starts[token[part]], special[part]


@pytest.mark.parametrize('perm_size', [1, 2, 6, 48])
@mutation("(rows.ranges.row['direction'] < 0, 2)", "(rows.ranges.row['direction'] < -1, 2)")
@mutation('    inside = stop < end\n', '    inside = stop <= end\n')
@mutation('(rows.position_n >= reuse) * (reuse + 1)', '(rows.position_n >= reuse) * 0')
@mutation('  return offset_n - place_n + order_E2s', '  return 0 * place_n + order_E2s')
@mutation('  query_n = np.where(target_n, key_n, key_n + 1)', '  query_n = key_n + 1')
def test_equals_the_original(perm_size):
  """Targets, and who sees whom, pair by pair, in every row of an epoch and in both directions."""
  config = cut(perm_size=perm_size)
  store = xlnet_store(60)
  examples = examples_lib.examples_in_memory(store, config, LENGTH, SEED, rows=4)
  batch = examples.batch(np.arange(examples.rows), shuffle=True)
  assert (
    batch['target_pos_BP'].shape[1] == xlnet_permutation.slots(mask_options(config), LENGTH) == 16
  )
  root = counter_rng.fold(counter_rng.root(SEED, 'corrupt'), 0)
  for row in range(examples.rows):
    key, hidden, wanted = counter_rng.fold(root, row), np.zeros((LENGTH, LENGTH), bool), []
    hidden[:REUSE, REUSE:] = True
    for number, part, word, special in parts_of(batch, row, store):
      backwards = batch['direction_B'][row] < 0
      chosen = sample_mask(word, 8, counter_rng.fold(key, number), config.mask, backwards)
      assert chosen.sum() == 8
      order_key = counter_rng.fold(counter_rng.fold(key, xlnet_permutation._ORDER), number)
      hidden[part, part], target = local_perm(chosen, special, perm_size, order_key)
      wanted += (np.flatnonzero(target) + part.start).tolist()
    used = batch['weight_BP'][row] > 0
    assert batch['target_pos_BP'][row][used].tolist() == wanted
    ids = batch['token_BT'][row][wanted]
    np.testing.assert_array_equal(batch['target_BP'][row][used], ids)
    sees = batch['order_q_BT'][row][:, None] > batch['order_k_BT'][row][None]
    np.testing.assert_array_equal(sees, ~hidden)
    assert not sees[wanted, wanted].any()  # no target sees itself
    assert (batch['order_q_BT'][row] > MEMORY_ORDER).all()
  np.testing.assert_array_equal(batch['masked_BP'], batch['weight_BP'])


@mutation('1 / np.arange(1, ngram + 1)', '1 / np.ones(ngram)')
def test_spans_have_the_published_distribution():
  pmf = xlnet_permutation.pmf(5)
  np.testing.assert_allclose(pmf, [0.4380, 0.2190, 0.1460, 0.1095, 0.0876], atol=5e-5)
  assert pmf @ np.arange(1, 6) == pytest.approx(2.190, abs=5e-4)
  options = mask_options(xlnet(plan__reuse_len=256, mask__reuse_len=256))
  assert xlnet_permutation.goals(options, 512) == (43, 42)
  assert xlnet_permutation.slots(options, 512) == 85
  start = np.arange(1000) * 256
  key = counter_rng.fold(counter_rng.root(0, 'walk'), np.arange(1000))
  parts = xlnet_permutation._Parts(np.arange(256000), start, start + 256, np.full(1000, 43), key)
  _, size, taken = xlnet_permutation._walk(np.ones(256000, bool), parts, options)
  assert size.sum() == taken.sum()
  # Shares of the first span of each part; later ones are cut to what is left.
  share = np.bincount(size[:1000], minlength=6)[1:] / 1000
  np.testing.assert_allclose(share, pmf, atol=0.05)
  assert 5 < 43 - taken.mean() < 9  # the filler: 13 to 19% of the targets
