"""Length of a run over labelled examples: `config.epochs`, counted over all its tasks."""

import math
from collections.abc import Collection
from typing import Any

from bertjax.config import timeline
from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config


def apply(config: Any, given: Collection[str]) -> list[str]:
  """Sets total_steps, and what happens once an epoch, from the number of examples.

  Args:
    config: changed in place.
    given: keys of the config that the command line gives; they stand.

  Returns:
    What was done, a line each.

  Raises:
    UserError: epochs of what has no end, or files that cannot be read.
  """
  if not config.epochs:
    return []
  if config.data.reader != 'labelled':
    raise UserError(
      f'config.epochs={config.epochs:g} counts passes over labelled examples, and '
      f'config.data.reader={config.data.reader!r} has none: leave it at 0 and set '
      'config.total_steps'
    )
  if 'total_steps' in given:
    return [f'config.total_steps={config.total_steps}, as given, and not {config.epochs:g} epochs']
  line, counts = timeline.make(config), []  # (examples, rows of a batch) of each task
  for phase in line.drawn or [timeline.PhaseConfig('main', config)]:
    with timeline.named(phase):
      counts.append((from_config.count(phase.config), phase.config.batch_size))
  examples = sum(count for count, _ in counts)
  config.total_steps = max(math.ceil(sum(config.epochs * n / batch for n, batch in counts)), 1)
  said = [f'{config.epochs:g} epochs of {examples:,} examples: {config.total_steps:,} steps']
  once = math.ceil(sum(n / batch for n, batch in counts))
  for key in ('eval_steps', 'checkpoint_steps'):
    if key not in given:
      config[key] = once
  return said
