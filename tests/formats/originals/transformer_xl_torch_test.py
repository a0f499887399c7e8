"""State dicts of the original Transformer-XL: numbers of the original program, and refusals.

Learned distances (attn_type 1) are not read: their numbers are those of
models/transformer_xl_golden_test.py.
"""

import argparse

import numpy as np
import original_goldens as goldens
import original_reading
import pytest
import transformer_xl_cases
from mutation import mutation
from slow_imports import torch

from bertjax.formats.originals import transformer_xl_torch


@pytest.fixture
def golden(shared):
  def load(name: str):
    """(state dict with its copies, the file)."""
    found = goldens.load(shared, f'transformer_xl_{name}')
    return state_of(found, 'param'), found

  return load


def state_of(golden: goldens.Golden, prefix: str) -> 'dict[str, torch.Tensor]':
  state = {name: torch.tensor(x) for name, x in golden.tree(prefix).items()}
  return state | {'pos_emb.inv_freq': torch.ones(golden.given['d_model'] // 2)}


def save(path, state, args=None):
  file = path / 'state.pt'
  torch.save(state if args is None else dict(args=args, model=state), file)
  return file


@pytest.mark.parametrize('name', ['plain', 'adaptive', 'prenorm', 'absolute'])
@mutation("QKV = ('query', 'key', 'value')", "QKV = ('key', 'query', 'value')", case='plain')
@mutation("word_emb.emb_projs.{i}', 'D,E->ED", "word_emb.emb_projs.{i}', 'E,D->ED", case='adaptive')
@mutation(
  '(mask.example_k_BS.shape[1] - 1, -1, -1)', '(mask.example_k_BS.shape[1], 0, -1)', case='plain'
)
@mutation(
  'normed(memory_lib.join(memory_BMD, self',
  'memory_lib.join(memory_BMD, normed(self',
  case='prenorm',
)
@mutation("pre_norm=bool(args.get('pre_lnorm', False))", 'pre_norm=False', case='prenorm')
def test_the_numbers_of_the_original(name, golden, tmp_path):
  """Every segment's nll, the memory, and the gradients of every leaf."""
  state, file = golden(name)
  given = file.given
  args = argparse.Namespace(**{k: given[k] for k in ('n_head', 'pre_lnorm', 'dropout', 'dropatt')})
  read = lambda state: original_reading.read(transformer_xl_torch, save(tmp_path, state, args))
  original = read(state)
  m = original.model
  assert (m['layers'], m['heads'], m['head_size']) == (2, 3, given['d_head'])
  assert (m['cutoffs'], m['div_val']) == (tuple(given['cutoffs']), given['div_val'])
  assert (m['dropout'], m['attention_dropout'], m['norm_eps']) == (0, 0, 1e-5)
  assert original.left_out == ['pos_emb.inv_freq'] and not original.made
  gradients = {n: read(state_of(file, f'grad_segment_{n}')).params for n in (1, 4)}
  transformer_xl_cases.compare(
    transformer_xl_cases.config(file, **m), original.params, gradients, file
  )


def test_one_table_is_cut_to_clusters(golden, tmp_path):
  """div_val 1: the cutoffs are in no shape, and the sum over all words is 1."""
  state, _ = golden('plain')
  state['crit.cluster_weight'] = torch.randn(2, 24)
  state['crit.cluster_bias'] = torch.randn(2)
  with pytest.raises(ValueError, match="2 clusters over 127 words.*args.'cutoffs'. with 2 numbers"):
    original_reading.read(transformer_xl_torch, save(tmp_path, state))
  original = original_reading.read(
    transformer_xl_torch, save(tmp_path, state, dict(cutoffs=[40, 90]))
  )
  words, table = original.params['words'], state['word_emb.emb_layers.0.weight'].numpy()
  bias = state['crit.out_layers.0.bias'].numpy()
  for i, part in enumerate((slice(0, 40), slice(40, 90), slice(90, 127))):
    size = part.stop - part.start
    np.testing.assert_array_equal(words[f'word_{i}'][:size], table[part])
    np.testing.assert_array_equal(words[f'bias_{i}'][:size], bias[part])
    assert not words[f'word_{i}'][size:].any()
  assert original.model['cutoffs'] == (40, 90) and original.model['div_val'] == 1
  np.testing.assert_array_equal(words['cluster'], state['crit.cluster_weight'])


@pytest.mark.parametrize(
  'name, change, message',
  [
    ('shaw', {}, 'r_emb is of attn_type 1 or 3'),
    ('absolute', {}, "the number of heads is in no shape: expected it as args.'n_head'."),
    ('plain', {'crit.out_layers.0.weight': (127, 24)}, 'this model ties them'),
    ('adaptive', {'crit.out_projs.2': (32, 8)}, 'this model ties them'),
  ],
)
def test_what_does_not_fit_is_refused(name, change, message, golden, tmp_path):
  state = golden(name)[0] | {key: torch.ones(shape) for key, shape in change.items()}
  with pytest.raises(ValueError, match=message):
    original_reading.read(transformer_xl_torch, save(tmp_path, state))


def test_what_is_none_is_refused(tmp_path):
  with pytest.raises(ValueError, match='this is no Transformer-XL: .*got a'):
    original_reading.read(transformer_xl_torch, save(tmp_path, {'a': torch.ones(1)}))
