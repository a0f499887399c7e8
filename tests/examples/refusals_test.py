"""Plans and maskings that cannot work with a store, a length or each other are refused, and nothing
is written."""

import numpy as np
import pytest
from toy_store import (
  DIALOGUES,
  SPECIAL,
  continued,
  distilbert,
  electra,
  ernie,
  on_disk,
  random_store,
  recipe,
  spans,
  spoken,
  xlm,
  xlnet,
  xlnet_store,
)
from toy_store import albert as order

from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes


def lone_sentences():
  store = random_store(3)
  store.sentences, store.documents = store.sentences[:4], np.arange(4)
  return store


def without(part):
  store = random_store()
  store.special['sep'] = None if part == 'sep' else SPECIAL['sep']
  store.counts *= part != 'counts'
  return store


def rows_of(**changes):
  changes = dict(reuse_len=24, perm_size=12) | changes
  mask = {f'mask__{name}': value for name, value in changes.items()}
  return xlnet(plan__reuse_len=changes['reuse_len'], **mask)


def tlm(**changes):
  return xlm(recipes.TRANSLATION_PLAN | dict(orders='given'), **changes)


plain = lambda **more: lambda: random_store(**more)
bilingual = lambda pairs=0, **more: lambda: spoken(random_store(**more), pairs=pairs)
REFUSED = [
  (recipe(), plain(documents=1), 64, 'at least 2 documents, got 1.*plan.name=blocks'),
  (recipe(), lambda: spoken(random_store(3), runs=3), 64, 'same language.* at least 2 .* got 1'),
  (recipe(), plain(), 4, 'length >= 5'),
  (recipe(mask__mask_share=0.95), plain(), 64, 'at most 1 together'),
  (recipe(plan__dupe_factor=0), plain(), 64, r'data.plan \(pairs\).dupe_factor: expected int >= 1'),
  (recipe(pack=0), plain(), 64, 'config.data.pack: expected int >= 1, got 0'),
  (recipe(language_alpha=0.7), plain(), 64, 'prepare the store with languages, or set'),
  (recipe(language_alpha=0.7, pack=2), plain(), 64, 'language by language: expected .*pack=1'),
  (recipe(language_block=4), plain(), 64, 'language_block=4 is read with language_alpha'),
  (order(), plain(documents=1), 64, 'at least 2 documents, got 1'),
  (order(), lone_sentences, 64, 'two sentences and more, got 3 of at most one'),
  (ernie(mask__word_prob=0.0), lone_sentences, 64, 'documents of two sentences and more, got 3'),
  (ernie(), plain(), 64, 'no units'),
  (electra(mask__rate=0.001), plain(), 64, 'no slot'),
  (electra(mask__random_share=0.1), plain(), 64, r'\(electra\): .* got .random_share'),
  (spans(mask__entity_prob=0.5), plain(), 64, 'no units'),
  (spans(mask__never_drawn=('unk',)), plain(), 64, r'never_drawn: .* as in the text.*unk'),
  (spans(), lambda: without('counts'), 64, 'random_share=0'),
  (distilbert(), plain(), 3, "'sequences' needs length >= 4, got rows of 3 .* raise config.length"),
  (distilbert(plan__min_tokens=65), plain(), 64, 'makes no row of 64 tokens.*short_sequences'),
  (ernie(DIALOGUES, plan__turns=40), plain(), 64, "no column 'role'"),
  (tlm(), bilingual(), 64, 'no parallel text: .*two of its languages ar, de, en'),
  (tlm(), plain(), 64, "has no column 'language'"),
  (tlm(), bilingual(4, words=30), 6, "makes no row of 6 tokens of .*'long_pairs': 4.*raise conf"),
  (xlm(recipes.XLM_PLAN, languages=('ar', 'fr')), bilingual(), 32, 'de, en, which have no id.*ar'),
  (xlm(recipes.XLM_PLAN), bilingual(20, documents=20), 32, 'parallel text alone: expected mono'),
  (xlm(recipes.XLM_PLAN), lambda: without('sep'), 32, 'has no sep: expected'),
  (continued(plan__ends='eod'), plain(), 32, "ends='eod'.*special tokens"),
  (continued(plan__drawn=49), plain(), 48, 'drawn=49 is .* config.length=48 columns: raise'),
  (rows_of(reuse_len=44, perm_size=4), xlnet_store, 48, 'expected 1 .. 43 of .*, got 44'),
  (rows_of(), lambda: xlnet_store(1, sentences=1), 48, 'makes no row of 48 tokens'),
  (rows_of(perm_size=5), xlnet_store, 48, 'perm_size=5 must divide both parts of a row, 24 and 24'),
  (rows_of(max_targets=97), xlnet_store, 48, 'lower it'),
]


@pytest.mark.parametrize('config, store, length, message', REFUSED)
def test_what_cannot_work_is_refused(config, store, length, message):
  with pytest.raises(ValueError, match=message):
    examples_lib.examples_in_memory(store(), config, length, 0, rows=4)


def test_nothing_is_written(tmp_path):
  store = on_disk(tmp_path / 'store', special=SPECIAL | dict(mask=None, sep=None))
  for config, message in (
    (recipe(), 'store has no sep, mask: expected one that has them'),
    (recipe(mask__rate=2.0), 'rate'),
  ):
    with pytest.raises(ValueError, match=message):
      examples_lib.make_examples(store, config, 64, 0)
  assert not (tmp_path / 'store' / 'plans').exists()
