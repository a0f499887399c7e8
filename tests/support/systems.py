"""Every config of configs/, as small as a test needs it."""

import importlib
import pathlib

from ml_collections import ConfigDict

from bertjax.config import sections

NAMES = sorted(
  p.stem
  for p in (pathlib.Path(__file__).resolve().parents[2] / 'configs').glob('*.py')
  if p.stem != '__init__'
)


def tiny(name: str, **overrides) -> ConfigDict:
  """The config at the size `test`, 8 rows of at most 64 tokens, dropout on."""
  c = importlib.import_module(f'configs.{name}').get_config(
    'test' if hasattr(importlib.import_module(f'configs.{name}'), 'SIZES') else None
  )
  sections.complete(c, overrides)
  shape = dict(layers=2, width=64, heads=8, ffn=256, dropout=0.1, attention_dropout=0.1)
  c.model.update({key: value for key, value in shape.items() if key in c.model})
  c.batch_size, c.length, c.total_steps, c.minutes = 8, 64, 100, 0.0
  c.data.plan.update({'drawn': 24} if c.data.plan.get('drawn') else {})
  c.evals.held_out.batch_size = 8
  for phase in c.phases.values():
    if 'batch_size' in phase:
      phase.batch_size = 8
  c.update_from_flattened_dict(overrides)
  return c
