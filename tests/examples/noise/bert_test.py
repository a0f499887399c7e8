"""Masked-LM masking: the rules' counts, candidates and shares, word groups, purity."""

import numpy as np
import pytest
from masking import MASKED_LM as RECIPES
from masking import at_targets, corrupted, count_of, mask_options, masked
from mutation import mutation
from toy_store import MASK, SPECIAL, random_store, recipe, roberta

from bertjax.examples import targets

CLS, SEP = SPECIAL['cls'], SPECIAL['sep']


@pytest.mark.parametrize(
  'make, special',
  [
    (recipe, SPECIAL),
    (roberta, dict(pad=0, unk=100, cls=101, sep=102, mask=103)),
    (roberta, dict(pad=1, unk=3, cls=0, sep=2, mask=999)),
  ],
  ids=['BERT', 'WordPiece', 'fairseq'],
)
@mutation("never_drawn=('pad', 'unk', 'cls', 'sep', 'mask')", 'never_drawn=()', case='fairseq')
@mutation('id_n = id_n + (id_n >= special_id)', 'id_n = id_n + 1', case='WordPiece')
def test_random_ids_are_uniform_over_all_but_those_of_the_rule(make, special):
  """BERT draws from the whole vocabulary, RoBERTa no special token, wherever it is."""
  store = random_store(3)
  store.special.update(special)
  everything = dict(rate=1.0, mask_share=0.0, random_share=1.0, max_targets=512)
  config = make(**{f'mask__{name}': value for name, value in everything.items()})
  batch = corrupted(config, store, [500] * 400)
  drawn = np.bincount(at_targets(batch, batch['token_BT']), minlength=1000)
  never = [] if make is recipe else list(special.values())
  assert drawn.sum() >= 199_000 and not drawn[never].any()
  others = np.delete(drawn, never)
  expected = others.mean()
  assert np.sum((others - expected) ** 2 / expected) < len(others) + 5 * np.sqrt(2 * len(others))


@mutation('masked_n = masked_n & ~is_special(target_n, store)', 'pass')
def test_what_is_told_by_the_layout_does_not_count_as_masked():
  batch, original_BT, _ = masked(roberta(), rows=800, store=random_store(1500))
  special_BP = (batch['weight_BP'] > 0) & np.isin(batch['target_BP'], [CLS, SEP])
  shown_BP = np.take_along_axis(batch['token_BT'], batch['target_pos_BP'], 1)
  assert (shown_BP == MASK)[special_BP].mean() > 0.7
  assert not batch['masked_BP'][special_BP].any()


def test_counts_of_the_bert_rule():
  """min(P, max(1, round half to even(.15 * length))): 19 of 128 and 77 of 512."""
  assert [targets.slots(mask_options(recipe()), length) for length in (128, 512)] == [20, 77]
  for length, expected in ((128, 19), (512, 77), (5, 1), (10, 2), (30, 4), (50, 8), (3, 1)):
    assert count_of(recipe(mask__max_targets=100), [length]) == [[expected]]
  assert count_of(recipe(mask__max_targets=20), [512]) == [[20]]


def test_counts_of_the_roberta_rule():
  counts = np.array(count_of(roberta(mask__max_targets=100), [50] * 4000, pack=False))
  assert set(counts.ravel()) == {7, 8} and abs(counts.mean() - 7.5) < 4 * 0.5 / np.sqrt(4000)
  counts = np.array(count_of(roberta(), [512] * 2000, pack=False))
  assert set(counts.ravel()) == {76, 77} and abs(counts.mean() - 76.8) < 4 * 0.4 / np.sqrt(2000)


@mutation('decide_n = lead_n if roberta else index_n', 'decide_n = lead_n')
def test_roberta_decides_once_per_word_and_bert_once_per_token():
  store = random_store(1500)
  mixed = {}
  for name in ('bert-words', 'roberta-words'):
    batch, original_BT, _ = masked(RECIPES[name], rows=1000, store=store)
    mask_BP, pos_BP = batch['masked_BP'], batch['target_pos_BP']
    second_BP = (np.diff(pos_BP, axis=1) == 1) & (batch['weight_BP'][:, 1:] > 0)
    special_BP = np.isin(batch['target_BP'], [CLS, SEP])
    second_BP &= ~special_BP[:, 1:] & ~special_BP[:, :-1]
    token_BP = np.take_along_axis(original_BT, pos_BP, 1)
    same_word_BP = second_BP & ~store.word_starts[token_BP[:, 1:]]
    mixed[name] = (mask_BP[:, 1:] != mask_BP[:, :-1])[same_word_BP].mean()
  assert mixed['roberta-words'] == 0
  assert abs(mixed['bert-words'] - 2 * 0.8 * 0.2) < 0.02
