"""What cannot work is refused by name before anything is compiled or written."""

import jax
import numpy as np
import pytest

from bertjax import setup
from bertjax.data.store_writer import write_store
from configs import bert

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
    ({'model.attend': 'none'}, "model.attend is 'example' or 'self'"),
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
