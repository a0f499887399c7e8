"""The loader: the same global batches for any hosts, threads and start; held-out rows once each."""

import itertools

import numpy as np
from toy_store import SPECIAL, random_store, recipe, roberta

from bertjax.examples import examples as examples_lib
from bertjax.examples import loader


def examples_of(config, documents=40):
  return examples_lib.examples_in_memory(random_store(documents), config, 64, 7)


def first(count, examples, batch_size, *args, **kwargs):
  batches = loader.Batches(examples, batch_size)
  return list(itertools.islice(loader.stream(batches, *args, **kwargs), count))


def equal(one, two):
  return set(one) == set(two) and all(
    one[k].dtype == two[k].dtype and one[k].tobytes() == two[k].tobytes() for k in one
  )


def test_hosts_build_the_rows_of_one_global_batch():
  examples, hosts = examples_of(recipe(pack=8)), 8
  count = 2 * examples.rows // 16  # into the next epochs
  whole = first(count, examples, 16)
  shares = [first(count, examples, 16, hosts=(host, hosts)) for host in range(hosts)]
  for step, (index, batch, counts) in enumerate(whole):
    parts = [share[step] for share in shares]
    assert [part[0] for part in parts] == [index] * hosts
    assert equal(batch, {k: np.concatenate([part[1][k] for part in parts]) for k in batch})
    assert counts == {k: sum(part[2][k] for part in parts) for k in counts}


def test_any_start_and_any_threads_give_the_same_batches():
  examples = examples_of(roberta())
  for start, threads in ((0, 0), (3, 1), (50, 2), (7, 4)):
    for step, (index, batch, _) in enumerate(first(5, examples, 8, start, threads=threads)):
      assert index == start + step
      assert equal(batch, loader.Batches(examples, 8).at(index)[0])


def test_counts_are_those_of_the_batch():
  examples = examples_of(recipe(pack=8, mask__max_targets=5))
  [(_, batch, counts)] = first(1, examples, 16)
  assert 'dropped_B' not in batch
  assert counts['real'] == (batch['example_BT'] > 0).sum()
  assert counts['real'] + counts['padding'] == 16 * 64
  assert counts['predicted'] == batch['weight_BP'].sum() and counts['dropped'] > 0


def test_evaluation_sees_every_row_once():
  examples = examples_of(recipe(plan__dupe_factor=1))
  size = 16
  assert examples.rows % size
  batches = list(loader.eval_batches(examples, size))
  expected = examples.batch(np.arange(examples.rows), shuffle=False)
  expected.pop('dropped_B')
  joined = {k: np.concatenate([batch[k] for batch in batches]) for k in expected}
  assert all(len(batch['token_BT']) == size for batch in batches)
  assert equal({k: v[: examples.rows] for k, v in joined.items()}, expected)
  tail = {k: v[examples.rows :] for k, v in joined.items()}
  assert (tail.pop('token_BT') == SPECIAL['pad']).all()
  assert all((v == 0).all() for v in tail.values())


def test_a_limited_evaluation_takes_rows_from_all_over():
  examples = examples_of(recipe(plan__dupe_factor=1))
  expected = examples.batch(np.arange(10) * examples.rows // 10, shuffle=False)
  joined = np.concatenate([b['token_BT'] for b in loader.eval_batches(examples, 4, limit=10)])
  np.testing.assert_array_equal(joined[:10], expected['token_BT'])
  assert len(joined) == 12


def test_the_digest_sees_names_types_shapes_and_values():
  batch = dict(a=np.arange(6, dtype=np.int32).reshape(2, 3), b=np.zeros(2, np.float32))
  digest = loader.batch_sha256(batch)
  assert digest == loader.batch_sha256(dict(reversed(batch.items())))
  changes = [
    dict(batch, a=batch['a'] + 1),
    dict(batch, a=batch['a'].reshape(3, 2)),
    dict(batch, a=batch['a'].view(np.uint32)),
    dict(a=batch['a'], c=batch['b']),
    dict(a=batch['a']),
  ]
  assert len({digest, *map(loader.batch_sha256, changes)}) == 6
