"""Where the tokens of a batch come from: units and columns of the store, special tokens."""

import every_plan
import numpy as np
import pytest
from every_plan import LENGTH, MORE_PLANS, ROWS
from mutation import mutation
from toy_store import recipe, spec_of

from bertjax.data_contracts import Chosen
from bertjax.examples import layout, recipes
from bertjax.store.npy_files import join_columns


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return every_plan.write_text(tmp_path_factory.mktemp('rows') / 'store')


def rows_of(store, plan, shuffle=False):
  """All rows of the second epoch of a plan."""
  opened, spec = spec_of(recipe(plan, recipes.CAUSAL_MASK), LENGTH, seed=3, rows=ROWS)
  column, _ = join_columns(opened.build(store, spec))
  index_E = np.arange(len(column['length']))
  ranges = opened.ranges(store, spec, Chosen(column, index_E, 1, shuffle))
  key_E = np.zeros(len(index_E), np.uint64)
  return layout.lay_out(ranges, store, index_E, key_E, (len(index_E), LENGTH))


def examples_of(rows):
  """The ids of each example, as lists."""
  return [part.tolist() for part in np.split(rows.token_n, np.cumsum(rows.length_E)[:-1])]


def is_text(token):
  """Ids number the tokens of the store from 5 on; what lies below is special."""
  return token >= 5


@pytest.mark.parametrize('shuffle', [False, True])
@pytest.mark.parametrize('name', MORE_PLANS)
@mutation(
  '  body_n = _ordered(ranges, store.gather_units(ranges.start_r, ranges.length_r))',
  '  body_n = store.gather_units(ranges.start_r, ranges.length_r)',
)
@mutation(
  'return _shown(ranges, fill(_places(ranges), ranges.special_s, 1, body_n)).astype(np.uint8)',
  'return fill(_places(ranges), ranges.special_s, 1, body_n)[: len(rows.token_n)].astype(np.uint8)',
)
def test_a_token_has_the_unit_that_it_has_in_the_store(store, name, shuffle):
  rows = rows_of(store, MORE_PLANS[name], shuffle)
  unit_n = store.units[0]
  wanted = [int(unit_n[t - 5]) if is_text(t) else 1 for t in rows.token_n.tolist()]
  got = layout.units(rows, store)
  assert got.dtype == np.uint8 and len(set(wanted)) == 3
  assert got.tolist() == wanted


def values_of(store, name, example):
  """The values of an example in a column, token by token."""
  sentence = lambda token: np.searchsorted(store.sentences, token - 5, 'right') - 1
  known = [int(store.column(name)[sentence(t)]) if is_text(t) else None for t in example]
  first = next(value for value in known if value is not None)
  out = []
  for value in known:
    out.append(value if value is not None else out[-1] if out else first)
  return out


@pytest.mark.parametrize('name', MORE_PLANS)
@mutation('- 1, np.repeat(before_E, length_E)', '- plain_n, np.repeat(before_E, length_E)')
@mutation('np.repeat(sentence_n, size_n)', 'np.repeat(first_r, length_r)')
def test_a_token_has_the_value_of_its_sentence(store, name):
  rows = rows_of(store, MORE_PLANS[name], shuffle=True)
  for column in ('role', 'language'):
    wanted = [v for example in examples_of(rows) for v in values_of(store, column, example)]
    got = layout.column(rows, store, column)
    assert got.dtype == np.int32 and len(set(wanted)) == 2 + (column == 'language')
    assert got.tolist() == wanted


def test_what_a_store_lacks_is_named(store, tmp_path):
  bare = every_plan.without_columns(tmp_path / 'bare')
  rows = rows_of(bare, recipes.ROBERTA_PLAN)
  with pytest.raises(ValueError, match="no column 'language', only none.*LANGUAGE=FILES"):
    layout.column(rows, bare, 'language')
  with pytest.raises(ValueError, match='has no units.*--lexicon=FILES'):
    layout.units(rows, bare)


@mutation('b_first_n + (rest_n + 1) // 2', 'b_first_n + rest_n // 2')
@mutation('np.clip(a_n - b_n, 0, excess_n)', '0 * excess_n')
def test_the_longer_text_loses_token_by_token():
  for first in range(13):
    for second in range(13):
      for room in range(1, 20):
        sizes = [first, second]
        while sum(sizes) > room:
          sizes[0 if sizes[0] > sizes[1] else 1] -= 1
        lost = layout.truncated(np.array([first]), np.array([second]), room)
        assert [first - lost[0][0], second - lost[1][0]] == sizes, (first, second, room)
