"""The other arms of ELECTRA, as its docstring names them, are runs."""

import ast
import contextlib
import re

import jax
import pytest
from systems import tiny

from bertjax.train import setup
from configs import electra

ARMS = re.findall(r'^  (\w[\w -]*?)  +((?:--config\.\S+ *)+)$', electra.__doc__, re.M)


@pytest.mark.parametrize(('arm', 'flags'), ARMS, ids=[arm for arm, _ in ARMS])
def test_arms_of_electra(rich_store, arm, flags):
  assert len(ARMS) == 6
  changes = dict(re.findall(r'--config\.([\w.]+)=(\S+)', flags))
  for key, value in changes.items():
    with contextlib.suppress(ValueError):  # a word
      changes[key] = ast.literal_eval(value)
  setup.make_run(tiny('electra', **changes), str(rich_store), jax.devices()[:1])
