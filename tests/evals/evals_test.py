"""Held-out scores, the unigram they must beat, token-by-token scoring and completions."""

import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation

from bertjax.errors import UserError, warn_once
from bertjax.evals import fill_mask, loss, pseudo_perplexity
from bertjax.evals.held_out.rows import HeldOut, main_set
from bertjax.objectives import rtd
from bertjax.types import means

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)


def batch(rows=2, length=8, slots=3):
  """Rows `2 5 6 7 3 0 0 0` and `2 8 9 3 0 ...`, the token in column 2 shown as the mask."""
  b = dict(
    token_BT=np.zeros((rows, length), np.int32),
    example_BT=np.zeros((rows, length), np.int32),
    target_pos_BP=np.zeros((rows, slots), np.int32),
    target_BP=np.zeros((rows, slots), np.int32),
    weight_BP=np.zeros((rows, slots), np.float32),
    masked_BP=np.zeros((rows, slots), np.float32),
    next_BG=np.zeros((rows, 1), np.int32),
  )
  for row, ids in enumerate(([2, 5, 6, 7, 3], [2, 8, 9, 3])):
    b['token_BT'][row, : len(ids)] = ids
    b['example_BT'][row, : len(ids)] = 1
    b['target_BP'][row, 0], b['target_pos_BP'][row, 0] = ids[2], 2
    b['weight_BP'][row, 0] = b['masked_BP'][row, 0] = 1
    b['token_BT'][row, 2] = SPECIAL['mask']
  return b


def held_out(step, *batches) -> Any:
  return types.SimpleNamespace(
    step=lambda variables, carry, batch: (step(batch), carry), carry=lambda: (),
    batches=lambda: batches, put=lambda batch: batch,
    objective=types.SimpleNamespace(finish=means),
  )  # fmt: skip


def test_the_unigram_is_add_one_smoothed_and_normalised():
  counts = np.array([0, 3, 5])
  nll = loss.unigram_nll(counts)
  np.testing.assert_allclose(np.exp(-nll), [1 / 11, 4 / 11, 6 / 11])


def test_means_are_over_all_batches_not_of_means():
  sums = iter([dict(mlm=(np.float32(6), np.float32(2))), dict(mlm=(np.float32(1), np.float32(3)))])
  counts = np.ones(10, np.int64)
  one, two = batch(), batch()
  two['masked_BP'][1] = 0
  found = loss.evaluate(held_out(lambda b: next(sums), one, two), {}, counts)
  assert found['mlm'] == 7 / 5
  np.testing.assert_allclose(found['unigram_entropy'], np.log(10))
  unknown = loss.evaluate(held_out(lambda b: {}, one), {}, 0 * counts)
  assert unknown == {}


@mutation("masked_BP = batch['weight_BP'] * batch['masked_BP']", "masked_BP = batch['weight_BP']")
def test_the_unigram_counts_only_targets_shown_as_mask():
  counts = np.array([0, 0, 0, 0, 0, 0, 90, 0, 0, 1])  # ids 6 and 9 are the two targets
  b = batch()
  b['masked_BP'][1] = 0  # id 9 was kept or replaced: not counted
  sums = dict(mlm=(np.float32(1), np.float32(1)))
  found = loss.evaluate(held_out(lambda b: sums, b), {}, counts)
  np.testing.assert_allclose(found['unigram_entropy'], -np.log(91 / 101), rtol=1e-12)


def test_a_label_comes_with_the_share_of_its_majority():
  b = batch(rows=4) | dict(
    next_BG=np.array([[1], [0], [1], [0]]), example_weight_BG=np.float32([[1], [1], [1], [0]])
  )
  sums = dict(next=(np.float32(1), np.float32(3)))
  found = loss.evaluate(held_out(lambda b: sums, b, b), {}, np.zeros(10))
  assert found == dict(next=1 / 3, next_majority=4 / 6)


@mutation('counts_V > 0, -counts_V.astype(np.int64)', 'counts_V > 0, counts_V.astype(np.int64)')
def test_detection_by_the_frequency_of_words_alone():
  counts = np.array([0, 40, 9, 9, 2] + [1] * 5)  # id 0 is a special token
  original, replaced = np.array([6, 8, 3, 1, 0]), np.array([0, 1, 2, 0, 3])
  suspicion = np.array([0, 1, 2, 2, 3])
  pairs = [
    (a, b) for i, a in enumerate(suspicion) for _ in range(original[i])
    for j, b in enumerate(suspicion) for _ in range(replaced[j])
  ]  # fmt: skip
  expected = sum((b > a) + 0.5 * (b == a) for a, b in pairs) / len(pairs)
  labels = np.pad(np.stack([original, replaced]), ((0, 0), (0, 5)))
  half = (labels / 2, 12.0)  # of each of two batches
  of_words = lambda labels: lambda b: {rtd.BY_WORD: labels}
  found = loss.evaluate(held_out(of_words(half), batch(), batch()), {}, counts)
  assert found['rtd_auc_unigram'] == pytest.approx(expected)
  none = (labels * [[1], [0]], 18.0)
  found = loss.evaluate(held_out(of_words(none), batch()), {}, counts)
  assert 'rtd_auc_unigram' not in found


def test_every_real_token_is_hidden_once_and_no_special_one():
  original = pseudo_perplexity.restore(batch())
  hidden = []
  for part in pseudo_perplexity.one_at_a_time(batch(), 2, SPECIAL):
    for row in np.flatnonzero(part['weight_BP'][:, 0]):
      column, target = part['target_pos_BP'][row, 0], part['target_BP'][row, 0]
      assert part['token_BT'][row, column] == SPECIAL['mask']
      filled = part['token_BT'][row].copy()
      filled[column] = target
      assert filled.tolist() in original.tolist()
      hidden.append(int(target))
  assert sorted(hidden) == [5, 6, 7, 8, 9]


def test_pseudo_perplexity_of_a_uniform_model_is_the_vocabulary():
  def uniform(part):
    weight = float(part['weight_BP'].sum())
    return dict(mlm_masked=(np.float32(weight * np.log(50)), np.float32(weight)))

  parts = pseudo_perplexity.one_at_a_time(batch(), 2, SPECIAL)
  value = pseudo_perplexity.pseudo_perplexity(held_out(uniform), {}, parts)
  np.testing.assert_allclose(value, 50, rtol=1e-5)


@mutation('columns**2, 1)', 'columns, 1)')
@pytest.mark.parametrize(
  'rows, columns, scored', [(8, 256, 8), (8, 512, 2), (8, 4096, 1), (9, 512, 9)]
)
def test_long_rows_cost_no_more_than_short_ones(rows, columns, scored, caplog):
  warn_once.cache_clear()  # a test before may have had as many
  assert pseudo_perplexity.affordable(rows, columns) == scored
  assert (f'scores {scored} rows of ' in caplog.text) == (scored < rows)


@mutation('(0, rows, self.batch_size):', '(0, min(rows, self.batch_size), self.batch_size):')
def test_more_rows_than_a_batch_has_are_each_scored_once():
  """Five of seven rows in batches of two: the last batch has one of them."""
  held: Any = types.SimpleNamespace(
    rows=7, batch=lambda row_n, shuffle: dict(row_B=row_n, dropped_B=row_n)
  )
  unused: Any = None
  some = HeldOut(held, {}, unused, unused, 2, 0, unused)
  found = [(batch['row_B'].tolist(), rows) for batch, rows in some.first(5)]
  assert found == [([0, 1], 2), ([2, 3], 2), ([4, 5], 1)]
  assert [batch['row_B'].tolist() for batch, _ in some.first(7)][-1] == [6, 0]
  assert [set(batch) for batch, _ in some.first(1)] == [{'row_B'}]


@mutation("if v.type == 'loss'}", 'if v}', file='bertjax/evals/held_out/rows.py')
def test_an_evaluation_of_the_rows_of_a_set_that_is_not_there_is_refused():
  a_set = lambda kind: types.SimpleNamespace(type=kind)
  config = types.SimpleNamespace(evals=dict(held_out=a_set('spans'), other=a_set('loss')))
  subject: Any = types.SimpleNamespace(key='config.evals.bound', config=config)
  with pytest.raises(UserError, match="evals.bound scores .*held_out: .* 'loss', got other; name"):
    main_set(subject)


WORDS = {'the': 5, 'cat': 6, 'sat': 7}


def encode(sentences, template=None):
  split = lambda texts: [[WORDS[w] for w in text.split()] for text in texts]
  vocabulary: Any = types.SimpleNamespace(
    encode_batch=split, special=SPECIAL, pieces={SPECIAL['mask']: '<mask>'}
  )
  template = template or dict(batch(), position_BT=np.zeros((2, 8), np.int32))
  return fill_mask.encode(sentences, vocabulary, template)


def test_a_sentence_is_framed_and_its_masks_become_slots():
  b = encode(['the [MASK] sat [MASK]', '[MASK]'])
  assert b['token_BT'].tolist() == [[2, 5, 4, 7, 4, 3, 0, 0], [2, 4, 3, 0, 0, 0, 0, 0]]
  assert b['target_pos_BP'][0].tolist() == [2, 4, 0] and b['weight_BP'][0].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
  'sentences, message',
  [
    (['the cat'], 'got 0 and 4'),
    (['[MASK]' * 4], 'at most 8 tokens, got 4'),
    (['the cat sat the cat sat [MASK]'], 'got 1 and 9'),
  ],
)
def test_sentences_that_do_not_fit_are_refused(sentences, message):
  with pytest.raises(ValueError, match=message):
    encode(sentences)


def test_completions_are_the_likeliest_ids_in_order():
  logits = jnp.zeros((2, 3, 10)).at[0, 1, 7].set(5.0).at[0, 1, 6].set(4.0)
  prob, ids = fill_mask.likeliest(logits, 2, 10)
  assert ids.shape == (2, 3, 2) and ids[0, 1].tolist() == [7, 6]
  assert prob[0, 1, 0] > prob[0, 1, 1] > 0.1
