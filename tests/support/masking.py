"""Masked batches for the tests of corruptions."""

import numpy as np
from toy_store import (
  SPECIAL,
  WHOLE_DOCUMENTS,
  MemoryStore,
  random_store,
  recipe,
  roberta,
  with_units,
)

from bertjax import counter_rng
from bertjax.data_contracts import Ranges
from bertjax.examples import examples as examples_lib
from bertjax.examples import layout, plan_and_mask

MASKED_LM = {
  'bert': recipe(),
  'bert-words': recipe(mask__whole_word=True),
  'bert-packed': recipe(pack=8),
  'roberta': roberta(),
  'roberta-words': roberta(mask__whole_word=True),
  'roberta-packed': roberta(WHOLE_DOCUMENTS, pack=8),
}


def masked(config, length=128, rows=400, store=None, **changes):
  """A batch, the same rows with nothing shown as corrupted, and the store."""
  store = store or with_units(random_store(300))
  examples = examples_lib.examples_in_memory(store, config, length, 1)
  batch = examples.batch(np.arange(rows), shuffle=True)
  original = examples_lib.examples_in_memory(store, unchanged(config), length, 1).batch(
    np.arange(rows), shuffle=True
  )
  return batch, original['token_BT'], store


def unchanged(config):
  """The recipe whose input shows every token as it is."""
  clean = config.copy_and_resolve_references()
  for name in ('mask_share', 'random_share'):
    if name in clean.mask:
      clean.mask[name] = 0.0
  return clean


def at_targets(batch, value_BT):
  used_BP = batch['weight_BP'] > 0
  return np.take_along_axis(value_BT, batch['target_pos_BP'], 1)[used_BP]


def count_of(config, lengths, pack=True, capacity=512):
  """Targets per example of examples of these lengths, packed in one row or alone."""
  store = random_store(3)
  batch = corrupted(config, store, lengths, [0] * len(lengths) if pack else None, capacity)
  used_BP = batch['weight_BP'] > 0
  bounds = np.cumsum([0, *lengths]) if pack else None
  out = []
  for row, used in enumerate(used_BP):
    at = batch['target_pos_BP'][row][used]
    out.append([len(at)] if bounds is None else np.histogram(at, bounds)[0].tolist())
  return out


def placed(lengths, row_E=None, capacity=512, seed=0):
  """Examples of these lengths between [CLS] and [SEP], packed in the rows row_E or each alone."""
  length_E = np.array(lengths, np.int64)
  total = int(length_E.sum())
  token_n = (np.arange(total) % 900 + 5).astype(np.int32)
  start_E = layout.starts(length_E)
  token_n[start_E], token_n[start_E + length_E - 1] = SPECIAL['cls'], SPECIAL['sep']
  special_s = np.concatenate([start_E, start_E + length_E - 1])
  ranges = Ranges(start_E + 1, length_E - 2, special_s, token_n[special_s], length_E)
  store = random_store(1)
  store.tokens = token_n
  row_E = np.arange(len(lengths)) if row_E is None else np.array(row_E)
  key_E = counter_rng.fold(counter_rng.root(seed, 'test'), np.arange(len(lengths)))
  return layout.lay_out(ranges, store, row_E, key_E, (int(row_E[-1]) + 1, capacity))


def corrupted(config, store, lengths, row_E=None, capacity=512, seed=0):
  """What the recipe's corruption makes of `placed` examples."""
  opened = plan_and_mask.open_recipe(config)
  rows = placed(lengths, row_E, capacity, seed)
  return opened.masking.corrupt(rows, opened.mask_options, store)


def mask_options(config):
  """The options of a recipe's masking."""
  return plan_and_mask.open_recipe(config).mask_options


def rows_of(texts, sentence=7, word_starts=None, seed=0):
  """Texts as the examples of a batch, a row each, and their store, of sentences of one length."""
  length_E = np.array([len(text) for text in texts])
  token_n = np.concatenate(texts).astype(np.int32)
  starts = np.ones(1000, bool) if word_starts is None else word_starts
  at_E = layout.starts(length_E)
  edges = [np.arange(0, n, sentence) + at for at, n in zip(at_E, length_E, strict=True)]
  sentences = np.append(np.concatenate(edges), len(token_n))
  documents = np.append(np.searchsorted(sentences, at_E), len(sentences) - 1)
  store = MemoryStore(token_n, sentences, documents, SPECIAL, starts, np.ones(1000, int))
  nothing = np.zeros(0, np.int64)
  ranges = Ranges(at_E, length_E, nothing, nothing.astype(np.int32), length_E)
  key_E = counter_rng.fold(counter_rng.root(seed, 'test'), np.arange(len(texts)))
  shape = len(texts), int(length_E.max())
  return layout.lay_out(ranges, store, np.arange(len(texts)), key_E, shape), store
