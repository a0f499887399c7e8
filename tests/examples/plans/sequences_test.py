"""DistilBERT's sequences against LmSeqsDataset, written anew; what is left out, and counted."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import SPECIAL, random_store, spoken
from toy_store import distilbert as recipe

from bertjax.examples import examples as examples_lib

CLS, SEP, UNK = SPECIAL['cls'], SPECIAL['sep'], SPECIAL['unk']


def original(store, length, least=12, most=0.5):
  """The sequences of LmSeqsDataset: those too long cut, short ones and unknown ones removed."""
  found = []
  for first, last in zip(store.sentences[:-1], store.sentences[1:], strict=True):
    whole = [CLS, *store.tokens[first:last].tolist(), SEP]
    parts = [whole]
    if len(whole) > length:
      parts = [whole[i : i + length - 2] for i in range(0, len(whole), length - 2)]
    for part in parts:
      part = part if part[0] == CLS else [CLS, *part]
      part = part if part[-1] == SEP else [*part, SEP]
      found.append(part)
  found = [part for part in found if len(part) >= least]
  return [part for part in found if part.count(UNK) / len(part) < most]


def made(store, config, length):
  """The examples of a plan, in order, and what it counts."""
  examples = examples_lib.examples_in_memory(store, config, length, 0)
  clean = recipe(mask__mask_share=0.0, mask__random_share=0.0, mask__block=1)
  clean.plan = config.plan
  shown = examples_lib.examples_in_memory(store, clean, length, 0)
  batch = shown.batch(np.arange(shown.rows), shuffle=False)
  real_BT = batch['example_BT'] > 0
  rows = [row[real].tolist() for row, real in zip(batch['token_BT'], real_BT, strict=True)]
  return rows, examples.count


def unknown_store(share=0.3):
  store = random_store(150)
  store.tokens[np.random.default_rng(1).random(len(store.tokens)) < share] = UNK
  return store


@pytest.mark.parametrize('length', [13, 14, 20, 64])
@mutation('begin_n = np.maximum(number_n * room - 1, 0)', 'begin_n = number_n * room')
@mutation("['length'] >= spec.options.min_tokens", "['length'] - 2 >= spec.options.min_tokens")
@mutation('unknown_E < options.max_unknown ', 'unknown_E <= options.max_unknown ')
@mutation('if plan.keep is not None:', 'if False:')
@mutation('{k: value_E[stays_E] for k, value_E in column.items()}, count', 'column, count')
def test_sequences_are_those_of_the_original_and_what_is_left_out_is_counted(length):
  store = unknown_store()
  rows, counts = made(store, recipe(), length)
  wanted = original(store, length)
  assert rows == wanted
  # A last piece of [SEP] alone is none.
  known, every = original(store, length, most=1.1), original(store, length, 3, 1.1)
  assert counts['unknown_sequences'] == len(known) - len(wanted) > 0
  assert counts['short_sequences'] == len(every) - len(known) > 0
  assert counts['cut_sentences'] == (np.diff(store.sentences) + 2 > length).sum()
  assert counts['tokens'] == sum(map(len, wanted))


def test_a_sequence_knows_its_language():
  store = spoken(random_store(60))
  config = recipe(plan__min_tokens=4, language_alpha=0.7)
  examples = examples_lib.examples_in_memory(store, config, 12, 0)
  sentence_n = np.searchsorted(store.sentences, examples.column['start'], 'right') - 1
  language_S = store.columns['language']
  np.testing.assert_array_equal(examples.column['group'], language_S[sentence_n])
