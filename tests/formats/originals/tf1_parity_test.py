"""Checkpoints of TensorFlow 1 become the parameters that transformers' classes become."""

import cases
import jax
import numpy as np
import original_reading
import pytest
import state_dicts
import tensorflow_cases as originals
import xlnet_cases
from mutation import mutation

from bertjax.formats.families import electra_net
from bertjax.formats.originals import tf1

pytestmark = pytest.mark.full


def as_ours(theirs, model):
  """The parameters of a class of transformers, by its own names."""
  state = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
  return state_dicts.from_huggingface(state, model)


def compare(original, theirs) -> None:
  c = cases.config(original.recipe)
  c.model.update(original.model)
  jax.tree.map(np.testing.assert_array_equal, original.params, as_ours(theirs, c.model))


@mutation(
  "ACTIVATIONS = dict(gelu='gelu_tanh'",
  "ACTIVATIONS = dict(gelu='gelu_erf'",
  file='bertjax/formats/originals/bert.py',
)
@mutation("','.join(reversed(theirs.split(',')))", 'theirs')
def test_bert(tmp_path):
  model, tensors, given = originals.bert()
  originals.describe(tmp_path, 'bert_config.json', **given)
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n')
  originals.write(tmp_path / 'bert_model.ckpt', tensors)
  original = original_reading.read(tf1, tmp_path / 'bert_model.ckpt')
  assert original.recipe == 'bert' and original.model['dropout'] == 0.2
  assert original.model['attention_dropout'] == 0.3 and original.model['norm_eps'] == 1e-12
  assert original.model['labels'] == (('next', 2),) and original.vocabulary.name == 'vocab.txt'
  assert not (original.made or original.left_out or original.assumed) and original.step is None
  assert original.model['activation'] == 'gelu_tanh'
  compare(original, model)


@mutation(
  "'LayerNorm ffn_1.intermediate.dense ffn_1.intermediate.output.dense LayerNorm_1'",
  "'LayerNorm_1 ffn_1.intermediate.dense ffn_1.intermediate.output.dense LayerNorm'",
)
def test_albert(tmp_path):
  model, tensors, given = originals.albert()
  originals.describe(tmp_path, 'albert_config.json', **given)
  originals.write(tmp_path / 'model.ckpt-best', tensors)
  original = original_reading.read(tf1, tmp_path)
  assert original.recipe == 'albert' and original.model['labels'] == (('order', 2),)
  assert original.model['groups'] == original.model['inner_groups'] == 2
  compare(original, model)


@mutation(
  " activation='gelu_erf'", " activation='gelu_tanh'", file='bertjax/formats/originals/electra.py'
)
def test_electra(tmp_path):
  (judge, maker), tensors = originals.electra()
  originals.write(tmp_path / 'model.ckpt-7', tensors, step=7)
  original = original_reading.read(tf1, tmp_path)
  m = original.model
  assert original.step == 7 and m['heads'] == 2 and m['generator'] == 'own'
  assert (m['generator_width'], m['generator_layers'], m['generator_head']) == (0.5, 1.0, 64)
  assert original.assumed == ['no file says the heads: 2, of 64 each']
  assert m['activation'] == 'gelu_erf'
  c = cases.config('electra')
  c.model.update(m)
  want = electra_net.join(
    as_ours(judge, c.model), as_ours(maker, electra_net.model_of(c.model)), c.model
  )
  jax.tree.map(np.testing.assert_array_equal, original.params, want)


@mutation("u='r_w_bias', w='r_r_bias'", "w='r_w_bias', u='r_r_bias'")
@mutation(
  "pieces |= {f'{name}[{i}]': (name, slice(*pair))",
  "pieces |= {f'{name}[{i}]': (name, slice(*bounds[name][:2]))",
)
def test_xlnet(tmp_path):
  c, _, _, theirs = xlnet_cases.make_case('large', mem_len=0)
  m = c.model
  originals.write(tmp_path / 'xlnet_model.ckpt', originals.xlnet(theirs))
  fields = dict(n_layer=m.layers, d_model=m.width, n_head=m.heads, d_inner=m.ffn, untie_r=True)
  originals.describe(
    tmp_path, 'xlnet_config.json', **fields, n_token=m.vocab_size, d_head=m.width // m.heads,
    ff_activation='gelu',
  )  # fmt: skip
  original = original_reading.read(tf1, tmp_path)
  assert original.recipe == 'xlnet' and original.model['activation'] == 'gelu_tanh'
  compare(original, theirs)
