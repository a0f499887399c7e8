"""What cannot work is refused by name before anything is compiled or written."""

import shutil

import jax
import numpy as np
import pytest

from bertjax import phases, setup, sharding
from bertjax.data.store_writer import write_store
from configs import bert, spanbert

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  documents = [[rng.integers(5, 50, 6).tolist() for _ in range(4)] for _ in range(20)]
  path = tmp_path_factory.mktemp('setup') / 'store'
  write_store(path, documents, dict(type='wordpiece', size=50, sha256='0' * 64, special=SPECIAL))
  return path


def make(store, **overrides):
  config = bert.get_config('test')
  config.batch_size, config.length, config.eval.batch_size = 8, 64, 8
  config.update_from_flattened_dict(overrides)
  return setup.make_run(config, store, jax.devices()[:1])


def test_the_model_takes_the_number_of_ids_from_the_store(store):
  run = make(store)
  assert run.systems[0].phase.config.model.vocab_size == 50
  assert run.abstract.variables['params']['embeddings']['word'].shape == (128, 64)


def test_every_leaf_of_the_state_has_a_sharding(store):
  assert all(leaf.sharding is not None for leaf in jax.tree.leaves(make(store).abstract))


def test_evaluation_may_mask_otherwise_than_training(store, tmp_path):
  whole = tmp_path / 'store'
  shutil.copytree(store, whole)
  shutil.copytree(store, whole / 'heldout')
  config = spanbert.get_config('test')
  config.batch_size, config.length, config.eval.batch_size = 8, 64, 8
  config.data.mask.rule = 'tokens'
  config.eval.data = dict(mask=dict(rule='spans', mask_share=1.0, random_share=0.0))
  system = setup.make_run(config, whole, jax.devices()[:1]).systems[0]
  assert (
    system.held_out.recipe.mask.rule == 'spans' and system.examples.recipe.mask.rule == 'tokens'
  )
  masked = system.held_out.batch(np.arange(8), shuffle=False)
  assert (masked['masked_BP'] == masked['weight_BP']).all() and masked['pair_weight_BP'].any()
  assert not system.examples.batch(np.arange(8), shuffle=False)['pair_weight_BP'].any()
  config.data.reader = 'seqio'
  with pytest.raises(ValueError, match='config.eval.data changes mask'):
    setup._check(phases.make(config).phases[0], sharding.make_mesh(config.mesh, jax.devices()[:1]))


@pytest.mark.parametrize(
  'overrides, message',
  [
    ({'model.vocab_size': 40}, 'has 50 ids, but config.model.vocab_size=40'),
    ({'length': 4096}, "phase 'phase1' has sequences of 1024 tokens"),
    ({'objective.name': 'mml'}, "config.objective.name: .* got 'mml'; did you mean 'mlm'"),
    ({'model.name': 'brt'}, "config.model.name: .* got 'brt'; did you mean 'bert'"),
    ({'data.plan': 'pair'}, "did you mean 'pairs'"),
    ({'model.heads': 7}, 'must be a multiple of model.heads, got 64 and 7'),
    ({'batch_size': 9, 'microbatches': 2}, 'config.batch_size=9 must be a multiple'),
    ({'mesh.tensor': 3}, 'does not fit 1 devices'),
    ({'model.attend': 'none'}, "config.model.attend: .* got 'none'"),
    ({'optimizer.name': 'adamm'}, "did you mean 'adamw'"),
  ],
)
def test_mistakes_are_refused_by_name(store, overrides, message):
  with pytest.raises(ValueError, match=message):
    make(store, **overrides)


def test_a_store_of_another_vocabulary_is_refused(store, tmp_path):
  (tmp_path / 'vocab.txt').write_text(
    '\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a'])
  )
  with pytest.raises(ValueError, match='was made with another vocabulary .50 ids'):
    make(store, **{'data.vocab': str(tmp_path)})
