"""Every masking over every plan: batches that keep their promises, or a refusal at set-up."""

import functools
import os
import re

import numpy as np
import pytest
from every_plan import LENGTH, MASKS, MORE_PLANS, PLANS, ROWS
from mutation import mutation
from toy_store import MASK, recipe, spec_of

import bertjax.types
from bertjax import data_contracts as types
from bertjax import registry
from bertjax.errors import UserError
from bertjax.examples import examples as examples_lib
from bertjax.examples import layout, plan_and_mask, recipes
from bertjax.examples.plans import ernie_pairs
from bertjax.store.npy_files import join_columns

SEED = 3
# Masking -> plans that it does not go with, and why: rows without a direction have no walk, rows
# side by side no blocks.
COLUMNS = 'bilm_columns lm_columns xlnet_columns'
REFUSED = {
  'xlnet_permutation': (
    'bilm_columns blocks chunks dialogues electra_segments ernie_pairs lm_columns order_pairs '
    'pairs sequences spanbert_blocks translation_pairs xlm_stream',
    'the masking reads direction_B, which this plan does not give',
  ),
  'xlm, rare words first': (COLUMNS, 'the masking draws over blocks of rows'),
  'distilbert': (COLUMNS, 'the masking draws over blocks of rows'),
}
TARGETS = {'token_BT', 'target_pos_BP', 'target_BP', 'weight_BP', 'masked_BP', 'dropped_B'}
MORE_KEYS = dict(
  diffusion={'divisor_B'},
  spanbert={'left_BP', 'right_BP', 'offset_BP', 'pair_weight_BP'},
  xlnet_permutation={'order_q_BT', 'order_k_BT'},
)
SPECIAL_TARGETS = (
  'bert, as RoBERTa',
  'diffusion',
  'xlm',
  'xlm, rare words first',
)  # predict [SEP] too


def opened(store, plan, mask, **changes):
  config = recipe(MORE_PLANS[plan], mask, **changes)
  return examples_lib.make_examples(store, config, LENGTH, SEED, rows=ROWS)


def test_every_plan_and_every_masking_is_walked():
  names = lambda table: {value['name'] for value in table.values()}
  assert set(PLANS) == names(PLANS) == set(registry.names_in('bertjax.examples.plans'))
  noises = set(registry.names_in('bertjax.examples.noise'))
  two_texts = ('bart_', 'bilm', 'mass_', 't5_')  # tests/examples/noise has them
  assert names(MASKS) == {name for name in noises if not name.startswith(two_texts)}


@pytest.mark.parametrize('mask', MASKS)
@pytest.mark.parametrize('plan', PLANS)
@mutation('[name for name in recipe.masking.row if name not in recipe.plan.row]', '[]')
@mutation('if recipe.plan.ordered and recipe.masking.block(recipe.mask_options) > 1:', 'if False:')
@mutation(
  '  candidate_n = targets.not_special(rows, store)',
  '  candidate_n = np.arange(len(rows.token_n))',
  file='bertjax/examples/noise/electra.py',
)
@mutation(
  'begins(candidate_c, rows.example_n[candidate_c])', 'begins(candidate_c, 0 * candidate_c)'
)
@mutation('block=lambda options: options.block', 'block=lambda options: 1')
def test_a_plan_goes_with_a_masking_or_is_refused(any_text, plan, mask):
  plans, why = REFUSED.get(mask, ('', ''))
  if plan in plans.split():
    names = f'config.data.plan {plan!r} with config.data.mask {MASKS[mask]["name"]!r}: '
    with pytest.raises(UserError, match=re.escape(names + why)):
      opened(any_text, plan, MASKS[mask])
    return
  packs = (1, 3) if not PLANS[plan]['name'].endswith('_columns') else (1,)
  for pack in packs:
    examples = opened(any_text, plan, MASKS[mask], pack=pack)
    text = opened(any_text, plan, recipes.CAUSAL_MASK, pack=pack)  # shows every token
    first_n = (0, ROWS, examples.rows)  # two that follow each other, and the second epoch
    batches = [examples.batch(n + np.arange(ROWS), shuffle=True) for n in first_n]
    for n, batch in zip(first_n, batches, strict=True):
      check(examples, mask, batch, text.batch(n + np.arange(ROWS), shuffle=True))
    tokens = {batch['token_BT'].tobytes() + batch['target_BP'].tobytes() for batch in batches}
    assert len(tokens) == 3
    if examples.ordered:
      assert [batch['start_B'].tolist() for batch in batches] == [[x] * ROWS for x in (1, 0, 1)]
    alone = examples.batch(np.array([ROWS + 5]), shuffle=True)
    assert all((value[0] == batches[1][name][5]).all() for name, value in alone.items())


def check(examples, mask, batch, text):
  """What holds for every batch; `text` is the same one with nothing hidden."""
  name, slots = MASKS[mask]['name'], examples.template()['target_BP'].shape[1]
  check_schema(batch, name, set(text), dict(T=LENGTH, P=slots, G=examples.recipe.pack))
  for key in set(text) - TARGETS:
    np.testing.assert_array_equal(batch[key], text[key], err_msg=key)
  used_BP, at_BP = batch['weight_BP'] > 0, batch['target_pos_BP']
  assert used_BP.any() and (name == 'diffusion' or set(np.unique(batch['weight_BP'])) <= {0.0, 1.0})
  for key in ('target_pos_BP', 'target_BP', 'masked_BP'):
    assert not batch[key][~used_BP].any(), key
  target_BT = np.zeros((ROWS, LENGTH), bool)
  row_n, _ = np.nonzero(used_BP)
  target_BT[row_n, at_BP[used_BP]] = True
  original_BT, real_BT = text['token_BT'], text['example_BT'] > 0
  assert not (target_BT & ~real_BT).any()
  kinds = examples.recipe.masking.targets
  if 'next' in kinds:
    after_BT = np.where(real_BT, np.roll(original_BT, -1, 1), 0)
    inside_BP = used_BP & (text['example_BT'] == np.roll(text['example_BT'], -1, 1))
    inside_BP[:, -1] = False
    np.testing.assert_array_equal(batch['target_BP'][inside_BP], after_BT[inside_BP])
    assert (at_BP == np.arange(LENGTH))[used_BP].all() and inside_BP.any()
    return np.testing.assert_array_equal(batch['token_BT'], original_BT)
  assert ('permuted' in kinds) == ('order_q_BT' in batch) != ('hidden' in kinds)
  assert ('spans' in kinds) == ('pair_weight_BP' in batch)
  np.testing.assert_array_equal(batch['token_BT'][~target_BT], original_BT[~target_BT])
  assert (np.diff(used_BP.astype(int), axis=1) <= 0).all()  # used slots come first
  least = 0 if mask == 'electra' else 1  # a position may have two slots
  assert (np.diff(at_BP, axis=1) >= least)[used_BP[:, 1:]].all()
  np.testing.assert_array_equal(original_BT[row_n, at_BP[used_BP]], batch['target_BP'][used_BP])
  store = examples.store
  excluded = [] if mask in SPECIAL_TARGETS else [store.special['cls'], store.special['sep']]
  assert not np.isin(batch['target_BP'][used_BP], [store.special['pad'], *excluded]).any()
  if 'permuted' in kinds:  # hides by its permutation
    return np.testing.assert_array_equal(batch['masked_BP'], batch['weight_BP'])
  shown_BP = np.take_along_axis(batch['token_BT'], at_BP, 1)
  assert (shown_BP[batch['masked_BP'] > 0] == MASK).all() and batch['masked_BP'].any()


def check_schema(batch, name, keys, size):
  """Names, shapes and dtypes are those of types.py."""
  assert set(batch) == keys | TARGETS | MORE_KEYS.get(name, set())
  known = set(re.findall(r'\w+_B[TPG]?\b', bertjax.types.__doc__))
  for key, value in batch.items():
    letter = re.fullmatch(r'\w+_B([TPG]?)', key)[1]
    assert value.shape == ((ROWS, size[letter]) if letter else (ROWS,)), key
    weights = key.endswith(('weight_BP', 'masked_BP', 'weight_BG', 'divisor_B'))
    assert value.dtype == (np.float32 if weights else np.int32), key
    assert key in known | LABELS, key


# Of the plans: what stands for <name>_BG and <name>_BT in the schema; dropped_B goes to the loader.
LABELS = {'order_BG', 'follows_BG', 'fake_BG', 'language_BT', 'role_BT', 'dropped_B'}


class OffsetsAlone:
  """A store whose tokens and units cannot be read."""

  def __init__(self, store):
    self._store = store

  def __getattr__(self, name):
    if name in ('gather', 'gather_units', 'parts', 'units'):
      raise AssertionError(f'a plan reads {name}')
    return getattr(self._store, name)


@pytest.mark.parametrize('plan', MORE_PLANS)
@mutation(
  '  documents = len(store.documents) - 1\n',
  '  documents = len(store.documents) - 1\n  store.gather(np.zeros(1, int), np.ones(1, int))\n',
  file='bertjax/examples/plans/pairs.py',
)
def test_a_plan_reads_offsets_and_columns_alone(any_text, plan):
  mute = OffsetsAlone(any_text)
  with pytest.raises(AssertionError, match='reads gather'):
    mute.gather(np.zeros(1, int), np.ones(1, int))
  found = plan_and_mask.open_recipe(recipe(MORE_PLANS[plan], recipes.CAUSAL_MASK))
  spec = types.Spec(found.plan_options, LENGTH, SEED, ROWS)
  build = functools.partial(found.plan.build, spec=spec)
  (column, count), (wanted, wanted_count) = (join_columns(build(s)) for s in (mute, any_text))
  assert count == wanted_count
  for name, value in wanted.items():
    np.testing.assert_array_equal(column[name], value)
  index_E = np.arange(len(column['length']))
  ranges = found.plan.ranges(mute, spec, types.Chosen(column, index_E))
  np.testing.assert_array_equal(ranges.length_E, column['length'])


@pytest.mark.parametrize('plan', MORE_PLANS)
@mutation(
  '  body_n = _ordered(ranges, store.gather_units(ranges.start_r, ranges.length_r))',
  '  body_n = store.gather_units(ranges.start_r, ranges.length_r)',
)
@mutation(
  'return _shown(ranges, fill(_places(ranges), ranges.special_s, 1, body_n)).astype(np.uint8)',
  'return fill(_places(ranges), ranges.special_s, 1, body_n)[: len(rows.token_n)].astype(np.uint8)',
)
def test_a_token_has_the_unit_that_it_has_in_the_store(any_text, plan):
  """In all rows of a second epoch."""
  found, spec = spec_of(recipe(MORE_PLANS[plan], recipes.CAUSAL_MASK), LENGTH, SEED, ROWS)
  column, _ = join_columns(found.build(any_text, spec))
  index_E = np.arange(len(column['length']))
  ranges = found.ranges(any_text, spec, types.Chosen(column, index_E, 1, True))
  key_E = np.zeros(len(index_E), np.uint64)
  rows = layout.lay_out(ranges, any_text, index_E, key_E, (len(index_E), LENGTH))
  # Ids number the tokens of the store from 5 on; what lies below is special.
  wanted = [int(any_text.units[0][t - 5]) if t >= 5 else 1 for t in rows.token_n.tolist()]
  got = layout.units(rows, any_text)
  assert got.dtype == np.uint8 and len(set(wanted)) == 3
  assert got.tolist() == wanted


WINDOWED = {
  name: plan for name, plan in MORE_PLANS.items() if not plan['name'].endswith('_columns')
}


@pytest.mark.parametrize('plan', WINDOWED)
def test_a_plan_depends_on_neither_its_window_nor_the_cores(any_text, plan, monkeypatch):
  monkeypatch.setattr(ernie_pairs, 'BUFFER', 50)
  found, spec = spec_of(recipe(WINDOWED[plan], recipes.CAUSAL_MASK), LENGTH, SEED)
  whole, count = join_columns(found.build(any_text, spec))
  assert len(whole['length']) > 20
  for window, cores in ((1, 1), (13, 7), (200, 2)):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _, cores=cores: range(cores))
    column, counts = join_columns(found.build(any_text, spec, window))
    assert counts == count and column.keys() == whole.keys()
    # Where a dialogue has no turn, any start will do.
    assert all((column[k] == value).all() for k, value in whole.items() if 'start_' not in k)
    one, two = (found.ranges(any_text, spec, types.Chosen(c, None)) for c in (column, whole))
    np.testing.assert_array_equal(one.start_r, two.start_r)
