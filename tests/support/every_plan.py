"""A recipe of every plan and of every masking, and text that suits them all."""

import numpy as np
from small_stores import write_store
from toy_store import ANYWHERE, DIALOGUES, WHOLE_DOCUMENTS, random_store, spoken, with_units

from bertjax.examples import recipes
from bertjax.store.reader import Store, open_store

LENGTH, ROWS, REUSE = 48, 8, 24
PLANS = dict(
  bilm_columns=dict(name='bilm_columns', ends='sep'),
  blocks=recipes.ROBERTA_PLAN,
  chunks=dict(name='chunks', ends='sep', across=True),
  dialogues=DIALOGUES,
  electra_segments=recipes.ELECTRA_PLAN,
  ernie_pairs=recipes.ERNIE_PLAN,
  lm_columns=dict(name='lm_columns', ends='eod', shuffle_documents=True),
  order_pairs=recipes.ALBERT_PLAN | dict(dupe_factor=2),
  pairs=recipes.BERT_PLAN | dict(dupe_factor=2),
  sequences=recipes.DISTILBERT_PLAN,
  spanbert_blocks=recipes.SPANBERT_PLAN,
  translation_pairs=recipes.TRANSLATION_PLAN,
  xlm_stream=recipes.XLM_PLAN,
  xlnet_columns=dict(name='xlnet_columns', reuse_len=REUSE, both_directions=True),
)
MORE_PLANS = PLANS | {
  'blocks of a document': WHOLE_DOCUMENTS,
  'blocks anywhere': ANYWHERE,
  'sequences of any length': PLANS['sequences'] | dict(min_tokens=1, max_unknown=1.0),
  'chunks of a document': dict(name='chunks', ends='', across=False),
  'columns of text alone': PLANS['lm_columns'] | dict(ends=''),
  'translations with one separator': PLANS['translation_pairs'] | dict(reset_positions=False),
  'columns forwards': PLANS['xlnet_columns'] | dict(both_directions=False),
}
MASKS = {
  'albert_ngrams': recipes.ALBERT_MASK,
  'bert': recipes.BERT_MASK,
  'bert, as RoBERTa': recipes.ROBERTA_MASK,
  'causal': recipes.CAUSAL_MASK,
  'distilbert': recipes.DISTILBERT_MASK | dict(block=4),
  'electra': recipes.ELECTRA_MASK,
  'deberta_windows': recipes.DEBERTA_MASK,
  'diffusion': recipes.DIFFUSION_MASK,
  'ernie': recipes.ERNIE_MASK | dict(block=4),
  'spanbert': recipes.SPANBERT_MASK | dict(entity_prob=0.5),
  'xlm': recipes.XLM_MASK,
  'xlnet_permutation': dict(
    name='xlnet_permutation', reuse_len=REUSE, perm_size=12, context=6, max_words=5,
    static=False, max_targets=0,
  ),
}  # fmt: skip


def write_text(path) -> Store:
  """Documents in three languages, translations, units and roles; no id occurs twice, so that each
  tells its place: ids number the tokens from 5 on."""
  memory = with_units(spoken(random_store(120, sentences=6, words=5, distinct=True), pairs=40))
  s, d = memory.sentences, memory.documents
  split = lambda value_n: [
    [value_n[s[i] : s[i + 1]] for i in range(first, last)]
    for first, last in zip(d[:-1], d[1:], strict=True)
  ]
  by_document = lambda value_S: [
    value_S[first:last].tolist() for first, last in zip(d[:-1], d[1:], strict=True)
  ]
  special = memory.special | dict(eod=memory.special['unk'])
  vocabulary = dict(type='t', size=memory.vocabulary_size, sha256='', special=special)
  columns = dict(
    language=by_document(memory.columns['language']), role=by_document(np.arange(len(s) - 1) % 2)
  )
  write_store(
    path, split(memory.tokens), vocabulary, memory.word_starts, split(memory.units), columns,
    memory.languages,
  )  # fmt: skip
  return open_store(path)


def without_columns(path) -> Store:
  """A few documents alone."""
  special = dict(pad=0, unk=1, cls=2, sep=3, mask=4)
  vocabulary = dict(type='t', size=100, sha256='', special=special)
  write_store(path, [[[5, 6, 7], [8, 9]]] * 4, vocabulary)
  return open_store(path)
