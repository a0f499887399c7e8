"""Checkpoints of TensorFlow 1 become the parameters that transformers' classes become."""

import cases
import jax
import numpy as np
import original_reading
import pytest
import state_dicts
import tensorflow_cases as originals
import torch_models
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.formats.originals import tf1
from bertjax.models.electra import beside

pytestmark = pytest.mark.full


# The fields that all of them have.
FIELDS = dict(
  attend='example', embedding_width=0, extra=(), ffn=80, groups=1, heads=3, inner_groups=1,
  labels=(), layers=2, name='bert', norm_eps=1e-12, pooler=False, pooler_activation='tanh',
  pooling='first', position_offset=0, positions=40, sharing='none', sinusoid=False,
  token_labels=(), transform=True, types=2, vocab_size=211, width=48, words=True,
)  # fmt: skip


def as_ours(theirs, model):
  """The parameters of a class of transformers, by its own names."""
  return state_dicts.from_huggingface(torch_models.state_of(theirs), model)


def compare(original, theirs) -> None:
  c = cases.config(original.recipe)
  c.model.update(original.model)
  jax.tree.map(np.testing.assert_array_equal, original.params, as_ours(theirs, c.model))


@mutation("gelu='gelu_tanh'", "gelu='gelu_erf'", file='bertjax/formats/originals/bert.py')
@mutation("','.join(reversed(theirs.split(',')))", 'theirs')
def test_bert(tmp_path):
  model, tensors, given = originals.bert()
  originals.describe(tmp_path, 'bert_config.json', **given)
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n')
  originals.write(tmp_path / 'bert_model.ckpt', tensors)
  original = original_reading.read(tf1, tmp_path / 'bert_model.ckpt')
  assert original.recipe == 'bert' and original.vocabulary.files[0].name == 'vocab.txt'
  assert original.model == FIELDS | dict(
    family='bert', activation='gelu_tanh', dropout=0.2, attention_dropout=0.3, init_std=0.02,
    labels=(('next', 2),),
  )  # fmt: skip
  assert not (original.made or original.left_out or original.assumed)
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
  assert original.recipe == 'albert'
  assert original.model == FIELDS | dict(
    family='albert', activation='gelu_tanh', dropout=0, attention_dropout=0, embedding_width=24,
    groups=2, inner_groups=2, layers=4, sharing='all', labels=(('order', 2),),
  )  # fmt: skip
  compare(original, model)


@mutation(
  " pooler_activation='gelu_erf'",
  " pooler_activation='tanh'",
  file='bertjax/formats/originals/electra.py',
)
@mutation(
  " activation='gelu_erf'", " activation='gelu_tanh'", file='bertjax/formats/originals/electra.py'
)
def test_electra(tmp_path):
  (judge, maker), tensors = originals.electra()
  originals.write(tmp_path / 'model.ckpt-7', tensors, step=7)
  original = original_reading.read(tf1, tmp_path)
  m = original.model
  assert m == FIELDS | dict(
    family='electra', name='electra', activation='gelu_erf', pooler_activation='gelu_erf',
    embedding_width=32, ffn=512, heads=2, width=128, tied_embeddings=True, generator='own',
    generator_width=0.5, generator_layers=1.0, generator_head=64,
  )  # fmt: skip
  assert original.assumed == ['no file says the heads: 2, of 64 each']
  c = cases.config('electra')
  c.model.update(m)
  small = ConfigDict(beside(c.model)['generator'].model(c.model))
  want = state_dicts.electra(as_ours(judge, c.model), as_ours(maker, small), c.model)
  jax.tree.map(np.testing.assert_array_equal, original.params, want)
