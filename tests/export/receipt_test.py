"""A receipt that sees: faults planted on one side are found by comparing the outputs."""

import copy

import numpy as np
import pytest
import torch_models
from mutation import mutation

from bertjax.errors import UserError
from bertjax.export import parity, receipt


@pytest.fixture(
  scope='module', params=[pytest.param(0.02, marks=pytest.mark.full), 0.1], ids='std {}'.format
)
def case(request, tmp_path_factory):
  """A class's directory, our model, its parameters and the inputs, at two scales of weights."""
  path = tmp_path_factory.mktemp('receipt')
  torch_models.save('BertForPreTraining', path, request.param)
  model, taken = torch_models.opened(path)
  return request.param, path, model, taken.params, parity.inputs_of(model, 0)


def swapped(params, *path):
  """A copy with the kernel at a path transposed in its square part."""
  params = copy.deepcopy(params)
  node = params
  for key in path:
    node = node[key]
  size = min(node['kernel'].shape[-2:])
  node['kernel'][..., :size, :size] = np.swapaxes(node['kernel'][..., :size, :size], -1, -2).copy()
  return params


def exchanged(params):
  """A copy in which query and key have changed places: a name table with two names confused."""
  params = copy.deepcopy(params)
  attention = params['encoder']['layers']['attention']
  attention['query'], attention['key'] = attention['key'], attention['query']
  return params


FAULTS = {
  'nothing': (dict(), lambda p: p),
  'a wrong name': (dict(), exchanged),
  'a swapped transpose': (dict(), lambda p: swapped(p, 'encoder', 'layers', 'ffn_up')),
  'a wrong GELU': (dict(activation='gelu_tanh'), lambda p: p),
  'a wrong eps': (dict(norm_eps=1e-5), lambda p: p),
}


@pytest.mark.parametrize('fault', FAULTS)
@mutation('ok=bool(off <= tolerance * size)', 'ok=True')
def test_a_fault_is_found(fault, case):
  std, path, model, params, inputs = case
  fields, change = FAULTS[fault]
  model = model.copy_and_resolve_references()
  model.update(fields)
  said = dict(
    outputs=receipt.compared(path, model, inputs, parity.ours(model, change(params), inputs)),
    tokenizer=dict(differences=[]),
  )
  found = receipt.faults(said)
  # Rows of small embeddings are divided by about eps; only large ones bend a GELU far enough.
  blind = {0.02: 'a wrong GELU', 0.1: 'a wrong eps'}[std]
  assert fault == blind or bool(found) == (fault != 'nothing'), found


def test_other_ids_and_keys_are_faults():
  outputs = dict(missing=['a'], unexpected=['b'], differences=[])
  said = dict(outputs=outputs, tokenizer=dict(differences=['text: [1], [2]']))
  found = receipt.faults(dict(said, parts=dict(generator=said)))
  assert found[:3] == ['1 missing keys: a', '1 unexpected keys: b', 'tokenizer: text: [1], [2]']
  assert found[3:] == [f'generator: {line}' for line in found[:3]]


@mutation('(mine.hidden, other.hidden, strict=True)', '(mine.hidden, mine.hidden, strict=True)')
def test_every_layer_and_every_head_is_compared_by_itself():
  outputs = lambda: parity.Outputs([np.ones((3, 4))] * 2, dict(word=np.ones((3, 7)) * 50))
  off = lambda found: [each['of'] for each in found if not each['ok']]
  assert off(parity.differences(outputs(), outputs())) == []
  other = outputs()
  other.hidden[1] = other.hidden[1] + 3e-5
  assert off(parity.differences(outputs(), other)) == ['hidden state 2']
  other = outputs()
  other.logits['word'] = other.logits['word'] + 4e-3  # of 50, so 5e-3 is allowed
  assert off(parity.differences(outputs(), other)) == []
  other.logits['word'] = other.logits['word'] + 2e-3
  assert off(parity.differences(outputs(), other)) == ['word']
  with pytest.raises(UserError, match='the class has 1 layer '):
    parity.differences(outputs(), parity.Outputs([np.ones((3, 4))], other.logits))
