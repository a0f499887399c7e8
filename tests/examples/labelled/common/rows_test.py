"""Labelled rows as the batches of a run."""

import dataclasses
import itertools

import numpy as np
import pytest
from mutation import mutation

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.examples import loader
from bertjax.examples.labelled.common.rows import Rows, with_both_orders, with_cls_last


class Store:
  special = dict(pad=7)


@pytest.fixture
def rows():
  rng = np.random.default_rng(0)
  sizes = np.where(rng.random(37) < 0.9, rng.integers(3, 30, 37), rng.integers(3, 61, 37))
  return Rows(
    Store(),
    Labelled(
      [np.full(size, 100 + i, np.int32) for i, size in enumerate(sizes)],
      [np.arange(size, dtype=np.int32) % 2 for size in sizes],
      dict(label=np.arange(37, dtype=np.int32)),
      cut=0,
    ),
    length=60, seed=3, together=8,
  )  # fmt: skip


def labels(batch):
  return batch['label_BG'][:, 0].tolist()


@mutation('position=0, **self.extra_ids)', 'position=0)')
def test_all_tokens_have_the_id_of_a_further_table_that_their_file_has(rows):
  served = dataclasses.replace(rows, extra_ids=dict(language=2, role=0))
  for batch in (served.batch(np.arange(8), True), served.template()):
    shape = batch['token_BT'].shape
    assert batch['language_BT'].shape == batch['role_BT'].shape == shape
    assert batch['language_BT'].dtype == np.int32 and not batch['role_BT'].any()
  assert (served.batch(np.arange(8), True)['language_BT'] == 2).all()


@mutation('counter_rng.root(self.seed, _SITE), epoch)', 'counter_rng.root(self.seed, _SITE), 0)')
def test_an_epoch_has_every_example_once_in_an_order_of_its_own(rows):
  alone = dataclasses.replace(rows, together=1)  # batches of one row have no order of their own
  first, second = (labels(alone.batch(np.arange(37) + 37 * epoch, True)) for epoch in (0, 1))
  assert sorted(first) == sorted(second) == list(range(37)) and first != second
  assert labels(rows.batch(np.arange(37), False)) == list(range(37))


@pytest.mark.parametrize('length_block', [2, 50])
@mutation('first = -epoch * self.rows % self.together', 'first = 0')
@mutation('reshape(-1, self.together)[batch_n]', 'reshape(-1, self.together)[np.sort(batch_n)]')
def test_examples_of_like_lengths_share_a_batch(rows, length_block):
  """Of each block of whole batches none reaches into another's lengths; the order is drawn."""
  grouped = dataclasses.replace(rows, length_block=length_block)
  epoch_n, orders = np.arange(37 * 6).reshape(6, 37), []
  for epoch, row_n in enumerate(epoch_n):
    assert sorted(labels(grouped.batch(row_n, True))) == list(range(37))
    first = -(-37 * epoch // 8)  # the first batch of this epoch alone
    whole = range(first, 37 * (epoch + 1) // 8)
    for start in range(0, len(whole), length_block):
      spans = [
        (min(sizes), max(sizes))
        for index in whole[start : start + length_block]
        for sizes in [rows.size_n[labels(loader.Batches(grouped, 8).at(index)[0])]]
      ]
      longest = np.sort(np.array(spans), axis=0)
      assert (longest[1:, 0] >= longest[:-1, 1]).all()
      orders.append(spans == sorted(spans))
  assert not all(orders)


@mutation('own = label_n[number_n]', 'own = label_n[row_n % self.rows]')
def test_a_row_is_an_example_with_its_label_and_padding(rows):
  batch = rows.batch(np.arange(8), True)
  for b, label in enumerate(labels(batch)):
    size = len(rows.examples.id_n[label])
    assert (batch['token_BT'][b, :size] == 100 + label).all()
    assert (batch['token_BT'][b, size:] == 7).all() and not batch['type_BT'][b, size:].any()
    assert batch['example_BT'][b].sum() == size
    np.testing.assert_array_equal(batch['position_BT'][b, :size], np.arange(size))


@mutation('np.arange(size) - start_p[part_T - 1]', 'np.arange(size)')
@mutation(
  "batch[f'{name}_BT'] = _columns([value_n[number]",
  "batch[f'{name}_BT'] = _columns([value_n[len(number_n) - 1]",
)
def test_parts_of_a_row_and_labels_of_tokens():
  examples = Labelled(
    [np.array([1, 5, 2, 1, 2], np.int32), np.array([1, 2, 1, 6, 2], np.int32)],
    [np.zeros(5, np.int32)] * 2,
    dict(right=np.array([[1, 0], [0, 1]], np.float32)),
    cut=0,
    token_label=dict(tag=[np.array([0, 3, 0, 0, 0]), np.array([0, 0, 0, 4, 0])]),
    part_n=[np.array([1, 1, 1, 2, 2], np.int32), np.array([1, 1, 2, 2, 2], np.int32)],
  )
  rows = Rows(Store(), examples, length=20, seed=3, together=2)
  batch = rows.batch(np.array([1, 0]), False)
  assert batch['position_BT'][:, :5].tolist() == [[0, 1, 0, 1, 2], [0, 1, 2, 0, 1]]
  assert batch['example_BT'][:, :6].tolist() == [[1, 1, 2, 2, 2, 0], [1, 1, 1, 2, 2, 0]]
  assert batch['first_BG'].tolist() == [[0, 2], [0, 3]]
  assert batch['right_BG'].tolist() == [[0, 1], [1, 0]]
  assert batch['example_weight_BG'].shape == (2, 2)
  assert batch['tag_BT'][:, :6].tolist() == [[0, 0, 0, 4, 0, 0], [0, 3, 0, 0, 0, 0]]
  assert rows.template()['tag_BT'].shape == (1, 20)


@mutation('whole_n = np.arange(first, stop) if shuffle else row_n', 'whole_n = row_n')
def test_hosts_read_the_rows_of_one_batch(rows):
  for index in range(12):
    whole = loader.Batches(rows, 8).at(index)[0]
    parts = [next(loader.stream(loader.Batches(rows, 8), index, (host, 4)))[1] for host in range(4)]
    for name, value in whole.items():
      np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), value)


def test_rows_are_as_long_as_their_batch_asks_for(rows):
  found = {}
  for index in range(30):
    batch = loader.Batches(rows, 8).at(index)[0]
    length, longest = batch['token_BT'].shape[1], int((batch['example_BT'] > 0).sum(1).max())
    found[length] = True
    assert length == min(each for each in rows.lengths if each >= longest)
  assert 1 < len(found) <= len(rows.lengths) == 4


@mutation('+ (below_u[:, None] - below_u) *', '+ 0 * (below_u[:, None] - below_u) +')
@pytest.mark.parametrize('seed', range(8))
def test_lengths_have_the_least_padding(seed):
  rng = np.random.default_rng(seed)
  size_n = rng.integers(1, rng.integers(2, 90), rng.integers(1, 40))
  lengths = Rows(Store(), Labelled([np.zeros(n) for n in size_n], [], {}, 0), 96, 0, 8).lengths
  tokens = lambda lengths: sum(min(each for each in lengths if each >= size) for size in size_n)
  top = -(-int(size_n.max()) // 8) * 8
  others = itertools.chain.from_iterable(
    itertools.combinations(range(8, top, 8), number) for number in range(4)
  )
  assert len(lengths) <= 4 and lengths[-1] == top
  assert tokens(lengths) == min(tokens((*found, top)) for found in others)


@mutation('epochs = seen / self.rows', 'epochs = 1')
@mutation('n * compiling + tokens', 'compiling + tokens')
def test_a_run_has_as_many_lengths_as_take_least(rows):
  """A token costs 1e9 FLOPs, so on a CPU compiling costs as much as 1,000 tokens."""
  flops, template = (lambda batch: 1e9 * batch['example_BT'].sum()), rows.template()
  fewer = lambda seen, platform='cpu': rows.fewer(flops, template, seen, platform)
  assert rows.most == 4 and len(rows.lengths) == 4
  for epochs in (1, 2, 4, 8, 30, 100):
    found = fewer(37 * epochs)
    time = [
      1000 * len(each.lengths) + epochs * sum(map(each.bucket, rows.size_n.tolist()))
      for each in (dataclasses.replace(rows, most=most) for most in (1, 2, 3, 4))
    ]
    assert found.most == 1 + time.index(min(time)), epochs
  assert [fewer(37 * epochs).most for epochs in (1, 2, 100)] == [1, 2, 4]
  assert fewer(37 * 100, 'tpu').most == 1  # a thousand times as fast


@mutation('type_T[ends(part_T)] = 2', 'type_T[0] = 2')
@mutation('ends(part_T) if self.stands_last else start_p', 'start_p')
def test_the_cls_of_each_part_may_stand_last():
  """[CLS] a [SEP], [CLS] b [SEP] c [SEP] as XLNet reads them, with the tags where the words are."""
  examples = with_cls_last(
    Labelled(
      [np.array([1, 50, 2, 1, 60, 2, 70, 2], np.int32)],
      [np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int32)],
      dict(right=np.array([[1.0, 0.0]], np.float32)),
      cut=0,
      token_label=dict(tag=[np.array([0, 5, 0, 0, 6, 0, 7, 0], np.int32)]),
      part_n=[np.array([1, 1, 1, 2, 2, 2, 2, 2], np.int32)],
    )
  )
  batch = Rows(Store(), examples, length=20, seed=3, together=1, stands_last=True).batch(
    np.zeros(1, np.int64), False
  )
  assert batch['token_BT'][0].tolist() == [50, 2, 1, 60, 2, 70, 2, 1]
  assert batch['type_BT'][0].tolist() == [0, 0, 2, 0, 0, 1, 1, 2]
  assert batch['tag_BT'][0].tolist() == [5, 0, 0, 6, 0, 7, 0, 0]
  assert batch['first_BG'].tolist() == [[2, 7]]


@mutation('[0, *range(at, end - 1), at - 1, *range(1, at - 1), end - 1]', '[*range(end)]')
@mutation('np.repeat(own, count // own.shape[1], 1)', 'own')
def test_a_pair_in_both_orders_has_its_label_twice():
  pair = Labelled(
    [np.array([1, 50, 2, 60, 61, 2], np.int32)], [np.array([0, 0, 0, 1, 1, 1], np.int32)],
    dict(label=np.array([4], np.int32)), cut=0,
  )  # fmt: skip
  examples = with_both_orders(pair)
  batch = Rows(Store(), examples, length=20, seed=3, together=1, stands_last=True).batch(
    np.zeros(1, np.int64), False
  )
  assert batch['token_BT'][0, :12].tolist() == [1, 50, 2, 60, 61, 2, 1, 60, 61, 2, 50, 2]
  assert batch['type_BT'][0, :12].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
  assert batch['position_BT'][0, :12].tolist() == [*range(6), *range(6)]
  assert batch['first_BG'].tolist() == [[5, 11]] and batch['label_BG'].tolist() == [[4, 4]]
  pair.id_n[0][-1] = 3  # GPT-1's rows end with another token
  assert with_both_orders(pair).id_n[0][6:].tolist() == [1, 60, 61, 2, 50, 3]
  with pytest.raises(UserError, match='expected config.data.task.name=.classify. with two col'):
    with_both_orders(pair._replace(type_n=[np.zeros(6, np.int32)]))
