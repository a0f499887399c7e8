"""Chunks are the text of the store, whole and in order, each token once."""

import dataclasses

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, recipe

from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes

LENGTH = 16


def chunks_of(store, ends, across, pack=1, frame=False):
  plan = dict(name='chunks', ends=ends, across=across, frame=frame)
  chosen = recipe(plan, recipes.CAUSAL_MASK, pack=pack)
  found = examples_lib.examples_in_memory(store, chosen, LENGTH, 1)
  batch = found.batch(np.arange(found.rows), shuffle=False)
  return found, [
    row[example == number].tolist()
    for row, example in zip(batch['token_BT'], batch['example_BT'], strict=True)
    for number in range(1, example.max() + 1)
  ]


def documents_of(store, ends):
  edges = store.sentences[store.documents]
  end = [store.special['sep']] if ends else []
  return [store.tokens[a:b].tolist() + end for a, b in zip(edges[:-1], edges[1:], strict=True)]


def cut(text, length=LENGTH):
  return [text[at : at + length] for at in range(0, len(text), length)]


@pytest.mark.parametrize('ends', ['', 'sep'])
@pytest.mark.parametrize('across', [True, False])
@mutation('-(-(end_n - begin_n) //', '((end_n - begin_n) //')
def test_chunks_are_the_documents_cut(ends, across):
  store = random_store(30, distinct=True)
  texts = documents_of(store, ends)
  wanted = cut(sum(texts, [])) if across else sum(map(cut, texts), [])
  _, chunks = chunks_of(store, ends, across)
  assert chunks == wanted
  _, packed = chunks_of(store, ends, across, pack=4)
  assert sorted(packed) == sorted(wanted)


@pytest.mark.parametrize('ends', ['', 'sep'])
@mutation('place_s + FRAME * before_s - 1', 'place_s + FRAME * before_s')
def test_in_a_frame_each_chunk_stands_between_cls_and_sep(ends):
  store = random_store(30, distinct=True)
  wanted = cut(sum(documents_of(store, ends), []), LENGTH - 2)
  _, chunks = chunks_of(store, ends, across=True, frame=True)
  assert chunks == [[store.special['cls'], *text, store.special['sep']] for text in wanted]


@mutation('edge_D[1:] |= language_D[1:] != language_D[:-1]', 'pass')
def test_a_chunk_has_one_language_and_no_translations():
  store = random_store(12, distinct=True)
  documents = len(store.documents) - 1
  language_D = np.repeat([0, 1, 0], [5, 4, documents - 9])
  language_S = np.repeat(language_D, np.diff(store.documents)).astype(np.uint8)
  store = dataclasses.replace(
    store, columns=dict(language=language_S), meta=dict(languages=['en', 'fr'])
  )
  found, chunks = chunks_of(store, '', True)
  texts = documents_of(store, '')
  groups = [sum(texts[a:b], []) for a, b in ((0, 5), (5, 9), (9, documents))]
  assert chunks == sum(map(cut, groups), [])
  group = found.column['group']
  assert np.array_equal(
    np.flatnonzero(np.diff(group)) + 1, np.cumsum([len(cut(t)) for t in groups])[:2]
  )
