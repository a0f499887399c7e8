"""Blocks of sentences against loops over the stream (fairseq's three break modes)."""

import numpy as np
import pytest
from mutation import mutation
from toy_store import laid, random_store, roberta, spec_of, spoken

from bertjax.examples import examples as examples_lib
from bertjax.store.npy_files import join_columns

CLS, SEP = 2, 3


def stream(store):
  """Documents of sentences, each a list of tokens with its </s>."""
  s, d = store.sentences, store.documents
  return [
    [[*store.tokens[s[i] : s[i + 1]].tolist(), SEP] for i in range(d[j], d[j + 1])]
    for j in range(len(d) - 1)
  ]


def separated(documents):
  """The same with a sentence of a lone </s> behind every document but the last."""
  return [document + [[SEP]] for document in documents[:-1]] + documents[-1:]


def loop(documents, block, across):
  """Whole sentences up to `block` tokens, longer ones cut; one list of tokens per block."""
  out, current = [], []
  for document in documents:
    for sentence in document:
      for piece in (sentence[i : i + block] for i in range(0, len(sentence), block)):
        if len(current) + len(piece) > block:
          out.append(current)
          current = []
        current = current + piece
    if not across:
      out.append(current)
      current = []
  return out + [current] * bool(current)


def blocks_of(store, mode, length, separator=True):
  plan, spec = spec_of(mode_of(mode, separator), length)
  column, _ = join_columns(plan.build(store, spec))
  text = laid(store, plan, spec, column)
  out = [block.tolist() for block in np.split(text.token_n, np.cumsum(text.length_E)[:-1])]
  assert all(block[0] == CLS and len(block) <= length for block in out)
  return [block[1:] for block in out]


def mode_of(mode, separator=True):
  return roberta(plan__break_mode=mode, plan__separator=separator)


def expected(store, mode, block, separator=True):
  documents = stream(store)
  if separator and mode != 'complete_doc':
    documents = separated(documents)
  if mode == 'none':
    flat = [token for document in documents for sentence in document for token in sentence]
    return [flat[i : i + block] for i in range(0, len(flat), block)]
  return loop(documents, block, mode == 'complete')


MODES = ('complete', 'complete_doc', 'none')


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('length', [3, 8, 33])
@pytest.mark.parametrize('separator', [True, False])
@mutation('len(self._documents) - 2', 'len(self._documents) - 1', case='True-8-complete')
@mutation(" and options.break_mode != 'complete_doc'", '', case='True-8-complete_doc')
def test_equals_the_loop(mode, length, separator):
  store = random_store(40, distinct=True)
  ours = blocks_of(store, mode, length, separator)
  assert ours == expected(store, mode, length - 1, separator)


@mutation('separator=True', 'separator=False', file='bertjax/examples/recipes.py')
def test_full_sentences_of_the_recipe_have_a_separator_between_documents():
  """Liu et al. 2019, section 4.2: two </s> side by side, once for each border."""
  store = random_store(30)
  examples = examples_lib.examples_in_memory(store, roberta(mask__rate=1e-9), 4096, 0)
  batch = examples.batch(np.arange(examples.rows), False)
  token_n = batch['token_BT'][batch['example_BT'] > 0]
  assert np.sum((token_n[1:] == SEP) & (token_n[:-1] == SEP)) == 29


@pytest.mark.parametrize('mode', ['complete', 'complete_doc'])
@mutation('limit = np.minimum(limit, _kind_ends(kind, place, owner))', 'pass')
def test_blocks_end_with_their_language(mode):
  store = spoken(random_store(60), runs=7)
  plan, spec = spec_of(mode_of(mode), 33)
  column, _ = join_columns(plan.build(store, spec))
  language_S, bound = store.columns['language'], store.documents
  runs = np.flatnonzero(np.diff(language_S[bound[:-1]], prepend=255))
  documents, out, group = stream(store), [], []
  if mode == 'complete':
    documents = separated(documents)
  for first, last in zip(runs, [*runs[1:], len(documents)], strict=True):
    found = loop(documents[first:last], 32, mode == 'complete')
    out += found
    group += [language_S[bound[first]]] * len(found)
  text = laid(store, plan, spec, column)
  found = np.split(text.token_n, np.cumsum(text.length_E)[:-1])
  assert [block[1:].tolist() for block in found] == out
  assert column['group'].tolist() == group


@pytest.mark.parametrize('mode', ['complete', 'complete_doc'])
@pytest.mark.parametrize('separator', [True, False])
@mutation('of_text_n = kind[owner[at]] % 2 == 0', 'of_text_n = kind[owner[at]] >= 0')
@mutation('  kind_S[first_n + 1] += 1\n', '')
def test_pairs_of_translations_are_no_text(mode, separator):
  """XLM-E's rows of text are those of its monolingual documents alone."""
  store = spoken(random_store(documents=40), pairs=12)
  mono = spoken(random_store(documents=40), pairs=12)
  first = mono.documents[28]
  mono.documents, mono.sentences = mono.documents[:29], mono.sentences[: first + 1]
  mono.columns = dict(language=mono.column('language')[:first])
  found, want = (blocks_of(each, mode, 33, separator) for each in (store, mono))
  # Behind the last document of text is one more separator, where another one follows.
  assert [block[: len(own)] for block, own in zip(found, want, strict=True)] == want
  assert sum(map(len, found)) - sum(map(len, want)) <= 1
