"""ELMo's files in and out: HDF5 and TensorFlow, bit for bit; words, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import tensorflow_cases
from ml_collections import ConfigDict
from mutation import mutation

import bertjax
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.export import importing, originals
from bertjax.formats import directory, tables
from bertjax.formats.originals import bilm, tf1
from bertjax.sources import runs
from configs import elmo


@pytest.fixture(scope='module')
def folder(shared):
  pytest.importorskip('h5py')
  return shared / 'golden' / 'bilm_tf' / 'model'


def arrays(path):
  """The arrays of an HDF5 file by their names."""
  import h5py

  found = {}
  keep = lambda name, x: found.update({name: x[()]} if isinstance(x, h5py.Dataset) else {})
  with h5py.File(path) as file:
    file.visititems(keep)
  return found


@mutation('part=(1, 2)', 'part=(0, 2)')
@mutation("('/lstm_cell/bias', '/LSTMCell/B')", "('/lstm_cell/bias', '/LSTMCell/b')")
def test_weights_come_out_as_they_went_in(folder, tmp_path):
  import safetensors.numpy

  before = arrays(folder / 'lm_weights.hdf5')
  importing.import_model(f'bilm:{folder}/lm_weights.hdf5', tmp_path / 'run')
  said = originals.export(tmp_path / 'run', tmp_path / 'out')
  after = safetensors.numpy.load_file(tmp_path / 'out' / 'model.safetensors')
  assert before.keys() == after.keys() and len(said['tensors']) == len(before)
  for name, x in before.items():
    np.testing.assert_array_equal(after[name], x, err_msg=name)
  given, written = (
    json.loads((path / 'options.json').read_text()) for path in (folder, tmp_path / 'out')
  )
  assert given == written
  card = (tmp_path / 'out' / 'README.md').read_text()
  assert '| class | `bilm-tf` |' in card and '--workdir=bilm:DIR' in card
  again = bertjax.Model.load(f'bilm:{tmp_path}/out')
  texts = ['Colorless green ideas', 'zzz']
  found = [m.embed(texts, 'none') for m in (again, bertjax.Model.load(tmp_path / 'run'))]
  for one, other in zip(*found, strict=True):
    np.testing.assert_array_equal(one, other)


@mutation('words=SOFTMAX[0] in state', 'words=False')
@mutation("{UNKNOWN: '<unk>'}", '{}')
def test_a_checkpoint_of_tensorflow_has_the_softmax_and_the_words(golden, tmp_path):
  theirs, config = golden('elmo_char_skip_sampled')
  start = 'param/'
  before = {n.removeprefix(start): theirs[n] for n in theirs.files if n.startswith(start)}
  tensorflow_cases.write(tmp_path / 'model.ckpt', {f'lm/{n}': x for n, x in before.items()}, 7)
  (tmp_path / 'options.json').write_text(json.dumps(config['options']))
  pieces = ['<S>', '</S>', '<UNK>', *(f'w{n}' for n in range(27))]
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  importing.import_model(f'tf1:{tmp_path}/model.ckpt', tmp_path / 'run')
  run = runs.open_run(tmp_path / 'run')
  assert run.vocabulary.encode_batch(['w3 no'])[0].tolist() == [6, 2, 1]
  after = {name: x for name, _, x in bilm.tensors(run.params(), run.config.model)}
  assert after.keys() == {bilm.dumped(f'lm/{name}') for name in before}
  for name, x in before.items():
    np.testing.assert_array_equal(after[bilm.dumped(f'lm/{name}')], x, err_msg=name)
  originals.export(tmp_path / 'run', tmp_path / 'out')
  assert (tmp_path / 'out' / 'vocab.txt').read_text().split() == pieces
  (tmp_path / 'vocab.txt').write_text('\n'.join(pieces[:-1]))
  with pytest.raises(UserError, match='has 29 different words: expected 30'):
    tf1.open_checkpoint(tmp_path)


@mutation('if model.characters else pieces', '')
@mutation("n in (f'{SCOPE}embedding', SOFTMAX[0])", "n in (SOFTMAX[0], f'{SCOPE}embedding')")
@mutation('outputs=outputs if outputs != size else 0', 'outputs=0')
def test_words_that_are_read_and_never_scored_come_back(tmp_path):
  config = elmo.get_config('test')
  config.model.update(dict(vocab_size=9, outputs=5, characters=0))
  sections.complete(config)
  rows = bilm.rows(config.model)
  shapes = tables.their_shapes(rows, config.model)
  state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
  (tmp_path / 'vocab.txt').write_text('\n'.join(['<S>', '</S>', '<UNK>', *'abcdef']))
  vocabulary = bilm.words(tmp_path, 9)
  params = tables.to_ours(state, rows, config.model)
  (tmp_path / 'run').mkdir()
  runs.write_run(tmp_path / 'run', config, params, vocabulary, {})
  originals.export(tmp_path / 'run', tmp_path / 'out')
  opened = bilm.open_checkpoint(tmp_path / 'out')
  assert opened.model['vocab_size'] == 9 and opened.model['outputs'] == 5
  assert opened.vocabulary.pieces == vocabulary.pieces
  opened.take(ConfigDict(dict(config.model, **opened.model)))


@mutation("any(head.kind != 'word'", "any(head.kind == 'text'", file='bertjax/export/originals.py')
def test_tags_have_no_names_there(tmp_path):
  config = elmo.get_config('test')
  config.model.update(dict(vocab_size=9, words=False, token_labels=(('tag', 3),)))
  sections.complete(config)
  runs.write_run(tmp_path, config, {}, None, {})
  with pytest.raises(UserError, match='heads of a task, which the original has no names for'):
    originals.export(tmp_path, tmp_path / 'out')


@mutation("    raise UserError(\n      f'{OPTIONS} of", "    return (\n      f'{OPTIONS} of")
def test_what_is_no_elmo_is_refused(folder, tmp_path):
  for name in ('no.hdf5', 'weights.hdf5'):
    with pytest.raises(
      UserError, match='there is no file' if name[0] == 'n' else 'bilm-tf is to say'
    ):
      bilm.open_checkpoint(tmp_path / name)
    shutil.copy(folder / 'lm_weights.hdf5', tmp_path / 'weights.hdf5')
  given = json.loads((folder / 'options.json').read_text())
  given['char_cnn']['activation'] = 'tanh'
  (tmp_path / 'x_options.json').write_text(json.dumps(given))
  with pytest.raises(UserError, match="activation is 'tanh'"):
    bilm.open_checkpoint(tmp_path / 'weights.hdf5')
  given['char_cnn'] |= dict(activation='relu', filters=[[1, 4]])
  (tmp_path / 'x_options.json').write_text(json.dumps(given))
  opened = bilm.open_checkpoint(tmp_path / 'weights.hdf5')
  with pytest.raises(UserError, match='lm/CNN/W_cnn_1'):
    opened.take(ConfigDict(opened.model))
  given['char_cnn']['filters'] = [[1, 'x']]
  for wrong, said in (
    (dict(lstm=3), 'to say the sizes'),
    (dict(lstm=[]), 'to say the sizes'),
    (given, r'config.model.filters: expected a tuple of .* got'),
    (dict(lstm=dict(given['lstm'], n_layers='2')), "config.model.layers: expected int .* got '2'"),
  ):
    (tmp_path / 'x_options.json').write_text(json.dumps(wrong))
    with pytest.raises(UserError, match=f'weights.hdf5: .*{said}'):
      directory.whole_model(bilm.open_checkpoint(tmp_path / 'weights.hdf5'), elmo.model('test'))
  (tmp_path / 'weights.hdf5').write_bytes(b'no HDF5')
  with pytest.raises(UserError, match='cannot be read as HDF5'):
    bilm.open_checkpoint(tmp_path / 'weights.hdf5')
