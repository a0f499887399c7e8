"""DistilBERT's masks: draws by frequency over a block of rows, against the original's formula."""

import math

import numpy as np
import pytest
from masking import corrupted, placed
from mutation import mutation
from slow_imports import torch
from toy_store import SPECIAL, VOCABULARY, random_store
from toy_store import distilbert as recipe

from bertjax.examples import examples as examples_lib
from bertjax.examples import plan_and_mask


def counted(counts):
  """A store whose words occur so often, word by word in turn."""
  store = random_store(3)
  store.counts = np.resize(counts, VOCABULARY)
  return store


@mutation('** -options.smoothing', '** options.smoothing')
@mutation('** -options.smoothing', '** -1.0')
@mutation('turn_n = -np.log1p(-u_n) / weight_n', 'turn_n = u_n')
def test_each_position_is_masked_as_often_as_the_original_draws_it():
  """At the rate of 15%, where words run short: prepare_batch_mlm on the same rows."""
  lengths, repeats = [30, 14, 22, 41], 1500
  store = counted([1, 3, 50, 900, 20000, 7])
  config = recipe(mask__block=4)
  opened = plan_and_mask.open_recipe(config)
  token_BT, hits_BT = np.zeros((4, 41), np.int64), np.zeros((4, 41))
  for seed in range(repeats):
    rows = placed(lengths, capacity=41, seed=seed)
    batch = opened.masking.corrupt(rows, opened.mask_options, store)
    row_n, slot_n = np.nonzero(batch['weight_BP'])
    hits_BT[row_n, batch['target_pos_BP'][row_n, slot_n]] += 1
    assert len(row_n) == math.ceil(0.15 * sum(lengths)) and not batch['dropped_B'].any()
  token_BT.ravel()[rows.cell_n] = rows.token_n  # padding is id 0, which is special

  probability_V = np.maximum(store.counts, 1) ** -0.7
  probability_V[list(SPECIAL.values())] = 0.0
  drawn = torch.zeros(token_BT.size)
  weight = torch.tensor(probability_V[token_BT.ravel()])
  torch.manual_seed(0)
  for _ in range(repeats):
    number = math.ceil(0.15 * sum(lengths))
    drawn[torch.multinomial(weight / weight.sum(), number, replacement=False)] += 1
  theirs_BT = drawn.numpy().reshape(token_BT.shape)
  share_BT = (theirs_BT + hits_BT) / (2 * repeats)
  deviation_BT = np.sqrt(2 * repeats * share_BT * (1 - share_BT))
  assert (np.abs(theirs_BT - hits_BT) <= 4.5 * deviation_BT + 1).all()


@pytest.mark.parametrize('lengths', [[64] * 10, [20, 64, 13, 41, 30] * 2])
@mutation('tokens_B.reshape(-1, options.block).sum', 'tokens_B.reshape(-1, options.block).max')
def test_a_block_masks_its_share_of_the_tokens_without_padding(lengths):
  batch = corrupted(recipe(), counted([1, 50]), lengths, capacity=64)
  number_b = (batch['weight_BP'] > 0).sum(1).reshape(2, 5).sum(1)
  assert number_b.tolist() == [math.ceil(0.15 * sum(lengths[:5]))] * 2


@mutation('ids_of(tuple(store.special), store)', "ids_of(('cls', 'unk', 'mask', 'pad'), store)")
@mutation('ids_of(tuple(store.special), store)', "ids_of(('cls', 'sep', 'mask', 'pad'), store)")
def test_special_tokens_are_never_predicted_and_words_without_a_count_are():
  store = random_store(200)
  store.tokens[::7] = SPECIAL['unk']
  store.counts = np.bincount(store.tokens, minlength=VOCABULARY) * (np.arange(VOCABULARY) % 2)
  config = recipe(mask__rate=1.0, mask__max_targets=64)
  config.mask.update(dict(mask_share=1.0, random_share=0.0))
  examples = examples_lib.examples_in_memory(store, config, 64, 0)
  batch = examples.batch(np.arange(examples.rows // 5 * 5), False)
  found_n = batch['target_BP'][batch['weight_BP'] > 0]
  assert not np.isin(found_n, list(SPECIAL.values())).any()
  assert (store.counts[found_n] == 0).any() and (store.counts[found_n] > 0).any()
  # More is asked for than there is, so all of it is predicted.
  shown_n = batch['token_BT'][batch['example_BT'] > 0]
  assert set(shown_n) == {SPECIAL[name] for name in ('cls', 'sep', 'unk', 'mask')}
