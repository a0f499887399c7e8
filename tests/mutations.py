"""Small edits that must turn a test red: python -m tests.mutations [PART OF A NAME]

Each edit is applied to a copy of the repository, alone, and the named test is run there. A test
that stays green does not test what it says: the command lists it and exits with 1. An edit whose
text is no longer in its file is an error too: write it anew.
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Mutation(NamedTuple):
  """Replaces `old` (once in `file`) by `new`; `test` must then fail."""

  name: str
  file: str
  old: str
  new: str
  test: str


MUTATIONS = (
  Mutation(
    'fastbpe: punctuation as it stands',
    'bertjax/data/fastbpe.py',
    'words = list(moses.cut(moses.normalise(text)))',
    'words = list(moses.cut(text))',
    'tests/data/fastbpe_test.py::test_equals_transformers',
  ),
  Mutation(
    'fastbpe: the rules of English for all',
    'bertjax/data/fastbpe.py',
    'sacremoses.MosesTokenizer(lang=language)',
    "sacremoses.MosesTokenizer(lang='en')",
    'tests/data/fastbpe_test.py::test_equals_transformers',
  ),
  Mutation(
    'ernie: later tokens of a unit are shown as if they had been chosen themselves',
    'bertjax/data/entities.py',
    'np.where(lead_c[at_c] == at_c, mask.rate, 1.0)',
    'mask.rate',
    'tests/data/ernie_test.py::test_units_are_masked_whole',
  ),
  Mutation(
    'ernie: a unit goes on behind [SEP]',
    'bertjax/data/entities.py',
    'np.diff(candidate_c) > 1',
    'np.diff(candidate_c) > 2',
    'tests/data/ernie_test.py::test_units_end_at_the_separator',
  ),
  Mutation(
    'ernie: a coin for every row',
    'bertjax/data/entities.py',
    'placed.number_B // mask.block',
    'placed.number_B',
    'tests/data/ernie_test.py::test_one_coin_for_a_block_of_rows',
  ),
  Mutation(
    'ernie: rows within a batch count from 0',
    'bertjax/data/plans.py',
    '(len(index_n), self.length), row_n, self.seed)',
    '(len(index_n), self.length), None, self.seed)',
    'tests/data/ernie_test.py::test_one_coin_for_a_block_of_rows',
  ),
  Mutation(
    'ernie: the last item of a buffer meets the next buffer',
    'bertjax/data/ernie_pairs.py',
    'last_n = (next_n % BUFFER == 0) | (next_n == items)',
    'last_n = next_n == items',
    'tests/data/ernie_test.py::test_negatives_come_from_the_buffer',
  ),
  Mutation(
    'ernie: second segments first',
    'bertjax/data/ernie_pairs.py',
    "first_n = positive['a_length'][item_n] <= room_n",
    "first_n = positive['b_length'][item_n] > room_n",
    'tests/data/ernie_test.py::test_negatives_come_from_the_buffer',
  ),
  Mutation(
    'targets: the separators count as masked text',
    'bertjax/data/targets.py',
    'masked_n = masked_n & ~is_special(target_n, store)',
    'pass',
    'tests/data/mlm_test.py::test_what_is_told_by_the_layout_does_not_count_as_masked',
  ),
  Mutation(
    'ernie: a cut segment keeps its far end',
    'bertjax/data/ernie_pairs.py',
    "a_start=positive['a_start'] + dropped_n, ",
    '',
    'tests/data/ernie_test.py::test_halves_keep_what_is_next_to_the_border',
  ),
  Mutation(
    'ernie: positives stay swapped',
    'bertjax/data/ernie_pairs.py',
    "swapped_n = column['swapped'] > 0",
    "swapped_n = column['swapped'] > 1",
    'tests/data/ernie_test.py::test_negatives_come_from_the_buffer',
  ),
  Mutation(
    'dialogues: replies of any role',
    'bertjax/data/dialogues.py',
    'good_n = same_role_n & (',
    'good_n = (same_role_n | True) & (',
    'tests/data/ernie_test.py::test_replies_of_other_dialogues_keep_the_role',
  ),
  Mutation(
    'dialogues: replies of the same dialogue',
    'bertjax/data/dialogues.py',
    '(other_n < low_n[open_n]) | (other_n >= high_n[open_n])',
    '(other_n < low_n[open_n]) | (other_n >= low_n[open_n])',
    'tests/data/ernie_test.py::test_replies_of_other_dialogues_keep_the_role',
  ),
  Mutation(
    'records: segments of unrelated pairs share a document',
    'bertjax/data/ernie_records.py',
    'sizes += [2] if follows else [1, 1]',
    'sizes += [2]',
    'tests/data/ernie_test.py::test_records_of_the_original',
  ),
  Mutation(
    'units: what follows a unit inside a word goes on',
    'bertjax/data/phrases.py',
    'word_starts[token_n] | first_n | (before_n > 0)',
    'word_starts[token_n] | first_n',
    'tests/data/phrases_test.py',
  ),
  Mutation(
    'units: two units side by side are one',
    'bertjax/data/phrases.py',
    'np.where(span_n == before_n, CONTINUES, FOUND)',
    'np.where(before_n > 0, CONTINUES, FOUND)',
    'tests/data/phrases_test.py',
  ),
  Mutation(
    'units: the shortest entry wins',
    'bertjax/data/phrases.py',
    'sorted(sizes, reverse=True)',
    'sorted(sizes)',
    'tests/data/phrases_test.py',
  ),
  Mutation(
    'units: entries end inside words',
    'bertjax/data/phrases.py',
    ' and _between_words(text, end)',
    '',
    'tests/data/phrases_test.py',
  ),
  Mutation(
    'rows: special tokens get the value of what follows',
    'bertjax/data/rows.py',
    'np.maximum(until_n - 1, np.repeat(before_E, text.length_E))',
    'np.maximum(until_n - plain_n, np.repeat(before_E, text.length_E))',
    'tests/data/rows_test.py',
  ),
  Mutation(
    'prepare: languages numbered batch by batch',
    'bertjax/data/partial.py',
    "self._numbers(batch.languages)[column['language']]",
    "column['language']",
    'tests/prepare_columns_test.py',
  ),
  Mutation(
    'prepare: half of a pair is kept',
    'bertjax/data/encode.py',
    'whole_U = np.repeat(~broken_D, size_D)',
    'whole_U = np.ones(len(kept_U), bool)',
    'tests/data/records_test.py',
  ),
  Mutation(
    'prepare: languages forgotten by a run that goes on',
    'bertjax/data/partial.py',
    "      self.languages = progress['languages']\n",
    '',
    'tests/prepare_columns_test.py',
  ),
  Mutation(
    'vocab: a Mixture in one pass',
    'bertjax/vocab.py',
    'if len(corpus.tasks) > 1 and not',
    'if len(corpus.tasks) > 9 and not',
    'tests/vocab_test.py::test_a_mixture_is_sampled_at_its_rates',
  ),
  Mutation(
    'step: one more division by the microbatches',
    'bertjax/step.py',
    'loss += term.scale * jnp.where(weights[name] > 0, term.total / safe, 0.0)',
    'loss += term.scale * jnp.where(weights[name] > 0, term.total / term.weight, 0.0)',
    'tests/step_test.py',
  ),
  Mutation(
    'step: rows split in blocks, not in turn',
    'bertjax/step.py',
    'parts = x.reshape((x.shape[0] // count, count) + x.shape[1:])\n'
    '    return jnp.swapaxes(parts, 0, 1)',
    'return x.reshape((count, x.shape[0] // count) + x.shape[1:])',
    'tests/step_test.py',
  ),
  Mutation(
    'step: the same key at every step',
    'bertjax/step.py',
    'jax.random.fold_in(jax.random.key(seed), state.step)',
    'jax.random.key(seed)',
    'tests/contract_test.py::test_the_dropout_of_each_step_is_its_own',
  ),
  Mutation(
    'objective: kept tokens count as masked',
    'bertjax/objectives/mlm.py',
    "masked_BP = weight_BP * batch['masked_BP']",
    'masked_BP = weight_BP',
    'tests/objectives/masked_lm_test.py',
  ),
  Mutation(
    'attention: padding is visible',
    'bertjax/kernels/relative_attention/reference.py',
    '(query_BT1 == key_B1S) & (query_BT1 > 0)',
    '(query_BT1 > 0) & (key_B1S > -1)',
    'tests/parity_test.py',
  ),
  Mutation(
    'attention: causal queries see one key further',
    'bertjax/kernels/relative_attention/reference.py',
    'mask.order_q_BT[:, :, None] > mask',
    'mask.order_q_BT[:, :, None] >= mask',
    'tests/models_test.py',
  ),
  Mutation(
    'attention: the shift starts a column early',
    'bertjax/kernels/relative_attention/tables.py',
    'flat[..., queries - 1 : queries - 1 + queries * (width - 1)]',
    'flat[..., queries - 2 : queries - 2 + queries * (width - 1)]',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'attention: rows that run backwards keep their distances',
    'bertjax/kernels/relative_attention/tables.py',
    'reverse_B = direction_B.reshape((-1,) + (1,) * table.ndim) < 0',
    'reverse_B = direction_B.reshape((-1,) + (1,) * table.ndim) < -1',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'attention: same and other segment swapped',
    'bertjax/kernels/relative_attention/reference.py',
    'jnp.where(other_BTS[:, None], either_2BNT1[1], either_2BNT1[0])',
    'jnp.where(other_BTS[:, None], either_2BNT1[0], either_2BNT1[1])',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'attention: blocks of queries drop as if they were the first',
    'bertjax/kernels/relative_attention/reference.py',
    'query += jnp.asarray(first).astype(jnp.uint32)',
    'query += jnp.asarray(0).astype(jnp.uint32)',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'attention: a window one wider',
    'bertjax/kernels/relative_attention/reference.py',
    'jnp.abs(distance_TS) < mask.window',
    'jnp.abs(distance_TS) <= mask.window',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'attention: a table that ends at 0 does not hide later keys',
    'bertjax/kernels/relative_attention/operands.py',
    'return last if last > 1 - queries else None',
    'return None',
    'tests/kernels/attention_test.py',
  ),
  Mutation(
    'mask: global keys are not seen from afar',
    'bertjax/kernels/relative_attention/reference.py',
    'near_BTS | mask.global_q_BT[:, :, None] | mask.global_k_BS[:, None, :]',
    'near_BTS | mask.global_q_BT[:, :, None]',
    'tests/kernels/mask_test.py::test_random_vectors_equal_brute_force',
  ),
  Mutation(
    'mask: a query sees itself in every example',
    'bertjax/kernels/relative_attention/reference.py',
    'ahead_BTS |= (distance_TS == 0)[None]',
    'ahead_BTS = ahead_BTS & (distance_TS != 0)[None]',
    'tests/kernels/mask_test.py::test_xlnet_permutations_are_orders',
  ),
  Mutation(
    'tables: later keys in the lower half of the buckets',
    'bertjax/kernels/relative_attention/tables.py',
    'np.where(distance < 0, buckets, 0)',
    'np.where(distance > 0, buckets, 0)',
    'tests/kernels/mask_test.py::test_t5_buckets_equal_transformers',
  ),
  Mutation(
    'tables: buckets a little narrower',
    'bertjax/kernels/relative_attention/tables.py',
    'np.float32(math.log(furthest / exact)) * np.float32(buckets - exact)',
    'math.log(furthest / exact) * (buckets - exact + 0.01)',
    'tests/kernels/mask_test.py::test_t5_buckets_equal_transformers',
  ),
  Mutation(
    'tables: extra slopes of ALiBi are not every second one',
    'bertjax/kernels/relative_attention/tables.py',
    'range(1, 2 * (heads - power), 2)',
    'range(1, 1 + heads - power)',
    'tests/kernels/mask_test.py::test_alibi_equals_transformers',
  ),
  Mutation(
    'shapes: halves of a permutation see each other',
    'bertjax/kernels/relative_attention/shapes.py',
    'return order + half * (REUSE + 1), before + half * (REUSE + 1)',
    'return order + half * REUSE // 2, before + half * REUSE // 2',
    'tests/kernels/mask_test.py::test_shapes_hold_what_their_sources_say',
  ),
  Mutation(
    'cross-entropy: padding rows count in the chunks',
    'bertjax/kernels/cross_entropy.py',
    'return table_KE, bias_K, id_K, id_K >= vocab_size',
    'return table_KE, bias_K, id_K, id_K < 0',
    'tests/kernels/cross_entropy_test.py',
  ),
  Mutation(
    'cross-entropy: no one hot in the gradient of a chunk',
    'bertjax/kernels/cross_entropy.py',
    '(target_n[:, None] == id_K[None])) * cotangent_n[:, None]',
    '(target_n[:, None] < 0)) * cotangent_n[:, None]',
    'tests/kernels/cross_entropy_test.py',
  ),
  Mutation(
    'sampling: the rest is counted from the end of the block',
    'bertjax/kernels/sampling.py',
    'before_nG = until_nG - sum_nG',
    'before_nG = until_nG',
    'tests/kernels/sampling_test.py',
  ),
  Mutation(
    'sampling: a chunk forgets those before it',
    'bertjax/kernels/sampling.py',
    'until_nK = until_n[:, None] + jnp.cumsum(weight_nK, 1)',
    'until_nK = jnp.cumsum(weight_nK, 1)',
    'tests/kernels/sampling_test.py',
  ),
  Mutation(
    'sampling: no temperature',
    'bertjax/kernels/sampling.py',
    'else logits_nK / temperature',
    'else logits_nK',
    'tests/kernels/sampling_test.py',
  ),
  Mutation(
    'rtd: a kept sample counts as replaced',
    'bertjax/objectives/rtd.py',
    'logit_BT, fake_BT != original_BT,',
    "logit_BT, fake_BT != batch['token_BT'],",
    'tests/electra_parity_test.py',
  ),
  Mutation(
    'rtd: only text is judged',
    'bertjax/objectives/rtd.py',
    "batch['example_BT'] > 0,\n",
    "(batch['example_BT'] > 0) & (batch['position_BT'] > 0),\n",
    'tests/electra_parity_test.py',
  ),
  Mutation(
    'rtd: a uniform for each slot',
    'bertjax/objectives/rtd.py',
    '  return at_targets(bits_BT, batch)',
    "  return bits_BT[:, : batch['target_pos_BP'].shape[1]]",
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'rtd: unused slots write',
    'bertjax/objectives/rtd.py',
    "jnp.where(batch['weight_BP'] > 0, batch['target_pos_BP'], token_BT.shape[1])",
    "batch['target_pos_BP']",
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'rtd: pairs in a bin are lost',
    'bertjax/objectives/rtd.py',
    'below = np.cumsum(original) - original / 2',
    'below = np.cumsum(original) - original',
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'rtd: the frozen generator is trained',
    'bertjax/objectives/rtd.py',
    "generator_scale = 0.0 if settings.train == 'discriminator' else",
    "generator_scale = 0.0 if settings.train == 'none' else",
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'electra: a tower sees the token it predicts',
    'bertjax/models/electra.py',
    'jnp.roll(left_BTD, 1, 1)',
    'jnp.roll(left_BTD, 0, 1)',
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'electra: the projection takes the initializer of the rest',
    'bertjax/models/electra.py',
    "('embed_out', 'embed'), jax.nn.initializers.glorot_uniform()",
    "('embed_out', 'embed'), jax.nn.initializers.normal(0.02)",
    'tests/objectives/rtd_test.py',
  ),
  Mutation(
    'electra: the copy leaves out the embeddings',
    'bertjax/objectives/rtd.py',
    "params['embeddings'] = params.get('generator_embeddings', params['embeddings'])",
    "params['embeddings'] = params['embeddings']",
    'tests/electra_phases_test.py',
  ),
  Mutation(
    'electra: the second stage trains the generator',
    'configs/electra_two_stage.py',
    'optimizer=dict(freeze=GENERATOR,',
    'optimizer=dict(freeze=DISCRIMINATOR[:0],',
    'tests/electra_phases_test.py',
  ),
  Mutation(
    'bench: the rival of ELECTRA judges the masked tokens',
    'bertjax/bench/rival_step.py',
    'judged = self.judge(fake,',
    'judged = self.judge(input_ids,',
    'tests/electra_parity_test.py::test_the_rival_of_the_bench_has_our_model_and_our_loss',
  ),
  Mutation(
    'segments: no sentence rejoins the first segment',
    'bertjax/data/segments.py',
    '(~begun | (rejoin_E[open_n] > 0))',
    '~begun',
    'tests/data/segments_test.py',
  ),
  Mutation(
    'segments: the coin always keeps',
    'bertjax/data/segments.py',
    '& (coin_E[open_n] > 0))',
    '& (coin_E[open_n] >= 0))',
    'tests/data/segments_test.py',
  ),
  Mutation(
    'prepare: a kill in the first part is not noted',
    'bertjax/data/partial.py',
    'if not self.train.parts:',
    'if False:',
    'tests/prepare_test.py',
  ),
  Mutation(
    'attention: no scale',
    'bertjax/kernels/relative_attention/reference.py',
    'scale = q_BTNH.shape[-1] ** -0.5',
    'scale = 1.0',
    'tests/parity_test.py',
  ),
  Mutation(
    'model: the other GELU',
    'configs/bert.py',
    "activation='gelu_tanh'",
    "activation='gelu_erf'",
    'tests/parity_test.py',
  ),
  Mutation(
    'model: another norm epsilon',
    'configs/roberta.py',
    'norm_eps=1e-5',
    'norm_eps=1e-12',
    'tests/parity_test.py',
  ),
  Mutation(
    'model: RoBERTa positions from 0',
    'configs/roberta.py',
    'position_offset=2',
    'position_offset=0',
    'tests/parity_test.py',
  ),
  Mutation(
    'sharing: the last layer leaves no gradient',
    'bertjax/models/transformer.py',
    'x_BTD, h_BTD = apply({**params, **mine}, x_BTD',
    'last = number + place == self.layers * self.inner_groups - 1\n'
    '          held = lambda p: jnp.where(last, jax.lax.stop_gradient(p), p)\n'
    '          params = jax.tree.map(held, {**params, **mine})\n'
    '          x_BTD, h_BTD = apply(params, x_BTD',
    'tests/sharing_test.py',
  ),
  Mutation(
    'sharing: groups take turns',
    'bertjax/models/transformer.py',
    'np.arange(layers) * groups // layers',
    'np.arange(layers) % groups',
    'tests/sharing_test.py',
  ),
  Mutation(
    'sharing: every visit draws the same dropout',
    'bertjax/models/transformer.py',
    'mask, noise, number + place)',
    'mask, noise, jnp.int32(0))',
    'tests/sharing_test.py',
  ),
  Mutation(
    'sharing: one block of a group does for all',
    'bertjax/models/transformer.py',
    'inner = blocks[group * self.inner_groups :][: self.inner_groups]',
    'inner = [blocks[group * self.inner_groups]] * self.inner_groups',
    'tests/sharing_test.py',
  ),
  Mutation(
    'dropout: the row does not matter',
    'bertjax/kernels/dropout.py',
    'noise.row_B * jnp.uint32(_GOLDEN) + noise.seed',
    'noise.row_B * jnp.uint32(0) + noise.seed',
    'tests/kernels/dropout_test.py',
  ),
  Mutation(
    'phases: the data index forgets earlier cycles',
    'bertjax/phases.py',
    'return phase, cycle * length + rest',
    'return phase, rest',
    'tests/phases_test.py',
  ),
  Mutation(
    'sharding: colliding rules pass',
    'bertjax/sharding.py',
    '        if axis in used:',
    '        if False:',
    'tests/sharding_test.py',
  ),
  Mutation(
    'evaluation: the unigram over all targets',
    'bertjax/evals/loss.py',
    "masked_BP = batch['weight_BP'] * batch['masked_BP']",
    "masked_BP = batch['weight_BP']",
    'tests/evals/evals_test.py',
  ),
  Mutation(
    'masking: nine tenths show the mask',
    'bertjax/data/targets.py',
    'masked_n = u_n < mask.mask_share',
    'masked_n = u_n < mask.mask_share + 0.1',
    'tests/data/mlm_test.py',
  ),
  Mutation(
    'masking: special tokens are candidates',
    'bertjax/data/targets.py',
    'return np.flatnonzero(~special_n)',
    'return np.arange(len(special_n))',
    'tests/data/mlm_test.py',
  ),
  Mutation(
    'masking: RoBERTa draws special ids',
    'bertjax/data/targets.py',
    'return low + draws.below(',
    'return draws.below(',
    'tests/data/mlm_test.py',
  ),
  Mutation(
    'ngrams: longer ones are the likelier',
    'bertjax/data/ngrams.py',
    'share_n[::-1] if favor_longer else share_n',
    'share_n if favor_longer else share_n[::-1]',
    'tests/data/ngrams_test.py',
  ),
  Mutation(
    'ngrams: one that overlaps is taken',
    'bertjax/data/ngrams.py',
    'taken_E = ~clash_E & (size_E',
    'taken_E = (size_E',
    'tests/data/ngrams_test.py',
  ),
  Mutation(
    'ngrams: one that is too long is not cut',
    'bertjax/data/ngrams.py',
    'for _ in range(length_E.max() - 1):',
    'for _ in range(0):',
    'tests/data/ngrams_test.py',
  ),
  Mutation(
    'electra: the slots of a position disagree',
    'bertjax/data/electra_mask.py',
    'masked_n = hidden[index_n]',
    'masked_n = u_n < mask.mask_share',
    'tests/data/electra_mask_test.py',
  ),
  Mutation(
    'electra: slots as BERT has them',
    'bertjax/data/electra_mask.py',
    'int((recipe.mask.rate + 0.005) * length)',
    'int(recipe.mask.rate * length + 1)',
    'tests/data/electra_mask_test.py',
  ),
  Mutation(
    'electra: replacement cannot be switched off',
    'bertjax/data/electra_mask.py',
    '  if mask.replacement:\n    pick_n',
    '  if True:\n    pick_n',
    'tests/data/electra_mask_test.py',
  ),
  Mutation(
    'spans: a masked anchor is not drawn anew',
    'bertjax/data/spans.py',
    'hit_S = (anchor_S < 0) | ~chosen_c[anchor_S]',
    'hit_S = np.ones(len(anchor_S), bool)',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: masked tokens cost',
    'bertjax/data/spans.py',
    'new_n = np.flatnonzero(~chosen_c[at_n])',
    'new_n = np.arange(len(at_n))',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: the length counts tokens',
    'bertjax/data/spans.py',
    '  begins_c[texts.first_S] = True\n',
    '  begins_c[:] = True\n',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: one decision per token',
    'bertjax/data/spans.py',
    "decide_n = texts.candidate_c[first_n] if mask.rule == 'spans' else index_n",
    'decide_n = index_n',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: uniform random ids',
    'bertjax/data/spans.py',
    'until_V = np.cumsum(store.counts)',
    'until_V = np.cumsum(np.ones_like(store.counts))',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: pairs at the edge of the text',
    'bertjax/data/spans.py',
    'paired_n = (first_n > start_n) &',
    'paired_n = (first_n >= start_n) &',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: the budget is rounded down',
    'bertjax/data/spans.py',
    'np.ceil(mask.rate * texts.size_S)',
    'np.floor(mask.rate * texts.size_S)',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'one segment: no block is lost',
    'bertjax/data/one_segment.py',
    '& (not keep_block)',
    '& False',
    'tests/data/one_segment_test.py',
  ),
  Mutation(
    'one segment: blocks go on in the next document',
    'bertjax/data/one_segment.py',
    "'right') - 1, document_end)",
    "'right') - 1, sentences)",
    'tests/data/one_segment_test.py',
  ),
  Mutation(
    'spans: entities are drawn always',
    'bertjax/data/spans.py',
    '(draws.uniform(bits_JS(_COIN)) < mask.entity_prob)',
    '(draws.uniform(bits_JS(_COIN)) < 1.0)',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'spans: an entity is its first token',
    'bertjax/data/spans.py',
    'size_JS[entity_JS] = entities.begin_e[pick_n], entities.size_e[pick_n]',
    'size_JS[entity_JS] = entities.begin_e[pick_n], 1',
    'tests/data/spans_test.py',
  ),
  Mutation(
    'boundary: the denominator has no one more',
    'bertjax/objectives/span_boundary.py',
    'weight, scale=scale, plus=plus)',
    'weight, scale=scale)',
    'tests/objectives/span_boundary_test.py',
  ),
  Mutation(
    'boundary: left and right change places',
    'bertjax/models/span_boundary.py',
    'head(left_BPD, right_BPD, ',
    'head(right_BPD, left_BPD, ',
    'tests/objectives/span_boundary_test.py',
  ),
  Mutation(
    'boundary: the gradient scale is for masked tokens alone',
    'bertjax/objectives/span_boundary.py',
    'boundary_scale = gradient_scale * float',
    'boundary_scale = float',
    'tests/objectives/span_boundary_test.py',
  ),
  Mutation(
    'masks: arms are judged on their own masks',
    'bertjax/compare_masks.py',
    'config.eval.data = dict(mask=asked)',
    'config.eval.data = dict()',
    'tests/compare_masks_test.py',
  ),
  Mutation(
    'masks: the gap is between seeds',
    'bertjax/compare_masks.py',
    'zip(values, last[first], strict=True)',
    'zip(values, sorted(last[first]), strict=True)',
    'tests/compare_masks_test.py',
  ),
  Mutation(
    'masking: dynamic masks are static',
    'bertjax/data/plans.py',
    'if self.recipe.mask.static else epoch_n[row_E]',
    'if True else epoch_n[row_E]',
    'tests/data/plans_test.py',
  ),
  Mutation(
    'pairs: ties are truncated from A',
    'bertjax/data/pairs.py',
    'return a_first_n + rest_n // 2, b_first_n + (rest_n + 1) // 2',
    'return a_first_n + (rest_n + 1) // 2, b_first_n + rest_n // 2',
    'tests/data/pairs_test.py',
  ),
  Mutation(
    'pairs: no short sequences',
    'bertjax/data/pairs.py',
    'draws.uniform(draws.fold(key_n, 0)) < recipe.short_prob',
    'draws.uniform(draws.fold(key_n, 0)) < 0.0',
    'tests/data/pairs_test.py',
  ),
  Mutation(
    'convert: blocks of groups in another order',
    'bertjax/convert/huggingface.py',
    'return [row.theirs.format(group=group, inner=inner) for group, inner in numbers]',
    'return [row.theirs.format(group=g, inner=i) for g, i in sorted(numbers, key=lambda n: n[1])]',
    'tests/parity_test.py::test_shared_layers_equal_transformers',
  ),
  Mutation(
    'flops: a shared layer counts once a group',
    'bertjax/objectives/mlm.py',
    'visits = model.layers * model.inner_groups',
    'visits = model.layers',
    'tests/objectives/masked_lm_test.py',
  ),
  Mutation(
    'albert: no second phase without dropout',
    'configs/albert.py',
    'share=500_000.0, model=off',
    'share=500_000.0',
    'tests/configs_test.py',
  ),
  Mutation(
    'order: swapped text is labelled in order',
    'bertjax/data/pairs.py',
    'columns[task.name] = changed_n',
    'columns[task.name] = random_n',
    'tests/data/order_pairs_test.py',
  ),
  Mutation(
    'order: the coin asks for random text',
    'bertjax/data/pairs.py',
    'random_n = alone_n if task.swap else changed_n',
    'random_n = changed_n',
    'tests/data/order_pairs_test.py',
  ),
  Mutation(
    'order: lone sentences get random text even so',
    'bertjax/data/order_pairs.py',
    'least=1 if random_b else 2',
    'least=1',
    'tests/data/order_pairs_test.py',
  ),
  Mutation(
    'order: truncated before the swap',
    'bertjax/data/pairs.py',
    'a_lost_n, b_lost_n = truncated(a_n, b_n, usable)',
    'a_lost_n, b_lost_n = truncated(a_n, b_n, usable)\n'
    '  b_lost_n, a_lost_n = truncated(b_n, a_n, usable)',
    'tests/data/order_pairs_test.py',
  ),
  Mutation(
    'schedule: decay from the end of warm-up',
    'bertjax/schedules.py',
    'decayed = _left(step, 0, total_steps) ** power',
    'decayed = _left(step, warmup_steps, total_steps) ** power',
    'tests/schedules_test.py',
  ),
  Mutation(
    'schedule: warm-up starts at one step',
    'bertjax/schedules.py',
    'step / max(warmup_steps, 1)',
    '(step + 1) / max(warmup_steps, 1)',
    'tests/schedules_test.py',
  ),
  Mutation(
    'optimizer: bias correction always',
    'bertjax/optim.py',
    'jnp.sqrt(1 - b2**count) / (1 - b1**count) if corrected else 1.0',
    'jnp.sqrt(1 - b2**count) / (1 - b1**count)',
    'tests/optim_test.py',
  ),
  Mutation(
    'optimizer: one trust ratio for a stack of layers',
    'bertjax/optim.py',
    'return layerwise.per_tensor(tx, stacked)',
    'return layerwise.per_tensor(tx, jax.tree.map(lambda s: False, stacked))',
    'tests/optim_test.py',
  ),
  Mutation(
    'rules: a pattern need not match the whole path',
    'bertjax/rules.py',
    're.fullmatch',
    're.match',
    'tests/rules_test.py',
  ),
  Mutation(
    'checkpoint: a changed file passes',
    'bertjax/manifest.py',
    'if (got := _sha256(found[name])) != sha256:',
    'if (got := _sha256(found[name])) is None:',
    'tests/checkpoint_test.py',
  ),
  Mutation(
    'metrics: lines after the resumed step stay',
    'bertjax/metrics.py',
    "if json.loads(line)['step'] <= step:",
    'if json.loads(line):',
    'tests/metrics_test.py',
  ),
  Mutation(
    'train: a resume takes the batch it has seen',
    'bertjax/train.py',
    'phase, index = run.timeline.at(done - 1)\n    stepper',
    'phase, index = run.timeline.at(done - 1 - (start > 0))\n    stepper',
    'tests/train_test.py::test_a_kill_and_a_resume_change_no_bit',
  ),
  Mutation(
    'train: the last batch is not compared',
    'bertjax/train.py',
    "if found != meta['batch_sha256']:",
    'if False:',
    'tests/train_test.py::test_a_resume_over_another_store_is_refused',
  ),
  Mutation(
    'seqio: epochs are not counted',
    'bertjax/data/example_tasks.py',
    "window['window'] <= before",
    "window['window'] < before",
    'tests/data/example_tasks_test.py::test_rows_are_those_of_the_store_epoch_by_epoch',
  ),
  Mutation(
    'seqio: a stream forgets the batch of the last step',
    'bertjax/data/stream.py',
    'min(first, self._end - self._keep)',
    'first',
    'tests/data/example_tasks_test.py::test_a_stream_gives_any_rows_and_reopens_only_for_old_ones',
  ),
  Mutation(
    'languages: shares as large as the languages',
    'bertjax/data/languages.py',
    'np.maximum(rows_g, 1.0) ** alpha',
    'np.maximum(rows_g, 1.0)',
    'tests/data/languages_test.py::test_shares_follow_the_power_of_the_size',
  ),
  Mutation(
    'languages: every window begins a language anew',
    'bertjax/data/languages.py',
    'window_n * each_g[group_n] - plan',
    '0 * window_n - plan',
    'tests/data/languages_test.py::test_a_language_reads_all_its_rows_before_it_repeats_one',
  ),
  Mutation(
    'languages: every epoch in the same order',
    'bertjax/data/languages.py',
    'draws.fold(draws.fold(root, group), epoch_n[of_group])',
    'draws.fold(draws.fold(root, group), 0 * epoch_n[of_group])',
    'tests/data/languages_test.py::test_every_epoch_of_a_language_has_other_neighbours',
  ),
  Mutation(
    'causal: the last token predicts the next example',
    'bertjax/data/lm.py',
    'np.append(example_n[1:] == example_n[:-1], False)',
    'np.append(example_n[1:] >= example_n[:-1], False)',
    'tests/data/lm_test.py',
  ),
  Mutation(
    'XLM masking: the first token has a coin',
    'bertjax/data/xlm_mask.py',
    'rows.position_n[index_n] > 0',
    'rows.position_n[index_n] >= 0',
    'tests/data/xlm_mask_test.py',
  ),
  Mutation(
    'XLM masking: rare words come last',
    'bertjax/data/xlm_mask.py',
    '-np.log1p(-turn_n) / weight_n',
    '-np.log1p(-turn_n) * weight_n',
    'tests/data/xlm_mask_test.py::test_rare_words_come_first',
  ),
  Mutation(
    'XLM masking: padding does not count',
    'bertjax/data/xlm_mask.py',
    'tokens_B.reshape(-1, mask.block).max(1)',
    'tokens_B.reshape(-1, mask.block).mean(1)',
    'tests/data/xlm_mask_test.py::test_a_block_draws_its_number_of_positions',
  ),
  Mutation(
    'XLM masking: a row alone is a block',
    'bertjax/data/plans.py',
    "corruption.block(self.recipe) if hasattr(corruption, 'block') else 1",
    '1',
    'tests/data/xlm_mask_test.py::test_a_row_asked_for_alone_equals_the_row_in_its_batch',
  ),
  Mutation(
    'streams: no separator at the head',
    'bertjax/data/xlm_stream.py',
    'head, tail = place_of(begin_s) - 1, place_of(end_s)',
    'head, tail = place_of(begin_s), place_of(end_s)',
    'tests/data/xlm_stream_test.py::test_equals_the_loop',
  ),
  Mutation(
    'streams: parallel text belongs to them',
    'bertjax/data/xlm_stream.py',
    'if not parallel_S[span[0]]',
    'if span',
    'tests/data/xlm_stream_test.py::test_equals_the_loop',
  ),
  Mutation(
    'translation: positions run on',
    'bertjax/data/tlm.py',
    'two(np.zeros_like(a_E), (a_E + 2) * (1 - single_E))',
    'two(np.zeros_like(a_E), 0 * a_E)',
    'tests/data/tlm_test.py::test_the_layout_of_a_pair',
  ),
  Mutation(
    'translation: the middle has the language of the source',
    'bertjax/data/tlm.py',
    'two(a_E + 2 - single_E, b_E + 2)',
    'two(a_E + 2, b_E + 2 - single_E)',
    'tests/data/tlm_test.py::test_the_layout_of_a_pair',
  ),
  Mutation(
    'attention: other languages are visible',
    'bertjax/models/bert.py',
    "(example_BT << 8) + batch['language_BT']",
    "(example_BT << 8) + 0 * batch['language_BT']",
    'tests/models_test.py::test_attention_may_keep_to_a_language',
  ),
  Mutation(
    'languages: ids in the order of the store',
    'bertjax/data/languages.py',
    'names.index(name) for name in store.languages',
    'store.languages.index(name) for name in store.languages',
    'tests/data/xlm_stream_test.py::test_ids_are_those_of_the_config',
  ),
  Mutation(
    'blocks: a block has two languages',
    'bertjax/data/sentences.py',
    'limit = np.minimum(limit, _language_ends(language, place, owner))',
    'pass',
    'tests/data/sentences_test.py::test_blocks_end_with_their_language',
  ),
  Mutation(
    'pairs: random text of any language',
    'bertjax/data/languages.py',
    'place_n = self.start_l[language_n] + draws',
    'place_n = draws',
    'tests/data/pairs_test.py::test_a_random_segment_is_of_the_same_language',
  ),
  Mutation(
    "model: biases start at zero in torch's linear",
    'bertjax/models/layers.py',
    'return uniform, uniform',
    'return uniform, jax.nn.initializers.zeros',
    'tests/objectives/xlm_test.py::test_initial_values_are_those_of_the_original',
  ),
  Mutation(
    'model: sinusoids of another period',
    'bertjax/models/bert.py',
    '10000 ** (np.arange(0, width, 2) / width)',
    '10000 ** (np.arange(1, width + 1, 2) / width)',
    'tests/objectives/xlm_test.py::test_sinusoids_are_those_of_the_original',
  ),
)


def survives(mutation: Mutation) -> str | None:
  """Applies the edit to a copy and runs its test; None if the test went red, else what is wrong."""
  with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder, 'main')
    ignore = shutil.ignore_patterns('.git', '.venv', 'runs', '__pycache__')
    shutil.copytree(ROOT, copy, ignore=ignore)
    if (ROOT.parent / 'shared').exists():
      (copy.parent / 'shared').symlink_to(ROOT.parent / 'shared')
    path = copy / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
      return f'{mutation.file} holds its text {text.count(mutation.old)} times, expected once'
    path.write_text(text.replace(mutation.old, mutation.new))
    done = subprocess.run(
      [sys.executable, '-m', 'pytest', '-x', '-m', 'full or not full', mutation.test],
      cwd=copy,
      env=dict(os.environ, PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE='1'),
      capture_output=True,
      text=True,
      check=False,
    )
    if done.returncode == 1:
      return None
    return f'{mutation.test} ended with {done.returncode}: {done.stdout[-300:]}'


def main(part: str = '') -> int:
  """Runs the mutations whose name holds `part`; returns how many survived."""
  chosen = [m for m in MUTATIONS if part in m.name]
  survivors = 0
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for mutation, problem in zip(chosen, pool.map(survives, chosen), strict=True):
      survivors += problem is not None
      print(f'{"SURVIVED" if problem else "caught  "}  {mutation.name}', flush=True)
      if problem:
        print(f'          {problem}', flush=True)
  print(f'{len(chosen) - survivors} of {len(chosen)} caught')
  return survivors


if __name__ == '__main__':
  sys.exit(bool(main(*sys.argv[1:])))
