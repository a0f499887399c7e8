"""XLM's streams against a loop over the sentences."""

import numpy as np
import original_goldens as goldens
import pytest
from mutation import mutation
from toy_store import laid, random_store, spec_of, spoken, store_of, xlm

from bertjax.examples import examples as examples_lib
from bertjax.examples import recipes
from bertjax.store.npy_files import join_columns

SEP = 3


def streams(**changes):
  return xlm(recipes.XLM_PLAN, **changes)


def loop(store, length):
  """(language, tokens) of each row: runs of one language, without pairs, end to end."""
  language_S = store.columns.get('language', np.zeros(len(store.sentences) - 1, np.uint8))
  streams, previous = [], None
  for first, last in zip(store.documents[:-1], store.documents[1:], strict=True):
    if last - first == 2 and language_S[first] != language_S[first + 1]:
      previous = None
      continue
    for s in range(first, last):
      if language_S[s] != previous:
        streams.append((int(language_S[s]), [SEP]))
        previous = language_S[s]
      streams[-1][1].extend([*store.tokens[store.sentences[s] : store.sentences[s + 1]], SEP])
  rows = [(k, s[i : i + length]) for k, s in streams for i in range(0, len(s), length)]
  return [(k, row) for k, row in rows if len(row) > 1]


def ours(store, length, **kwargs):
  plan, spec = spec_of(streams(), length)
  column, count = join_columns(plan.build(store, spec, **kwargs))
  text = laid(store, plan, spec, column)
  cut = np.cumsum(text.length_E)[:-1]
  group_E = column.get('group', np.zeros(len(text.length_E), np.int32))
  rows = [row.tolist() for row in np.split(text.token_n, cut)]
  if 'group' in column:
    for language, language_n in zip(
      group_E, np.split(text.ranges.table['language'], cut), strict=True
    ):
      assert (language_n == language).all()
  return list(zip(group_E.tolist(), rows, strict=True)), count


@pytest.mark.parametrize('length', [2, 7, 33, 128])
@pytest.mark.parametrize('kind', ['silent', 'runs', 'runs and pairs'])
@mutation('  head -= before\n', '')
@mutation('if kind_S[span[0]] % 2 == 0', 'if span')
def test_equals_the_loop(kind, length):
  store = random_store(40, distinct=True)
  if kind != 'silent':
    store = spoken(store, pairs=9 * (kind != 'runs'))
  found, count = ours(store, length)
  assert found == loop(store, length)
  if length > 2:  # no sentence has one token, so a row of two may begin inside one or not
    # Distinct tokens number themselves from 5 on.
    begins = [tokens[0] - 5 in store.sentences for _, tokens in found if tokens[0] != SEP]
    assert count['cut_sentences'] == begins.count(False)


@pytest.mark.parametrize('name', ['whole_rows', 'ragged', 'batch_4'])
def test_the_stream_of_the_original(name, shared):
  """dataset.py:StreamDataset fills up with </s> at the head, and each column of a batch lacks its
  last token and begins with one </s> more; ours is one column, whose last row is short."""
  file = goldens.load(shared, 'xlm_batches')
  eos, length = file.given['eos_index'], file.given['bptt']
  sent_n, x_STB = (file.found[f'stream/{name}/{part}'] for part in ('sent', 'x_STB'))
  sentences = [sent_n[first:last] for first, last in file.found[f'stream/{name}/pos']]
  special = dict(pad=file.given['pad_index'], unk=3, cls=0, sep=eos, mask=5)
  rows, _ = ours(store_of([sentences[:40], sentences[40:]], special), length)
  stream = [token for _, row in rows for token in row]
  left_out = name == 'whole_rows'  # a last row of one </s>, which predicts nothing
  assert stream + [eos] * left_out == [eos, *sent_n]
  columns = x_STB.shape[2]
  whole = np.full(x_STB.size, eos)
  whole[x_STB.size - len(sent_n) :] = sent_n
  for column, theirs_SB in zip(np.split(whole, columns), x_STB.transpose(2, 0, 1), strict=True):
    np.testing.assert_array_equal(theirs_SB.ravel(), [eos, *column[:-1]])
  if name == 'whole_rows':  # nothing is filled up: the rows are the same
    np.testing.assert_array_equal([row for _, row in rows], x_STB[..., 0])


@mutation('list(languages).index(name) for name in ', 'self.languages.index(name) for name in ')
def test_ids_are_those_of_the_config():
  store = spoken(random_store(40), languages=2)  # ar, de
  config = streams(languages=('en', 'de', 'ar'))
  examples = examples_lib.examples_in_memory(store, config, 32, 0)
  column = examples.column
  assert sorted(set(column['group'])) == [1, 2]
  first = store.columns['language'][column['sentence'][0]]
  assert column['group'][0] == {0: 2, 1: 1}[int(first)]
  shown = examples.batch(np.arange(examples.rows), shuffle=False)['language_BT']
  np.testing.assert_array_equal(shown[:, 0], column['group'])


@mutation("column['sentences'] - (column['offset'] > 0).astype(np.int32)", "column['sentences']")
def test_languages_are_sampled_by_their_share_of_sentences():
  """XLM: the length of a stream is its sentences; a language of long ones has more rows."""
  rng = np.random.default_rng(0)
  text = lambda count, words: [rng.integers(5, 900, words).tolist() for _ in range(count)]
  store = store_of([text(300, 40), text(600, 4)])
  store.columns = dict(language=np.repeat(np.uint8([0, 1]), [300, 600]))
  store.meta['languages'] = ['de', 'en']
  config = streams(language_alpha=1.0, language_block=1)
  examples = examples_lib.examples_in_memory(store, config, 32, 0)
  blocks_g = np.diff(examples._schedule.blocks_g)
  rows_g = np.bincount(examples.column['group'])
  wanted_g = np.array([300, 600])
  np.testing.assert_allclose(blocks_g / blocks_g.sum(), wanted_g / wanted_g.sum(), atol=1e-3)
  assert rows_g[0] > 3 * rows_g[1]
