"""Threads that work ahead: results in order, a bounded number of them, errors where they occur."""

import threading
import time

import numpy as np
import pytest
from mutation import mutation
from toy_store import random_store, recipe

from bertjax.examples import ahead
from bertjax.examples import examples as examples_lib
from bertjax.examples.plans import pairs


def test_results_come_in_order_and_by_several_threads():
  names = set()

  def slow(number):
    names.add(threading.get_ident())
    time.sleep(0.002 * (number % 5))
    return number

  assert list(ahead.in_order(slow, range(100), 4)) == list(range(100))
  assert 1 < len(names) <= 4


@mutation('if len(waiting) > threads:', 'if len(waiting) > 1000:')
def test_only_some_are_made_before_they_are_asked_for():
  begun = []
  results = ahead.in_order(lambda n: begun.append(n) or n, range(100), 3)
  for asked in range(1, 20):
    next(results)
    time.sleep(0.001)
    assert len(begun) <= asked + 3
  results.close()


@pytest.mark.parametrize('threads', [1, 2, 7])
def test_threads_change_no_bit_of_a_plan(monkeypatch, threads):
  expected = examples_lib.examples_in_memory(random_store(documents=500), recipe(), 64, 0)
  in_order = ahead.in_order
  monkeypatch.setattr(ahead, 'in_order', lambda f, items: in_order(f, items, threads))
  monkeypatch.setattr(pairs, 'WINDOW', 50)
  build = pairs.PLAN.build
  found = build(random_store(documents=500), expected.spec, 50)
  pieces = [column for column, _ in found]
  assert len(pieces) > 20
  for name, value_n in expected.column.items():
    np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), value_n)
