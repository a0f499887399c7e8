"""Cached segments and windows give the same losses where they must, whatever the rows."""

from typing import Any

import jax
import numpy as np
import pytest
from mutation import mutation

from bertjax.evals import recurrence
from bertjax.objectives import lm
from configs import transformer_xl

VOCAB = 60


@pytest.fixture
def config():
  config: Any = transformer_xl.get_config('test')
  config.model.update(dict(layers=2, width=32, heads=2, head_size=16, ffn=64, vocab_size=VOCAB))
  config.evals.held_out.model = dict(clamp_len=6)
  return config


@pytest.fixture
def token_n():
  return np.random.default_rng(3).integers(0, VOCAB, 121)


def weights(config):
  """Variables so large that what a position sees decides its loss."""
  batch = next(recurrence.segment_batches(np.zeros(9, np.int64), 1, 8))
  init = lm.make(config).init
  boxed = init(jax.random.key(0), batch)
  return jax.tree.map(lambda x: x * (8.0 if x.ndim > 1 else 1.0), unboxed(boxed))


def unboxed(boxed):
  return jax.tree.map(lambda x: x.value, boxed, is_leaf=lambda x: hasattr(x, 'value'))


def test_columns_are_read_side_by_side():
  batches = list(recurrence.segment_batches(np.arange(16), 2, 3))
  np.testing.assert_array_equal(batches[1]['token_BT'], [[3, 4, 5], [11, 12, 13]])
  np.testing.assert_array_equal(batches[1]['target_BP'], [[4, 5, 6], [12, 13, 14]])
  assert [list(batch['start_B']) for batch in batches] == [[1, 1], [0, 0], [0, 0]]
  np.testing.assert_array_equal(batches[2]['token_BT'], [[6, 0, 0], [14, 0, 0]])
  np.testing.assert_array_equal(batches[2]['target_BP'], [[7, 0, 0], [15, 0, 0]])
  assert [batch['example_BT'].sum() for batch in batches] == [6, 6, 2]


def test_windows_end_at_their_places():
  batch = recurrence.window_batch(np.arange(10, 20), np.array([1, 5]), 4)
  np.testing.assert_array_equal(
    batch['token_BT'] * batch['example_BT'], [[0, 0, 10, 11], [12, 13, 14, 15]]
  )
  np.testing.assert_array_equal(batch['target_BP'], [[12], [16]])


@mutation(
  'recurrence: every segment begins with an empty memory',
  'bertjax/evals/recurrence.py',
  'nll_BT, memory = way.step(variables, memory, batch)',
  'nll_BT, _ = way.step(variables, memory, batch)',
)
@mutation(
  'recurrence: what a window lacks before the text is attended to',
  'bertjax/evals/recurrence.py',
  'example_BT=(at_BT >= 0).astype(np.int32),',
  'example_BT=np.ones_like(at_BT, np.int32),',
)
def test_the_ways_agree_until_a_window_is_full(config, token_n):
  found = recurrence.compare(config, weights(config), token_n, 20, 8, samples=6)
  assert abs(found['cached'] - found['windows']) > 1e-3 * found['windows']


@mutation(
  'recurrence: the last layer of a window remembers what is under the layer below',
  'bertjax/evals/recurrence.py',
  "jnp.concatenate([out['embedded_BTD'][None], out['hidden_LBTD'][: layers - 1]])",
  "jnp.concatenate([out['hidden_LBTD'][: layers - 1], out['embedded_BTD'][None]])",
)
@pytest.mark.parametrize('layers, pre_norm', [(1, False), (2, True), (3, False)])
def test_a_window_without_what_it_does_not_need_gives_the_same(config, token_n, layers, pre_norm):
  config.model.update(layers=layers, pre_norm=pre_norm)
  variables = weights(config)
  batch = recurrence.window_batch(token_n, np.array([3, 11, 60]), 12)
  found = [
    way(config, 12).step(variables, (), batch)[0]
    for way in (recurrence.windows, recurrence.dense_windows)
  ]
  assert np.std(found[0]) > 0.1
  np.testing.assert_allclose(*found, rtol=1e-5)


def test_one_layer_agrees_everywhere(config, token_n):
  config.model.layers, config.model.cutoffs, config.model.div_val = 1, (20, 40), 2
  found = recurrence.compare(config, weights(config), token_n, 20, 8, samples=6)
  np.testing.assert_allclose(found['cached'], found['windows'], rtol=1e-5)


@mutation(
  'recurrence: a difference of the two ways is passed over',
  'bertjax/evals/recurrence.py',
  'if abs(total - anew) > RTOL',
  'if total > 1e9 * RTOL',
)
def test_a_memory_that_is_lost_is_refused(config, token_n, monkeypatch):
  cached = recurrence.cached

  def forgetful(*args):
    way = cached(*args)
    empty = lambda batch: dict(batch, start_B=np.ones_like(batch['start_B']))
    return way._replace(step=lambda v, memory, batch: way.step(v, memory, empty(batch)))

  monkeypatch.setattr(recurrence, 'cached', forgetful)
  with pytest.raises(ValueError, match='must agree on the first 20 tokens'):
    recurrence.compare(config, weights(config), token_n, 20, 8, samples=6)


def test_a_stream_too_short_to_compare_is_refused(config, token_n):
  with pytest.raises(ValueError, match=r'takes 129 tokens, the stream has 121'):
    recurrence.compare(config, weights(config), token_n, 62, 8, samples=6)


@mutation(
  'recurrence: the table of memories gives all of them one segment',
  'bertjax/evals/recurrence.py',
  'cached(config, count * segment, segment, same_length=False)',
  'cached(config, segment, segment, same_length=False)',
)
@mutation(
  'recurrence: padding counts',
  'bertjax/evals/recurrence.py',
  "np.asarray(nll_BT, np.float64)[:, batch['example_BT'][0] > 0]",
  'np.asarray(nll_BT, np.float64)',
)
def test_memory_grows_to_the_whole_stream(config, token_n):
  config.evals.held_out.model = {}
  variables = weights(config)
  found = recurrence.by_memory(config, variables, token_n, 8, 3, segments=(0, 1, 4))
  assert [each['memory'] for each in found] == [0, 8, 32]
  nll = [each['lm'] for each in found]
  assert len(set(np.round(nll, 4))) == 3
  np.testing.assert_allclose(found[0]['perplexity'], np.exp(nll[0]))

  whole = recurrence.cached(config, 0, 32)  # of a column's 40 tokens, in one pass
  once = recurrence.segment_nll(whole, variables, recurrence.segment_batches(token_n, 3, 32))
  parts = recurrence.cached(config, 24, 8, same_length=False)
  batches = list(recurrence.segment_batches(token_n, 3, 8))
  handed_on = recurrence.segment_nll(parts, variables, iter(batches[:4]))
  np.testing.assert_allclose(handed_on, once[:, :32], rtol=1e-4, atol=1e-4)
  # A batch that is not full ends with places that count for nothing.
  assert recurrence.segment_nll(parts, variables, iter(batches)).shape == (3, 39)
