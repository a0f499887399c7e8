"""The recipes of distillation: every value has a source, and their text says how to run them."""

import importlib

import pytest
from mutation import mutation

from bertjax import schema


@pytest.mark.parametrize('recipe', ['kd:kd', 'kd:pkd', 'distilbert:'])
@mutation(
  'distill: a value without a source',
  'configs/distill/kd.py',
  "cited(PRESET, temperature=own['temperature'], states=own['states'])",
  "dict(temperature=own['temperature'], states=own['states'])",
  case='kd:kd',
)
def test_every_value_has_a_source(recipe):
  name, _, argument = recipe.partition(':')
  module = importlib.import_module(f'configs.distill.{name}')
  found = schema.listing(module.get_config(argument or None))
  assert not [row.key for row in found if not row.source]
  assert f'python -m bertjax.main --config=configs/distill/{name}.py' in module.__doc__
