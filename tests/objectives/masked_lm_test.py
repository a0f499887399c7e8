"""The masked-LM terms: denominators, metrics, next sentence, FLOPs."""

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.kernels.cross_entropy import Scores
from bertjax.objectives import mlm
from configs import bert

mutation("masked_BP = weight_BP * batch['masked_BP']", 'masked_BP = weight_BP')
mutation('visits = layers * self.inner_groups', 'visits = layers')


def slots(weight, masked):
  return dict(
    target_BP=jnp.array([[1, 0]]), weight_BP=jnp.array([weight]), masked_BP=jnp.array([masked])
  )


def scores_of(logits_BPV):
  """Scores whose table is the identity, so that their logits are these."""
  words = logits_BPV.shape[-1]
  return Scores(logits_BPV, jnp.eye(words), jnp.zeros(words), words)


def test_unused_slots_count_nothing_and_kept_ones_are_no_masked_loss():
  scores = scores_of(jnp.log(jnp.array([[[0.2, 0.8], [0.9, 0.1]]])))
  terms = mlm.masked_terms(scores, slots([1.0, 1.0], [1.0, 0.0]), plus=1e-5)
  np.testing.assert_allclose(terms['mlm'].total, -np.log(0.8) - np.log(0.9), rtol=1e-5)
  np.testing.assert_allclose(terms['mlm_masked'].total, -np.log(0.8), rtol=1e-5)
  assert float(terms['mlm_masked'].weight) == 1 and terms['mlm_masked'].scale == 0
  assert terms['mlm'].plus == 1e-5 and float(terms['mlm_accuracy'].total) == 2
  unused = mlm.masked_terms(scores, slots([1.0, 0.0], [1.0, 0.0]), plus=0.0)
  assert float(unused['mlm'].weight) == 1


def test_next_sentence_is_over_packed_examples():
  batch = dict(example_weight_BG=jnp.array([[1.0, 0.0]]), next_BG=jnp.array([[1, 0]]))
  logits = jnp.log(jnp.array([[[0.3, 0.7], [0.5, 0.5]]]))
  terms = mlm.label_terms('next', logits, batch)
  np.testing.assert_allclose(terms['next'].total, -np.log(0.7), rtol=1e-5)
  assert float(terms['next'].weight) == 1 and float(terms['next_accuracy'].total) == 1


def test_flops_count_real_tokens_predicted_slots_and_visible_pairs():
  config = ConfigDict(bert.get_config('base'))
  config.model.vocab_size = 30522
  batch = dict(
    example_BT=np.array([[1] * 100 + [0] * 28, [1] * 64 + [2] * 64]),
    weight_BP=np.ones((2, 19), np.float32),
    example_weight_BG=np.ones((2, 1), np.float32),
  )
  h, pairs = 768, 100**2 + 2 * 64**2
  layers = 6 * 12 * (4 * h * h + 2 * h * 3072) * 228 + 12 * 12 * h * pairs
  head = 6 * 38 * (h * h + h * 30522) + 6 * 2 * (h * h + 2 * h)
  assert mlm.make(config).flops(batch) == layers + head
  config.model.update(sharing='all', inner_groups=2)  # what is shared is computed every time
  assert mlm.make(config).flops(batch) == 2 * layers + head
