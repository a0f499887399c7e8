"""The token store: what is written is read back, and nothing broken is opened."""

import json
import shutil

import numpy as np
import pytest
from mutation import mutation
from small_stores import write_store
from toy_store import signed

from bertjax.store.reader import open_store
from bertjax.store.writer import Writer, remove_sides

SPECIAL = dict(cls=2, sep=3, pad=0, mask=4, unk=1)
VOCABULARY = dict(type='wordpiece', size=1000, sha256='', special=SPECIAL)


def random_documents(seed=0, documents=40):
  draw = np.random.default_rng(seed)
  return [
    [draw.integers(5, 1000, draw.integers(1, 20)).tolist() for _ in range(draw.integers(1, 6))]
    for _ in range(documents)
  ]


def stored(path, documents, cuts):
  """A store of documents, with a part for every `cuts` of them and one for the rest."""
  writer = Writer(path, 1000)
  for number, document in enumerate(documents, 1):
    writer.add(
      np.concatenate(document), np.array([len(s) for s in document]), np.array([len(document)])
    )
    if number % cuts == 0:
      writer.cut()
  writer.cut()
  writer.finish(np.ones(1000, bool), dict(name='x', vocabulary=VOCABULARY, source=[]))
  remove_sides(path)
  return open_store(path)


@pytest.mark.parametrize('cuts', [1, 7])
def test_gather_reads_any_ranges_of_any_parts(tmp_path, cuts):
  documents = random_documents()
  store = stored(tmp_path / 'store', documents, cuts)
  sentences = [sentence for document in documents for sentence in document]
  assert store.meta['parts'] == 40 // cuts + 1
  assert store.documents.tolist() == np.cumsum([0] + [len(d) for d in documents]).tolist()
  assert store.counts.tolist() == np.bincount(np.concatenate(sentences), minlength=1000).tolist()
  start_n, length_n = store.sentences[:-1], np.diff(store.sentences)
  order = np.random.default_rng(1).permutation(len(sentences))
  for index in (np.arange(len(sentences)), order, order[:0]):
    expected = [token for i in index for token in sentences[i]]
    got = store.gather(start_n[index], length_n[index])
    assert got.dtype == np.int32 and got.tolist() == expected
  # Ranges inside sentences, empty ones among them.
  inner = store.gather(start_n + 1, length_n - 1)
  assert inner.tolist() == [token for sentence in sentences for token in sentence[1:]]


@mutation('parts = lambda found: tuple(part[::-1] for part in found[::-1])', 'parts = tuple')
@mutation('offset_n[-1] - offset_n[::-1]', 'offset_n')
def test_a_turned_store_reads_the_text_from_its_end(tmp_path):
  documents = random_documents()
  store = stored(tmp_path / 'store', documents, 7).turned()
  assert store.documents.tolist() == np.cumsum([0] + [len(d) for d in documents[::-1]]).tolist()
  sentences = [sentence[::-1] for document in documents[::-1] for sentence in document[::-1]]
  start_n, length_n = store.sentences[:-1], np.diff(store.sentences)
  assert store.gather(start_n, length_n).tolist() == np.concatenate(sentences).tolist()
  assert store.gather(start_n[3:5] + 1, length_n[3:5] - 1).tolist() == [
    token for sentence in sentences[3:5] for token in sentence[1:]
  ]


def test_ids_above_16_bits_are_kept(tmp_path):
  vocabulary = VOCABULARY | dict(size=70_000)
  write_store(tmp_path / 'store', [[[69_999, 5]]], vocabulary)
  store = open_store(tmp_path / 'store')
  assert store.parts[0].dtype == np.uint32
  assert store.gather(np.array([0]), np.array([2])).tolist() == [69_999, 5]


def edit_meta(path, **changes):
  meta = json.loads((path / 'store.json').read_text())
  (path / 'store.json').write_text(json.dumps(signed(meta | changes)))


BROKEN = dict(
  no_description=(lambda p: (p / 'store.json').unlink(), 'it has no store.json'),
  future=(lambda p: edit_meta(p, format=99), 'format 99, .* reads format 2'),
  foreign=(lambda p: (p / 'store.json').write_text('{"a": 1}'), 'not the description'),
  zeros=(lambda p: (p / 'store.json').write_bytes(bytes(900)), 'not the description'),
  no_files=(lambda p: edit_meta(p, files=[]), 'lacks the sizes or the sha256'),
  no_sha256=(
    lambda p: (p / 'store.json').write_text('{"format": 2, "files": {}}'),
    'lacks the sizes or the sha256',
  ),
  other_counts=(lambda p: edit_meta(p, tokens=3), 'says 3 for tokens'),
  other_size=(lambda p: edit_meta(p, vocabulary=VOCABULARY | dict(size=9)), 'says 9 for ids'),
  other_dtype=(lambda p: edit_meta(p, dtype='uint32'), 'for dtype'),
)


@pytest.mark.parametrize('name', BROKEN)
def test_broken_store_is_refused(tmp_path, name):
  write_store(tmp_path / 'store', random_documents(), VOCABULARY)
  open_store(tmp_path / 'store')
  damage, message = BROKEN[name]
  damage(tmp_path / 'store')
  with pytest.raises(ValueError, match=message):
    open_store(tmp_path / 'store')


def test_unfinished_store_is_named(tmp_path):
  write_store(tmp_path / 'store', random_documents(), VOCABULARY)
  shutil.move(tmp_path / 'store', tmp_path / 'store.partial')
  with pytest.raises(ValueError, match='store.partial is half written: repeat its command'):
    open_store(tmp_path / 'store')
