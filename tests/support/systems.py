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
# Those whose model and objective are another's, of other data, schedules or sizes.
SAME = {
  'bert_lamb', 'diffusion', 'electra_two_stage', 'ernie', 'mass', 'mbert', 'quickstart', 'roberta',
  'speedrun', 'xlm_e', 'xlm_r',
}  # fmt: skip


def tiny(name: str, **overrides) -> ConfigDict:
  """The config at the size `test`, 8 rows of at most 64 tokens, dropout on."""
  module = importlib.import_module(f'configs.{name}')
  c = module.get_config('test' if hasattr(module, 'SIZES') else None)
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
