"""What is inside a model: attention and the vectors of several layers, beside transformers'."""

import numpy as np
import pytest
import used_models
from mutation import mutation
from slow_imports import torch

import bertjax
from bertjax.errors import UserError

TEXTS = ['w9 w10 w77', 'w12 w13 w14 w15 w16 w17 w18 w19 w20 w21', 'w8']


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  return used_models.make(tmp_path_factory.mktemp('bert'), 'bert', 'BertForPreTraining')


@pytest.fixture(scope='module')
def model(pair):
  return used_models.load(pair.workdir)


@mutation('self.projections(out, (layer,))', 'self.projections(out, (0,))')
@mutation('x_NTT[:, :size, :size]', 'x_NTT[:, :, :size]')
@mutation('query_BTNH, key_BSNH, key_BSNH, mask', 'key_BSNH, query_BTNH, key_BSNH, mask')
def test_attention_is_that_of_transformers(pair, model):
  found = model.attention(TEXTS, layer=np.int64(2))
  for text, mine in zip(TEXTS, found, strict=True):
    ids = torch.tensor([[2, *used_models.numbers(text), 3]])
    with torch.no_grad():
      theirs = pair.twin(ids, output_attentions=True).attentions
    np.testing.assert_allclose(mine, theirs[1][0], atol=1e-6)
    np.testing.assert_allclose(mine.sum(-1), 1, atol=1e-6)
    assert mine.dtype == np.float32
  with pytest.raises(UserError, match='does not tell what layer 0 attends with'):
    model.attention(TEXTS, layer=0)


def test_attention_of_a_model_that_does_not_tell_it_is_refused(tmp_path):
  made = used_models.make(tmp_path, 'albert')
  with pytest.raises(UserError, match='what layer 1 attends with: expected a layer'):
    bertjax.Model.load(made.workdir).attention(TEXTS, 1)


@mutation('have {self.alike} at most', 'have fewer', file='bertjax/models/bigbird.py')
def test_attention_by_blocks_says_how_long_texts_may_be(tmp_path):
  made = used_models.make(tmp_path, 'bigbird', block=2, random_blocks=0, positions=40, labels=())
  bigbird = used_models.load(made.workdir)
  assert bigbird.attention(TEXTS[2:])[0].shape == (8, 3, 3)
  with pytest.raises(UserError, match='of 12 columns: expected shorter .* have 8 at most, padding'):
    bigbird.attention(TEXTS)


@mutation('for layer in layers], 1)', 'for layer in layers[::-1]], 1)')
def test_vectors_of_several_layers_are_those_of_each(model):
  layers = [0, -1, np.int32(1)]
  found, tokens = model.embed(TEXTS, layer=layers), model.embed(TEXTS, 'none', np.array(layers))
  for x_LD, x_LTD in zip(found, tokens, strict=True):
    assert x_LD.shape == (3, model.net.width)
    np.testing.assert_allclose(x_LD, x_LTD.mean(1), atol=1e-6)
  np.testing.assert_allclose(found[:, 2], model.embed(TEXTS, layer=1), atol=1e-6)
  assert model.embed([], layer=[1, 2]).shape == (0, 2, model.net.width)
  for wrong in ([], [99], 'last', 1.0, None):
    with pytest.raises(UserError, match='expected layer from 0'):
      model.embed(TEXTS, layer=wrong)


@mutation("return [*__all__, '__version__']", 'return [*globals()]')
def test_the_package_lists_what_is_for_its_users():
  assert dir(bertjax) == ['Model', '__version__']
