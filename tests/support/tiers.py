"""Cases of a test, of which the quick tier has some."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def in_tiers(names: Iterable[str], slow: Container[str]) -> list[Any]:
  """Parameters of a test, of which those that are named are in the slow tier."""
  return [pytest.param(name, marks=pytest.mark.full if name in slow else ()) for name in names]
