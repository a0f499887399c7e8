"""Checkpoints of TensorFlow 1: heads, what is left out, and what is refused."""

import os

import numpy as np
import original_reading
import pytest
import tensorflow_cases as originals
from mutation import mutation

from bertjax.formats.originals import tf1

WORD_BIAS = 'cls/predictions/output_bias'


@pytest.fixture(scope='module')
def tiny():
  """The tensors of a BERT with a head of 64, which need not be described."""
  return originals.bert(width=64, heads=1)[1]


@mutation('if part[0] not in checkpoint}', '}')
def test_slots_of_the_optimizer_are_counted_and_left_out(tiny, tmp_path):
  originals.write(tmp_path / 'model.ckpt-1000', tiny, step=1000, slots=True)
  plain = original_reading.read(tf1, tmp_path)
  count = len(tiny)
  assert plain.left_out == [f'adam_m ({count} tensors)', f'adam_v ({count} tensors)']


@mutation("words = 'cls/predictions/output_bias' in state", 'words = True')
def test_an_encoder_alone_and_heads_that_are_asked_for(tiny, tmp_path):
  encoder = {name: value for name, value in tiny.items() if not name.startswith('cls/')}
  originals.write(tmp_path / 'model.ckpt', encoder)
  bare = original_reading.read(tf1, tmp_path)
  heads = {key: bare.model[key] for key in ('words', 'pooler', 'labels', 'token_labels')}
  assert heads == dict(words=False, pooler=True, labels=(), token_labels=()) and not bare.made
  assert bare.assumed == [
    'no bert_config.json says the heads: 1, of 64 each',
    "no bert_config.json says the activation: 'gelu'",
  ]
  asked = dict(words=True, pooler=False)
  made = original_reading.read(tf1, tmp_path, asked)
  assert {path.partition('/')[0] for path in made.made} == {'mlm'}
  assert made.params['mlm']['bias'].shape == (256,) and 'pooler' not in made.params
  assert made.left_out == ['bert/pooler/dense/bias', 'bert/pooler/dense/kernel']


ODD = {
  name: np.ones(size, np.float32)
  for name, size in (('bert/odd', 3), ('bert/pooler/dense/bias', 63), (WORD_BIAS, 7))
}


@pytest.mark.parametrize(
  'without, odd, message',
  [
    (
      ('bert/embeddings/LayerNorm/beta', 'bert/pooler/dense/bias'), (),
      r'2 missing \[bert/embeddings/LayerNorm/beta, bert/pooler/dense/bias\], 0 unexpected',
    ),
    ((), ('bert/odd',), r'0 missing \[\], 1 unexpected \[bert/odd\]'),
    (
      (), ('bert/pooler/dense/bias', WORD_BIAS),
      r'output_bias: .* shape \(211,\), got \(7,\); bert/pooler/dense/bias: .*\(64,\), got \(63,\)',
    ),
  ],
  ids=['missing', 'unexpected', 'misshapen'],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_listed(tiny, tmp_path, without, odd, message):
  tensors = {name: value for name, value in tiny.items() if name not in without}
  originals.write(tmp_path / 'model.ckpt', tensors | {name: ODD[name] for name in odd})
  with pytest.raises(ValueError, match=message):
    original_reading.read(tf1, tmp_path)


def test_a_checkpoint_of_another_program_is_refused(tmp_path):
  originals.write(tmp_path / 'model.ckpt', {'some/thing': np.ones(3, np.float32)})
  known = 'an ALBERT, a BERT, an ELECTRA, an XLNet, an ELMo checkpoint'
  with pytest.raises(ValueError, match=f'expected {known}, got variables like some/thing'):
    original_reading.read(tf1, tmp_path)


@mutation('(tf.errors.OpError, ValueError, RuntimeError, IndexError)', '(ZeroDivisionError,)')
@pytest.mark.parametrize('ending', ['index', 'data-00000-of-00001'])
def test_a_file_that_is_cut_off_is_named(tiny, tmp_path, ending):
  originals.write(tmp_path / 'model.ckpt', tiny)
  file = tmp_path / f'model.ckpt.{ending}'
  file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
  with pytest.raises(ValueError, match=r'model\.ckpt: the checkpoint cannot be read'):
    original_reading.read(tf1, tmp_path)


@mutation('os.path.lexists(prefix.with_name', 'os.path.isfile(prefix.with_name')
@mutation("    require_file(file, 'a file of a checkpoint of TensorFlow')", '    pass')
@pytest.mark.parametrize('named', ['model.ckpt', ''])
def test_a_file_that_is_none_is_named(tmp_path, named):
  index, data = tmp_path / 'model.ckpt.index', tmp_path / 'model.ckpt.data-00000-of-00001'
  index.symlink_to('none')
  with pytest.raises(ValueError, match='index is a link to none, which leads to no file'):
    original_reading.read(tf1, tmp_path / named)
  index.unlink()
  index.touch()
  os.mkfifo(data)
  with pytest.raises(ValueError, match='of-00001 is a pipe'):
    original_reading.read(tf1, tmp_path / named)


@pytest.mark.parametrize(
  'fields, message',
  [
    (dict(hidden_act='swish'), "activation is 'swish', which .* expected one of 'gelu'"),
    (dict(num_hidden_layers=3), '16 missing .bert/encoder/layer_2/attention'),
  ],
)
def test_a_json_file_that_does_not_fit_is_refused(tiny, tmp_path, fields, message):
  originals.describe(tmp_path, 'bert_config.json', **fields)
  originals.write(tmp_path / 'model.ckpt', tiny)
  with pytest.raises(ValueError, match=message):
    original_reading.read(tf1, tmp_path)
