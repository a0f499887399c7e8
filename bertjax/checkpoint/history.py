"""Changes of a run's config while it went on: `history` of its config.json.

history   [{step, changes}] in order: after that step a resume gave keys other values; changes is
          dotted key -> {old, new}, without the one that was absent

With it the config of every step is known, so that any step can be repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bertjax import dotted

Change = dict[str, Any]  # step, changes

# Where data is and how it is read may differ today from what it was then.
PLACES = ('data.store', 'data.threads', 'data.workers')


def extended(
  found: Mapping[str, Any] | None, config: Mapping[str, Any], start: int
) -> list[Change]:
  """Returns the history of a run, whose config.json is `found` (None: new), that goes on with a
  config after `start` steps; a resume from before an earlier change takes that back."""
  if found is None:
    return []
  history = [dict(each, step=min(each['step'], start)) for each in found.get('history', ())]
  old, new = dotted.flat(found['config']), dotted.flat(config)
  changes = {}
  for key in sorted({*old, *new}):
    sides = dict(old=old, new=new)
    if old.get(key) != new.get(key):  # an absent key is None, as in `config_differences`
      changes[key] = {side: values[key] for side, values in sides.items() if key in values}
  return [*history, dict(step=start, changes=changes)] if changes else history


def changed_from(history: Sequence[Change], step: int) -> dict[str, Any]:
  """Key -> {old, new} of what changed after a step or a later one, all changes together."""
  found: dict[str, Any] = {}
  for change in history:
    if change['step'] >= step:
      for key, sides in change['changes'].items():
        before = {k: v for k, v in found.get(key, sides).items() if k == 'old'}
        found[key] = before | {k: v for k, v in sides.items() if k == 'new'}
  return found


def config_of(found: Mapping[str, Any], step: int) -> dict[str, Any]:
  """Returns the config that a step, counted from 1, was trained with; PLACES are today's."""
  values = dotted.flat(found['config'])
  for change in reversed(found.get('history', ())):
    if change['step'] < step:
      continue
    for key, sides in change['changes'].items():
      if key in PLACES:
        continue
      values.pop(key, None)
      if 'old' in sides:
        values[key] = sides['old']
  return dotted.nested(values)


def stretches(found: Mapping[str, Any], first: int, last: int) -> list[tuple[int, int]]:
  """(first, last) of the steps within these two, both included, that share a config."""
  steps = {change['step'] for change in found.get('history', ())}
  ends = sorted({step for step in steps if first <= step < last} | {last})
  return list(zip([first, *(end + 1 for end in ends[:-1])], ends, strict=True))
