"""What every recipe of a folder of configs keeps."""

import importlib

from bertjax.config import schema


def sourced(folder, recipe):
  """The config of 'NAME:ARGUMENT', whose values all have a source, and whose text says its use."""
  name, _, argument = recipe.partition(':')
  module = importlib.import_module(f'configs.{folder}.{name}')
  config = module.get_config(argument or None)
  assert not [row.key for row in schema.listing(config) if not row.source]
  assert f'python -m bertjax.main --config=configs/{folder}/{name}.py' in module.__doc__
  return config
