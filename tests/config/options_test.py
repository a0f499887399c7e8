"""Options classes: types, ranges, names, what lacks, and the help that docstrings give."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax import options, registry
from bertjax.errors import UserError
from bertjax.field_types import (
  Count,
  Fraction,
  Natural,
  NonNegative,
  OpenShare,
  Positive,
  PositiveShare,
  Share,
)


class Masks(NamedTuple):
  """What some tests read.

  Attributes:
    rate: share of the tokens,
      at most all of them.
    rule, other: how they
      are chosen.
    words: of a span.
  """

  rate: Share
  rule: Literal['bert', 'roberta']
  other: str
  words: Count = 1


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
  'kind, good, bad',
  [
    (bool, [True, False], [0, 1, 'True', None]),
    (int, [0, -3, 10**12], [True, 1.0, '1', None, NAN]),
    (float, [0.5, -1.0, 3], [True, '0.5', None, NAN, INF, -INF]),
    (str, ['', 'a'], [None, 1, b'a']),
    (Count, [1, 7], [0, -1, True, 1.0]),
    (Natural, [0, 7], [-1, False, 0.0]),
    (Positive, [1e-9, 5, 1e300], [0, 0.0, -1.0, NAN, INF]),
    (NonNegative, [0, 0.0, 2.5], [-1e-9, NAN, INF]),
    (Share, [0, 0.0, 1, 1.0], [-0.1, 1.1, NAN, True]),
    (PositiveShare, [1e-9, 1], [0, 0.0, 1.1, NAN]),
    (Fraction, [0, 0.99], [1, 1.0, -0.1, NAN]),
    (OpenShare, [0.01, 0.99], [0, 1, 0.0, 1.0, NAN]),
    (Literal['a', 'b'], ['a', 'b'], ['c', '', None, 1]),
    (Literal['a', 1], [1, 'a'], [True, 1.0]),
    (Share | None, [None, 0.5], ['', 1.5, NAN]),
    (int | str, [1, 'a'], [None, 1.5, True]),
    (None, [None], [0, '', False]),
    (Any, [None, 1, 'a', [1]], []),
    (Mapping[str, Any], [{}, dict(a=1), ConfigDict(dict(a=1))], [None, 1, 'a', ['a'], ('a', 1)]),
  ],
)
@mutation('return value if type(value) is base or', 'return value if isinstance(value, base) or')
@mutation('(value, int | float) and not isinstance(value, bool)', '(value, int | float)')
@mutation('numeric and math.isfinite(value) else _WRONG', 'numeric and value == value else _WRONG')
@mutation('return found if found is not _WRONG and bounds.hold(found) else _WRONG', 'return found')
@mutation('above = value > self.low if self.open_low else value >= self', 'above = value >= self')
def test_a_value_is_of_its_type_and_in_its_range_or_refused(kind, good, bad):
  kind = type(None) if kind is None else kind
  for value in good:
    assert options.convert(kind, value, 'k') == value
  for value in bad:
    with pytest.raises(UserError) as error:
      options.convert(kind, value, 'config.k')
    assert str(error.value) == f'config.k: expected {options.describe(kind)}, got {value!r}'


@pytest.mark.parametrize(
  'kind, given, found',
  [
    (tuple[str, ...], [], ()),
    (tuple[str, ...], ['a', 'b'], ('a', 'b')),
    (tuple[float, ...], (1, 2.5), (1.0, 2.5)),
    (tuple[str, Count], ['a', 2], ('a', 2)),
    (tuple[tuple[str, Count], ...], [['a', 1], ('b', 2)], (('a', 1), ('b', 2))),
  ],
)
def test_tuples_may_come_as_lists(kind, given, found):
  got = options.convert(kind, given, 'k')
  assert got == found and all(type(a) is type(b) for a, b in zip(got, found, strict=True))


@pytest.mark.parametrize(
  'kind, bad',
  [
    (tuple[str, ...], ['abc', [1], None, ['a', None], {'a'}]),
    (tuple[str, Count], [[], ['a'], ['a', 0], ['a', 1, 2], [1, 'a']]),
    (tuple[tuple[str, Count], ...], [['a', 1], [['a', True]], [['a']]]),
  ],
)
@mutation('  if len(arguments) != len(value):\n    return _WRONG\n', '')
def test_tuples_of_other_things_are_refused(kind, bad):
  for value in bad:
    with pytest.raises(UserError, match='k: expected .* got '):
      options.convert(kind, value, 'k')


@mutation('  if lacking:\n', '  if False:\n', file='bertjax/options.py')
def test_what_lacks_is_named():
  with pytest.raises(UserError, match='k lacks rule, other; it has rate'):
    options.read(Masks, dict(rate=0.1), 'k')


def make(params, schedule, *, beta: Fraction, eps: Positive = 1e-6):
  """Makes an optimizer.

  Args:
    params: of the model.
    schedule: of the rate.
    beta: of the running mean.
    eps: is added.

  Returns:
    It.
  """
  return params, schedule, beta, eps


def test_of_a_function_the_keywords_are_fields():
  found = options.fields_of(make)
  assert list(found) == ['beta', 'eps']
  assert [field.required for field in found.values()] == [True, False]
  assert found['beta'].help == 'of the running mean.' and found['eps'].help == 'is added.'
  assert options.check_fields(found, dict(beta=0), 'k') == dict(beta=0.0, eps=1e-6)
  with pytest.raises(UserError, match="fields of k: .*got 'params'"):
    options.check_fields(found, dict(beta=0.5, params=1), 'k')


@mutation(r'(.*(?:\n {4,}.*)*)', '(.*)')
def test_docstrings_say_what_a_field_means():
  found = options.fields_of(Masks)
  assert list(found) == ['rate', 'rule', 'other', 'words']
  assert found['rate'].help == 'share of the tokens, at most all of them.'
  assert found['rule'].help == found['other'].help == 'how they are chosen.'
  assert found['words'] == options.Field(Count, False, 'of a span.', 1)


@pytest.mark.parametrize('folder', ['plans', 'noise'])
def test_every_field_of_a_plan_and_a_masking_is_explained(folder):
  for name in registry.names_in(f'bertjax.examples.{folder}'):
    found = registry.chosen(f'bertjax.examples.{folder}', name, 'k')
    for key, field in options.fields_of(found.options).items():
      assert field.help, (name, key)
