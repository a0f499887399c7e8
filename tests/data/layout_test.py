"""Where the tokens of a batch come from: units and columns of the store, special tokens."""

import itertools

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, recipe, roberta

from bertjax.data import examples as examples_lib
from bertjax.data import layout
from bertjax.data.store.reader import open_store
from bertjax.data.store.writer import write_store

mutation(
  'rows: special tokens get the value of what follows',
  'bertjax/data/layout.py',
  'np.maximum(until_n - 1, np.repeat(before_E, text.length_E))',
  'np.maximum(until_n - plain_n, np.repeat(before_E, text.length_E))',
)

VOCABULARY = dict(type='t', size=1000, sha256='', special=dict(pad=0, unk=1, cls=2, sep=3, mask=4))
PLANS = (
  recipe(),
  recipe(plan='spanbert_blocks', keep_block=False),
  roberta(),
  roberta(plan='contiguous'),
)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """A store in which each sentence has a role, and each unit follows from its token."""
  memory = random_store()
  s, d = memory.sentences, memory.documents
  ranges = list(itertools.pairwise(d))
  documents = [
    [memory.tokens[s[i] : s[i + 1]] for i in range(a, b)]
    for a, b in zip(d[:-1], d[1:], strict=True)
  ]
  path = tmp_path_factory.mktemp('rows') / 'store'
  roles = [[17 * i % 5 for i in range(*r)] for r in ranges]
  units = [[sentence % 3 for sentence in document] for document in documents]
  write_store(
    path, documents, VOCABULARY, memory.word_starts, units, dict(role=roles), ['en', 'de']
  )
  return open_store(path)


def text_of(store, config):
  plan = examples_lib.find('plan', config.plan)
  examples = examples_lib.examples_in_memory(store, config, 48, 0)
  return plan.assemble(store, {k: column[:200] for k, column in examples.column.items()})


@pytest.mark.parametrize('config', PLANS, ids=lambda c: c.plan)
def test_plans_say_where_their_tokens_come_from(store, config):
  text = text_of(store, config)
  special_n = np.isin(text.token_n, [2, 3])
  assert sorted(text.source.special_n) == np.flatnonzero(special_n).tolist()
  want = np.where(special_n, 1, text.token_n % 3)
  got = layout.units(text, store)
  assert got.dtype == np.uint8
  np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize('config', PLANS, ids=lambda c: c.plan)
def test_tokens_have_the_value_of_their_sentence(store, config):
  text = text_of(store, config)
  owner, offset = layout.ragged(text.source.length_n)
  token = text.source.start_n[owner] + offset
  sentence = np.searchsorted(store.sentences, token, 'right') - 1
  got, plain = layout.column(text, store, 'role'), np.ones(len(text.token_n), bool)
  plain[text.source.special_n] = False
  np.testing.assert_array_equal(got[plain], 17 * sentence % 5)
  start = layout.starts(text.length_E)
  np.testing.assert_array_equal(got[start], got[start + 1])
  rest = np.setdiff1d(text.source.special_n, start)
  np.testing.assert_array_equal(got[rest], got[rest - 1])


def test_what_a_store_lacks_is_named(store):
  text = text_of(store, recipe())
  with pytest.raises(ValueError, match="no column 'language', only role.*LANGUAGE=FILES"):
    layout.column(text, store, 'language')
  with pytest.raises(ValueError, match='expected assemble.. to set `source`'):
    layout.units(text._replace(source=None), store)
