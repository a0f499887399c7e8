"""ERNIE 1.0's masks by units, or by characters: coins, shares, slots."""

import dataclasses

import numpy as np
import pytest
from ernie_text import SPECIAL, VOCABULARY
from masking import unchanged
from mutation import mutation
from small_stores import write_store
from toy_store import ernie

from bertjax.examples import examples as examples_lib
from bertjax.examples import layout
from bertjax.store.reader import open_store


def batch_of(store, config, rows=600, length=64, seed=1):
  examples = examples_lib.examples_in_memory(store, config, length, seed)
  clean = examples_lib.examples_in_memory(store, unchanged(config), length, seed)
  row_n = np.arange(rows)
  return examples.batch(row_n, True), clean.batch(row_n, True)['token_BT']


class Masks:
  """What a batch masks, token by token, and the units of the rows."""

  def __init__(self, store, config, batch, original_BT, seed=1, length=64):
    examples = examples_lib.examples_in_memory(store, config, length, seed)
    seen = {}

    def look(rows, options, store):
      seen['rows'] = rows
      return {}

    recipe = examples.recipe._replace(masking=examples.recipe.masking._replace(corrupt=look))
    examples = dataclasses.replace(examples, recipe=recipe)
    examples.batch(np.arange(len(original_BT)), True)
    rows = seen['rows']
    unit_n = layout.units(rows, store)
    self.special = np.isin(original_BT, [store.special[k] for k in ('cls', 'sep')])
    self.real = (batch['example_BT'] > 0) & ~self.special
    self.begins = layout.place(rows, unit_n) > 0
    self.begins[:, 1:] |= self.special[:, :-1]  # a pair may begin inside a unit, having lost tokens
    self.target = np.zeros(original_BT.shape, bool)
    row, slot = np.nonzero(batch['weight_BP'])
    self.target[row, batch['target_pos_BP'][row, slot]] = True
    self.shown, self.original = batch['token_BT'], original_BT
    number = np.cumsum(self.begins & self.real)  # units in reading order, over the rows
    self.unit_BT = number.reshape(original_BT.shape)


def shares(m, at):
  """Expected -> seen share of [MASK], random and kept among these targets."""
  masked = m.shown[at] == SPECIAL['mask']
  kept = m.shown[at] == m.original[at]
  return {0.8: masked.mean(), 0.1: kept.mean(), 0.1001: (~masked & ~kept).mean()}


@mutation('np.where(lead_c[at_c] == at_c, options.rate, 1.0)', 'options.rate')
def test_units_are_masked_whole(ernie_store):
  config = ernie(mask__word_prob=1.0)
  batch, original = batch_of(ernie_store, config)
  assert not batch['dropped_B'].any()
  m = Masks(ernie_store, config, batch, original)
  assert not (m.target & ~m.real).any()
  count = np.bincount(m.unit_BT[m.real])
  hit = np.bincount(m.unit_BT[m.real], m.target[m.real])
  assert set(np.unique(hit[count > 0] / count[count > 0])) == {0.0, 1.0}
  units = (count > 0).sum()
  np.testing.assert_allclose((hit > 0).sum() / units, 0.15, atol=4 * np.sqrt(0.13 / units))
  for at in (m.target & m.begins, m.target & ~m.begins):
    for share, got in shares(m, at).items():
      np.testing.assert_allclose(got, share, atol=4 * np.sqrt(0.16 / at.sum()))
  # Later tokens decide for themselves: a unit is not shown as a whole.
  lead = m.target[:, :-1] & m.begins[:, :-1] & m.target[:, 1:] & ~m.begins[:, 1:]
  shown = m.shown == SPECIAL['mask']
  both = shown[:, :-1][lead] & shown[:, 1:][lead]
  np.testing.assert_allclose(both.mean(), 0.64, atol=4 * np.sqrt(0.23 / lead.sum()))


@mutation('diff(index_n, prepend=-2) != 1', 'diff(index_n, prepend=-2) > 2')
def test_units_end_at_the_separator(tmp_path):
  """Pairs of one unit each, most cut at the front: A is chosen without regard to B."""
  draw = np.random.default_rng(0)
  documents = [[draw.integers(5, 3000, 80) for _ in range(2)] for _ in range(1500)]
  units = [[np.eye(1, 80)[0] for _ in range(2)] for _ in range(1500)]
  write_store(tmp_path / 's', documents, VOCABULARY, None, units)
  config = ernie(mask__word_prob=1.0, mask__rate=0.5, mask__max_targets=64, plan__short_prob=0.0)
  batch, original = batch_of(open_store(tmp_path / 's'), config, rows=1500)
  m = Masks(open_store(tmp_path / 's'), config, batch, original)
  a = m.target[:, 1]
  b = m.target[np.arange(1500), (batch['example_BT'] > 0).sum(1) - 2]
  assert abs((a == b).mean() - 0.5) < 0.06


@pytest.mark.parametrize('block', [1, 8])
@mutation('rows.number_B // options.block', 'rows.number_B')
@mutation('(len(row_n), self.length), row_n, self', '(len(row_n), self.length), None, self')
def test_one_coin_for_a_block_of_rows(ernie_store, block):
  config = ernie(mask__block=block, mask__word_prob=0.7)
  batch, original = batch_of(ernie_store, config, rows=800)
  m = Masks(ernie_store, config, batch, original)
  # A row with a unit hit in part is masked by characters.
  count = np.bincount(m.unit_BT[m.real])
  hit = np.bincount(m.unit_BT[m.real], m.target[m.real])
  broken = (hit > 0) & (hit < count)
  characters = np.array(
    [broken[np.unique(u[r])].any() for u, r in zip(m.unit_BT, m.real, strict=True)]
  )
  blocks = characters.reshape(-1, block)
  found = blocks.any(1)
  assert abs(found.mean() - 0.3) < 4 * np.sqrt(0.21 / len(blocks)) + (0.2 if block == 1 else 0)
  if block > 1:  # most rows of such a block have a unit hit in part
    assert blocks[found].mean() > 0.6
  examples = examples_lib.examples_in_memory(ernie_store, config, 64, 1)
  alone = examples.batch(np.arange(300, 310), True)
  np.testing.assert_array_equal(alone['token_BT'], batch['token_BT'][300:310])
