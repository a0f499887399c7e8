"""Language models of fastai: its own scores of the tensors that it saves, its words, refusals."""

import json
import pickle

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import used_models
from flax.core import meta
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import torch

from bertjax import models
from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import resume
from bertjax.errors import UserError
from bertjax.export import importing, originals
from bertjax.formats.originals import awd_lstm_torch
from bertjax.kernels.cross_entropy import logits
from bertjax.models.layers import concat_pool
from configs import ulmfit


@pytest.fixture
def golden(shared):
  return np.load(shared / 'golden' / 'family' / 'ulmfit_fastai.npz')


def saved(golden, folder, words=40):
  """fastai's file as it stands in models/, with its words in tmp/."""
  start = 'lm/param/'
  state = {n.removeprefix(start): golden[n] for n in golden.files if n.startswith(start)}
  aliases = json.loads(str(golden['config']))['aliases']
  state |= {copy: state[name] for copy, name in aliases.items()}
  state['0.rnns.0.module.weight_hh_l0'] = 0 * state['0.rnns.0.weight_hh_l0_raw']  # dropped
  for name in ('models', 'tmp'):
    (folder / name).mkdir()
  path = folder / 'models' / 'fwd.pth'
  torch.save(dict(model={name: torch.tensor(x) for name, x in state.items()}), path)
  pieces = ['_unk_', '_pad_', 'xbos', 'the', *(f'w{i}' for i in range(words - 4))]
  (folder / 'tmp' / 'itos.pkl').write_bytes(pickle.dumps(pieces))
  return path


@mutation('[TORCH_GATES.index(gate) for gate in GATES]', '[0, 1, 2, 3]')
@mutation("state=('weight_hh_l0_raw', 'module", "state=('module.weight_hh_l0', 'module")
def test_the_scores_and_words_of_fastai(golden, tmp_path):
  opened = awd_lstm_torch.open_checkpoint(saved(golden, tmp_path))
  model = models.build(ConfigDict({**ulmfit.model('test'), **opened.model}))
  params = opened.take(None).params
  token_BT = golden['lm/input_SBT'][0]
  batch = dict(token_BT=token_BT, example_BT=np.ones_like(token_BT))
  found = logits(model.apply(dict(params=params), batch)['word'])
  np.testing.assert_allclose(found[..., :40], golden['lm/eval/logits/0'], atol=5e-7)
  vocabulary = opened.vocabulary
  assert vocabulary.size == 40 and vocabulary.special['eos'] == 2
  assert vocabulary.encode_batch(['the w3 no'])[0].tolist() == [3, 7, 0, 2]


@mutation('    raise pickle.UnpicklingError(', '    print(')
def test_what_is_no_list_of_words_or_no_such_model_is_refused(golden, tmp_path):
  path = saved(golden, tmp_path, words=39)
  opened = awd_lstm_torch.open_checkpoint(path)
  assert opened.vocabulary is None and 'different words for 40 rows' in opened.assumed[0]
  itos = tmp_path / 'tmp' / 'itos.pkl'
  itos.write_bytes(pickle.dumps(print))
  with pytest.raises(UserError, match='no pickled list of words: it names builtins.print'):
    awd_lstm_torch.open_checkpoint(path)
  torch.save(dict(weight=torch.ones(1)), path)
  with pytest.raises(UserError, match='no language model of fastai: .* got weight'):
    awd_lstm_torch.open_checkpoint(path)


@mutation("said == ['bwd']", 'False')
@mutation('  if len(said) != 1:\n    raise UserError(\n', '  if len(said) != 1:\n    print(\n')
def test_the_name_of_a_file_tells_its_direction_or_it_is_refused(golden, tmp_path):
  path = saved(golden, tmp_path)
  assert awd_lstm_torch.open_checkpoint(path).model['backward'] is False
  opened = awd_lstm_torch.open_checkpoint(path.rename(path.with_name('bwd_wt103.h5')))
  assert opened.model['backward'] is True
  path = path.with_name('bwd_wt103.h5').rename(path.with_name('x'))
  with pytest.raises(UserError, match='rename it fwd_x or bwd_x'):
    awd_lstm_torch.open_checkpoint(path)


@mutation('np.moveaxis(leaf, 0, -1) if leaf.ndim == 3 else leaf', 'np.moveaxis(leaf, 0, -1)')
@mutation('[GATES.index(gate) for gate in TORCH_GATES]', '[0, 1, 2, 3]')
@mutation('dict(backward=model.backward)', 'dict(backward=False)')
@mutation("'vocab.txt' if path.is_dir() else 'itos*.pkl'", "'itos*.pkl'")
@mutation("'vocab.txt' if path.is_dir() else 'itos*.pkl'", "'vocab.txt'")
@mutation('if not isinstance(found, bool)', 'if found is not None and not isinstance(found, bool)')
def test_a_model_goes_out_by_its_names_and_comes_back_bit_for_bit(golden, tmp_path):
  import safetensors.numpy

  path = saved(golden, tmp_path)
  path = path.rename(path.with_name('bwd.pth'))
  path.with_name('vocab.txt').write_text("a stranger's\n")
  importing.import_model(f'fastai:{path}', tmp_path / 'run')
  originals.export(tmp_path / 'run', tmp_path / 'out')
  found = safetensors.numpy.load_file(tmp_path / 'out' / 'model.safetensors')
  start = 'lm/param/'
  assert {f'{start}{name}' for name in found} == {n for n in golden.files if n.startswith(start)}
  for name, x in found.items():
    np.testing.assert_array_equal(x, golden[start + name], err_msg=name)
  assert '--workdir=fastai:DIR' in (tmp_path / 'out' / 'README.md').read_text()
  one, other = map(awd_lstm_torch.open_checkpoint, (path, tmp_path / 'out'))
  assert one.model == other.model and other.model['backward']
  assert one.vocabulary.pieces == other.vocabulary.pieces
  params = [each.take(None).params for each in (one, other)]
  jax.tree.map(np.testing.assert_array_equal, *params)
  options = tmp_path / 'out' / 'options.json'
  options.write_text('{"backward": true, "width": 3}')
  assert awd_lstm_torch.open_checkpoint(tmp_path / 'out').model == one.model
  options.unlink()
  with pytest.raises(UserError, match='options.json with "backward": true or false, got None'):
    awd_lstm_torch.open_checkpoint(tmp_path / 'out')


@mutation('if WORDS not in state:', 'if False:')
def test_a_model_whose_words_have_no_bias_comes_back(tmp_path):
  made = used_models.make(tmp_path, 'ulmfit', first=used_models.STREAM).workdir
  originals.export(made, tmp_path / 'out')
  back = awd_lstm_torch.open_checkpoint(tmp_path / 'out')
  assert back.model['word_bias'] is False
  text, one = ['w9 w10'], used_models.load(made)
  np.testing.assert_array_equal(
    one.embed(text), used_models.load(f'fastai:{tmp_path}/out').embed(text)
  )


@mutation("('bn.running_var', running, norm, 'var')", "('bn.running_var', running, norm, 'mean')")
@mutation("('bn.weight', own, norm, 'scale')", "('bn.weight', own, norm, 'bias')")
@mutation('rows += module', '_ = module', file='bertjax/export/originals.py')
def test_a_classifier_goes_out_with_its_head(tmp_path):
  """torch's own layers, by fastai's names, score what ours scores."""
  import safetensors.numpy

  config = cases.config('ulmfit', labels=(('label', 2),), inner=7, vocab_size=40, word_bias=True)
  config.data.task = ConfigDict(dict(classes=('bad', 'good')))
  model, rng = models.build(config.model), np.random.default_rng(0)
  batch = dict(token_BT=rng.integers(0, 40, (3, 9)), example_BT=np.ones((3, 9), np.int32))
  shapes = jax.eval_shape(model.init, jax.random.key(0), batch)
  variables = jax.tree.map(lambda x: jnp.asarray(rng.uniform(0.1, 0.9, x.shape), 'float32'), shapes)
  saver = checkpoints_lib.Checkpoints(tmp_path / 'run' / 'checkpoints', 1, config.best)
  saver.save(0, dict(variables=meta.unbox(variables)), {}, wait=True)
  saver.close()
  resume.claim_workdir(tmp_path / 'run', config, {})
  originals.export(tmp_path / 'run', tmp_path / 'out')
  found = safetensors.numpy.load_file(tmp_path / 'out' / 'model.safetensors')
  assert (
    '0.rnns.2.module.weight_hh_l0_raw' in found and '1.decoder.bias' not in found
  )  # 0.7 has no bias
  layers = [(torch.nn.BatchNorm1d(x), torch.nn.Linear(x, y)) for x, y in ((3 * 64, 7), (7, 2))]
  pooled, kept = concat_pool.pooled, []
  keep = lambda *x: kept.append(pooled(*x)) or kept[-1]
  read = lambda v: (model.apply(v, batch)['label_BGC']['label'][:, 0], kept[0])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(concat_pool, 'pooled', keep)
    logits_BC, pooled_BD = jax.jit(read)(meta.unbox(variables))
  x = torch.tensor(np.asarray(pooled_BD))
  for number, pair in enumerate(layers):
    for name, layer in zip(('bn', 'lin'), pair, strict=True):
      start = f'1.layers.{number}.{name}.'
      own = {
        k.removeprefix(start): torch.tensor(v) for k, v in found.items() if k.startswith(start)
      }
      assert not layer.load_state_dict(own, strict=False).unexpected_keys
      x = layer.eval()(x)
    x = x if number else torch.relu(x)
  np.testing.assert_allclose(logits_BC, x.detach().numpy(), rtol=1e-5)
  assert json.loads((tmp_path / 'out/options.json').read_text())['classes'] == ['bad', 'good']
  taken = awd_lstm_torch.open_checkpoint(tmp_path / 'out').take(None)
  assert {*taken.params} == {'word', 'lstm_0', 'lstm_1', 'lstm_2'} and len(taken.left_out) == 12
