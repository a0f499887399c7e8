"""Masks as vectors against masks written pair by pair, and the tables of T5 and ALiBi."""

from typing import Any

import attention_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutation import mutation
from slow_imports import modeling_bloom, modeling_t5, torch
from tiers import in_tiers

from bertjax.kernels.relative_attention import (
  Mask,
  arg_specs,
  distance_tables,
  relative_attention,
  visible,
)
from bertjax.kernels.relative_attention.operands import check


def random_mask(rng, rows: int, queries: int, memory: int) -> tuple[Mask, int | None]:
  """Any mask that `Mask` can say, and any `near`."""

  def vectors(name: str, low: int, high: int) -> dict[str, np.ndarray]:
    draw = lambda length: rng.integers(low, high, (rows, length)).astype(np.int32)
    return {f'{name}_q_BT': draw(queries), f'{name}_k_BS': draw(memory + queries)}

  fields: dict[str, Any] = vectors('example', 0, 3)
  if rng.random() < 0.7:
    fields |= vectors('order', -2, 6) | dict(see_self=bool(rng.random() < 0.5))
  if rng.random() < 0.6:
    fields['window'] = int(rng.integers(1, 8))
    if rng.random() < 0.5:
      fields['sinks'] = min(memory, 3)
  fields['causal'] = bool(rng.random() < 0.2)
  near = int(rng.integers(-3, 2)) if rng.random() < 0.4 else None
  return Mask(**fields), near


@pytest.mark.parametrize('queries, memory', [(11, 0), (8, 7), (1, 5)])
@mutation('(jnp.arange(keys) < mask.sinks)[None]', '(jnp.arange(keys) <= mask.sinks)[None]')
@mutation('    near = 0 if near is None else max(near, 0)', '    pass')
@mutation('mask.order_q_BT[:, :, None] > mask', 'mask.order_q_BT[:, :, None] >= mask')
@mutation('ahead_BTS |= (distance_TS == 0)', 'ahead_BTS = ahead_BTS & (distance_TS != 0)')
def test_random_vectors_equal_brute_force(queries, memory):
  rng, shares = np.random.default_rng(queries), []
  for _ in range(40):
    mask, near = random_mask(rng, 4, queries, memory)
    want = cases.seen(mask, near)
    np.testing.assert_array_equal(np.asarray(visible(mask, near=near)), want)
    shares.append(want.mean())
  assert 0.05 < np.mean(shares) < 0.6  # neither all nor nothing


@mutation('if array.shape != shape:', 'if array.ndim != len(shape):')
@mutation("'R': rows, '2': 2}", "'R': rows, '2': heads}")
def test_an_operand_of_another_shape_is_refused_by_its_name():
  shape = arg_specs.SHAPES['xlnet_base_content']._replace(rows=2, queries=8, memory=4, heads=3)
  x = jax.eval_shape(lambda key: arg_specs.operands(shape, key), jax.random.key(0))
  check(x)
  for name in ('k_BSNH', 'example_q_BT', 'order_k_BS', 'r_RNH', 'direction_B', 'embedding_2NH'):
    longer = lambda path, leaf, name=name: (
      jnp.zeros((*leaf.shape[:-1], leaf.shape[-1] + 1)) if path[-1].name == name else leaf
    )
    with pytest.raises(ValueError, match=f'attention: expected {name} of shape .*, got '):
      check(jax.tree_util.tree_map_with_path(longer, x))


# Of the same kinds as others.
ALIKE = ('bert_large', 'albert_xxlarge', 'txl_wt103_large', 'txl_enwik8')


@pytest.mark.parametrize(
  'name', in_tiers(arg_specs.SHAPES, {n for n in arg_specs.SHAPES if n.startswith(ALIKE)})
)
@mutation('* (reuse + 1), before + half * (reuse + 1)', '* reuse // 2, before + half * reuse // 2')
def test_shapes_hold_what_their_sources_say(name):
  """The operation takes it; every query sees a key; the share of the visible ones is that of the
  system."""
  shape = arg_specs.SHAPES[name]._replace(rows=1)
  attend = lambda key: relative_attention(*arg_specs.operands(shape, key), impl='reference')
  y = jax.eval_shape(attend, jax.random.key(0))
  assert (y.shape, y.dtype) == ((1, shape.queries, shape.heads, shape.size), jnp.bfloat16)
  seen = jax.jit(lambda key: visible(arg_specs.mask(shape, key)))(jax.random.key(0))
  seen_TS = np.asarray(seen)[0]
  assert seen_TS.any(1).all()
  if shape.window and shape.order == 'causal':
    assert (seen_TS.sum(1) == shape.window).all()  # same_length
  elif shape.window:
    assert (seen_TS[300:-300].sum(1) == 2 * shape.window - 1 + 1).all()  # both sides, and a global
  elif shape.order == 'causal':
    np.testing.assert_array_equal(seen_TS.sum(1), shape.memory + 1 + np.arange(shape.queries))
  elif shape.order == 'permuted':
    own_T = seen_TS[np.arange(shape.queries), shape.memory + np.arange(shape.queries)]
    assert own_T.all() if shape.see_self else 0.75 < own_T.mean() < 0.9  # not of targets
    assert seen_TS[:, : shape.memory].all()
    assert not seen_TS[:256, shape.memory + 256 :].any()
    assert seen_TS[256:, shape.memory : shape.memory + 256].all()
  else:
    assert seen_TS.all()


@pytest.mark.parametrize(
  'buckets, furthest, both_ways', [(32, 128, True), (32, 128, False), (64, 2048, True)]
)
@mutation('np.where(distance < 0, buckets, 0)', 'np.where(distance > 0, buckets, 0)')
@mutation(
  'np.float32(math.log(furthest / exact)) * np.float32(buckets - exact)',
  'math.log(furthest / exact) * (buckets - exact + 0.01)',
)
def test_t5_buckets_equal_transformers(buckets, furthest, both_ways):
  distance_R = distance_tables.distances(3000, 4000)
  got = distance_tables.t5_buckets(distance_R, buckets, furthest, both_ways)
  want = modeling_t5.T5Attention._relative_position_bucket(
    torch.tensor(-distance_R), both_ways, buckets, furthest
  )
  np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.parametrize('heads', [8, 12])
@mutation('range(1, 2 * (heads - power), 2)', 'range(1, 1 + heads - power)')
def test_alibi_equals_transformers(heads):
  """Theirs is slope * column, which differs from -slope * distance by a constant of the query."""
  queries, keys = 6, 40
  table_NR = distance_tables.alibi(heads, distance_tables.distances(queries, keys))
  got_NTS = np.stack([table_NR[:, queries - 1 - t :][:, :keys] for t in range(queries)], 1)
  theirs = modeling_bloom.build_alibi_tensor(torch.ones(1, keys), heads, torch.float32).numpy()
  for t in range(queries):
    last = keys - queries + t
    want_NS = theirs[:, 0, : last + 1] - theirs[:, :, last]
    np.testing.assert_allclose(got_NTS[:, t, : last + 1], want_NS, rtol=1e-5, atol=1e-5)
  assert jnp.isfinite(table_NR).all()
