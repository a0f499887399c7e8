"""The bench's train step takes every system."""

import importlib

import jax
import pytest
import systems
from mutation import mutation
from tiers import in_tiers

from bertjax import sharding
from bertjax.config import sections
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch

QUICK = ('ernie', 'xlnet')  # those with units and with a memory; train/collectives_test has BERT


@pytest.mark.parametrize('name', in_tiers(systems.NAMES, set(systems.NAMES) - set(QUICK)))
@mutation('units=(starts[token_n].astype(np.uint8),)', 'units=()')
def test_a_synthetic_batch_has_all_that_the_step_reads(name):
  config = own_step.sized(systems.tiny(name), 2, 32)
  batch = synthetic_batch(config)
  lowered, *_ = own_step.lower(config, batch, sharding.make_mesh(config.mesh, jax.devices()[:1]))
  state, metrics = lowered.out_info
  assert metrics['loss'].shape == () and state.step.shape == ()


def test_the_vocabulary_is_the_configs_the_recipes_or_the_published_one():
  sized = lambda name, **fields: own_step.sized(systems.tiny(name, **fields), 2, 32).model
  assert sized('bert', **{'model.vocab_size': 99}).vocab_size == 99
  assert sized('bert', **{'data.train_vocab.size': 77}).vocab_size == 77
  assert sized('xlnet').vocab_size == 32000
  wide = importlib.import_module('configs.transformer_xl').get_config('wt103_base')
  sections.complete(wide)
  assert own_step.sized(wide, 2, 32).model.vocab_size == 267_736
