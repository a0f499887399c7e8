"""Rows that pad a vocabulary are zero and stay so."""

import cases
import jax
import numpy as np
import pytest
from flax.core import meta
from mutation import mutation

from bertjax.objectives import lm, mlm, plm, rtd
from bertjax.train.step import trained_loss, with_rows
from bertjax.types import Context

SYSTEMS = {
  'bert': (mlm, {}, 'embeddings/word'),
  'electra': (rtd, {}, 'embeddings/word'),
  'transformer_xl': (lm, {}, 'word'),
  'clusters': (lm, dict(cutoffs=(50,), div_val=2), 'words/word_1'),
  'xlnet': (plm, {}, 'word'),
}


def batch_of(name: str):
  batch = cases.batch([[20], [32]], 32)
  if name in ('transformer_xl', 'clusters'):
    ones = np.ones((2, 32), np.float32)
    batch |= dict(target_BP=np.roll(batch['token_BT'], -1, 1), weight_BP=ones)
  if name == 'xlnet':
    order_BT = np.tile(np.arange(32, dtype=np.int32), (2, 1))
    batch |= dict(order_q_BT=order_BT, order_k_BT=order_BT)
  return batch


@pytest.mark.full
@pytest.mark.parametrize('name', SYSTEMS)
@mutation('.at[size:].set(0)', '', case='bert')
def test_rows_that_pad_begin_at_zero_and_have_no_gradient(name):
  """So that LAMB's trust ratio is that of the vocabulary alone."""
  module, model, path = SYSTEMS[name]
  family = 'transformer_xl' if name == 'clusters' else name
  c, batch = cases.config(family, **model), batch_of(name)
  c.length = 32
  objective = module.make(c)
  size = cases.VOCAB - 50 if name == 'clusters' else cases.VOCAB

  def table(tree):
    for key in path.split('/'):
      tree = tree[key]
    return np.asarray(tree)

  params = meta.unbox(jax.jit(objective.init)(jax.random.key(0), batch))['params']
  assert np.abs(table(params)[:size]).min(1).max() > 0 and not table(params)[size:].any()
  carry = objective.carry(batch)

  def loss(params):
    ctx = Context(jax.random.key(0), np.int32(0), train=False)
    terms = objective.loss(dict(params=params), carry, with_rows(batch), ctx).terms
    return trained_loss(terms, {key: term.weight for key, term in terms.items()})

  assert not table(jax.jit(jax.grad(loss))(params))[size:].any()
