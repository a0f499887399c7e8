"""Golden batches: what a recipe makes of a fixed text must not change by accident.

Plans, masks and orders are part of a run's identity: a resumed run rebuilds them. Where a change is
meant, write the files anew and commit them with it:

  BERTJAX_UPDATE_GOLDENS=1 python -m pytest tests/examples/goldens_test.py
"""

import hashlib
import json
import os
import pathlib

import numpy as np
import published
import pytest
from small_stores import write_store
from toy_store import (
  ANYWHERE,
  DIALOGUES,
  WHOLE_DOCUMENTS,
  albert,
  continued,
  distilbert,
  electra,
  ernie,
  ngrams,
  random_store,
  recipe,
  roberta,
  segments,
  spans,
  spoken,
  with_units,
  xlm,
  xlnet,
)

from bertjax.examples import examples as examples_lib
from bertjax.examples import loader, recipes
from bertjax.store.reader import open_store

DIRECTORY = pathlib.Path(__file__).parents[1] / 'goldens'
UPDATE = 'BERTJAX_UPDATE_GOLDENS'
BERT, ROBERTA = recipe(plan__dupe_factor=5), roberta()
CASES = {
  'bert_pairs_128': (BERT, 128),
  'bert_pairs_words_128': (recipe(plan__dupe_factor=5, mask__whole_word=True), 128),
  'bert_pairs_packed_512': (recipe(plan__dupe_factor=5, pack=8), 512),
  'roberta_full_sentences_512': (ROBERTA, 512),
  'roberta_doc_sentences_packed_512': (roberta(WHOLE_DOCUMENTS, pack=8), 512),
  'roberta_contiguous_words_128': (roberta(ANYWHERE, mask__whole_word=True), 128),
  'ngrams_pairs_128': (ngrams(plan__dupe_factor=5), 128),
  'albert_pairs_128': (albert(plan__dupe_factor=5), 128),
  'electra_doc_sentences_packed_512': (electra(WHOLE_DOCUMENTS, pack=8), 512),
  'electra_segments_128': (segments(), 128),
  'spanbert_512': (spans(), 512),
  'spanbert_words_128': (spans(mask__max_words=1), 128),
  'spanbert_tokens_128': (spans(mask__rule='tokens'), 128),
  'spanbert_entities_128': (spans(mask__max_words=1, mask__entity_prob=0.5), 128),
  'ernie_pairs_packed_512': (ernie(plan__dupe_factor=1, pack=8, mask__block=4), 512),
  'ernie_dialogues_128': (ernie(DIALOGUES), 128),
  'distilbert_sequences_packed_128': (distilbert(pack=8, mask__block=4), 128),
  'mbert_pairs_128': (recipe(plan__dupe_factor=5, language_alpha=0.7), 128),
  'xlm_stream_64': (xlm(recipes.XLM_PLAN, language_alpha=0.7, language_block=8), 64),
  'xlm_causal_64': (recipe(recipes.XLM_PLAN, recipes.CAUSAL_MASK, language_alpha=0.0), 64),
  'xlm_translation_64': (xlm(recipes.TRANSLATION_PLAN, language_alpha=0.7, language_block=8), 64),
  'lm_rows_64': (continued(), 64),
  'lm_rows_shuffled_64': (continued(plan__ends='sep', plan__shuffle_documents=True), 64),
  'xlnet_64': (xlnet(plan__reuse_len=32, mask__reuse_len=32, mask__perm_size=16), 64),
}
SAMPLES = {
  'bert_sample_text_128': (BERT, 128, 'bert-base-uncased'),
  'roberta_sample_text_128': (ROBERTA, 128, 'roberta'),
}


def describe(examples, show):
  """What is kept of a recipe: digests of plan and batches, figures, and the first row to read."""
  batches = [loader.Batches(examples, 8).at(index)[0] for index in range(4)]
  plan = hashlib.sha256()
  for name, column in sorted(examples.column.items()):
    plan.update(f'{name} {column.dtype.str} {column.shape}\n'.encode() + column.tobytes())
  used = np.concatenate([batch['weight_BP'].ravel() for batch in batches]) > 0
  masked = np.concatenate([batch['masked_BP'].ravel() for batch in batches])
  real = sum(int((batch['example_BT'] > 0).sum()) for batch in batches)
  row = {name: value[0] for name, value in batches[0].items()}
  slots = int(row['weight_BP'].sum())
  return dict(
    stats={name: round(value, 4) for name, value in examples.stats.items()},
    target_rate=round(float(used.sum() / real), 4),
    mask_share=round(float(masked[used].mean()), 4),
    shapes={name: 'x'.join(map(str, value.shape)) for name, value in sorted(batches[0].items())},
    plan_sha256=plan.hexdigest(),
    batch_sha256=[loader.batch_sha256(batch) for batch in batches],
    first_row=dict(
      shown=show(row['token_BT'][row['example_BT'] > 0][:40]),
      columns=' '.join(map(str, row['target_pos_BP'][:slots])),
      targets=show(row['target_BP'][:slots]),
    ),
  )


def compare(name, got):
  """Compares with the golden file, or writes it where the environment asks for that."""
  file = DIRECTORY / f'{name}.json'
  if os.environ.get(UPDATE):
    file.write_text(json.dumps(got, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
  expected = json.loads(file.read_text(encoding='utf-8'))
  for key in expected:
    assert got[key] == expected[key], (
      f'{key} of {file.name} changed: runs that resume would read other batches. If that is meant, '
      f'run `{UPDATE}=1 python -m pytest {pathlib.Path(__file__).name}` and commit the file'
    )
  assert set(got) == set(expected)


@pytest.mark.parametrize('name', CASES)
def test_batches_of_random_text(name):
  config, length = CASES[name]
  store = with_units(random_store(200))
  store.columns = dict(role=(np.arange(len(store.sentences) - 1) % 2).astype(np.uint8))
  if config.language_alpha is not None:
    store = spoken(store, pairs=60)
  if config.plan.name == 'xlnet_columns':
    store.special['eod'] = store.special['unk']
  examples = examples_lib.examples_in_memory(store, config, length, 12345, rows=8)
  compare(name, describe(examples, lambda ids: ' '.join(map(str, ids))))


def sample_store(path, text, vocabulary):
  """The sample text of google-research/bert: a sentence a line, blank lines between documents."""
  documents = [document.split('\n') for document in text.strip().split('\n\n')]
  ids = [[sentence.tolist() for sentence in vocabulary.encode_batch(d)] for d in documents]
  write_store(path, ids, vocabulary.meta, vocabulary.word_starts)
  return open_store(path)


@pytest.mark.parametrize('name', SAMPLES)
def test_batches_of_the_sample_text(name, shared, tmp_path):
  config, length, folder = SAMPLES[name]
  vocabulary = published.vocabulary(shared, folder)
  text = (shared / 'golden' / 'google_bert' / 'sample_text.txt').read_text(encoding='utf-8')
  store = sample_store(tmp_path / 'store', text, vocabulary)
  examples = examples_lib.make_examples(store, config, length, 12345)
  compare(name, describe(examples, lambda ids: ' '.join(vocabulary.pieces[i] for i in ids)))
