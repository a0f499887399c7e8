"""Rows in few shapes, and files of vectors."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy
from mutation import mutation

from bertjax.errors import UserError
from bertjax.use import batches, vectors


@mutation('while count // FEWER * ways >= left and count', 'while count * ways > left and count')
@pytest.mark.parametrize('rows, ways', [(7, 1), (600, 1), (1, 8), (600, 8)])
def test_every_row_is_in_one_batch_that_it_fits(rows, ways):
  length_n = np.random.default_rng(rows).integers(1, 200, rows)
  cuts = list(batches.cuts(length_n, ways, 200, 1024))
  assert sorted(np.concatenate([cut.index_n for cut in cuts])) == list(range(rows))
  for cut in cuts:
    assert len(cut.index_n) <= cut.count and cut.count % ways == 0
    assert length_n[cut.index_n].max() <= cut.length <= 200
  full = {cut.length: cut.count for cut in cuts[:-1]}
  assert all(cut.count == full[cut.length] for cut in cuts[:-1])  # one shape a length
  columns = sum(cut.count * cut.length for cut in cuts)
  assert columns < 1.25 * length_n.sum() + 2 * 1024 * ways


@mutation('kept > spare', 'kept > 0')
@mutation('    if not length or kept > spare:', '    if not length:')
def test_a_shape_is_kept_while_another_is_not_worth_compiling():
  length_n = np.random.default_rng(0).integers(4, 60, 500)
  shapes = lambda found: {(cut.count, cut.length) for cut in found}
  columns = lambda found: sum(cut.count * cut.length for cut in found)
  fine, few, one = (list(batches.cuts(length_n, 1, 64, 1024, n)) for n in (0, 4096, 1 << 30))
  assert len(shapes(fine)) > 8 and len(shapes(few)) in (2, 3, 4) and len(shapes(one)) == 1
  assert columns(fine) < columns(few) < 1.3 * columns(fine) < columns(one)
  for cut in few:
    assert length_n[cut.index_n].max() <= cut.length


@mutation('if any(np.isnan(leaf[:rows]).any()', 'if any(np.isnan(leaf[rows:]).any()')
def test_an_answer_that_is_no_number_is_refused():
  cut, results = batches.Cut(np.array([1, 0]), 4, 8), [{}, {}]
  found = dict(probability_BC=np.full((4, 2), -np.inf, np.float32), id_B=np.arange(4))
  found['probability_BC'][3] = np.nan  # a row that nobody asked for
  batches._land(cut, found, results)
  assert [each['id_B'] for each in results] == [1, 0]
  found['probability_BC'][1, 0] = np.nan
  with pytest.raises(UserError, match='the model answers NaN'):
    batches._land(cut, found, results)


TEXTS, WIDTH = [['a', 'b b', ''], ['ä']], 3
POOLED = [np.arange(9, dtype=np.float32).reshape(3, 3), np.ones((1, 3), np.float32)]
OF_TOKENS = [[np.full((n, 3), n, np.float32) for n in (2, 3, 1)], [np.zeros((4, 3), np.float32)]]


def write(path, parts, tokens=None):
  with vectors.Writer(path, WIDTH, tokens is not None) as writer:
    for number, part in enumerate(parts):
      writer.add(TEXTS[number], part, tokens and tokens[number])


@mutation('        self._count += len(each)\n', '        self._count += 0 * len(each)\n')
@pytest.mark.parametrize('ending', vectors.ENDINGS)
def test_vectors_of_texts_are_read_back(tmp_path, ending):
  path, want = tmp_path / f'out{ending}', np.concatenate(POOLED)
  write(path, POOLED)
  if ending == '.npy':
    got = np.load(path)
  elif ending == '.safetensors':
    got = safetensors.numpy.load_file(path)['embeddings']
  else:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line['text'] for line in lines] == sum(TEXTS, [])
    got = np.array([line['embedding'] for line in lines])
  np.testing.assert_array_equal(got, want)
  assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize('ending', vectors.ENDINGS)
def test_vectors_of_tokens_are_read_back(tmp_path, ending):
  path, want = tmp_path / f'out{ending}', [each for part in OF_TOKENS for each in part]
  names = [[['x'] * len(each) for each in part] for part in OF_TOKENS]
  write(path, OF_TOKENS, names)
  if ending == '.jsonl':
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(line['tokens']) for line in lines] == [2, 3, 1, 4]
    got = [np.array(line['embeddings']) for line in lines]
  else:
    if ending == '.npy':
      flat, offsets = np.load(path), np.load(tmp_path / 'out.offsets.npy')
    else:
      flat, offsets = map(safetensors.numpy.load_file(path).get, ('embeddings', 'offsets'))
    got = np.split(flat, offsets[1:-1])
  for one, other in zip(got, want, strict=True):
    np.testing.assert_array_equal(one, other)


def test_a_failure_leaves_what_was_there(tmp_path):
  path = tmp_path / 'out.npy'
  path.write_text('before')
  with pytest.raises(KeyError), vectors.Writer(path, WIDTH, False) as writer:
    writer.add(TEXTS[0], POOLED[0], None)
    raise KeyError
  assert path.read_text() == 'before' and os.listdir(tmp_path) == ['out.npy']
