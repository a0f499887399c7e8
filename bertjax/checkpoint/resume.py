"""A workdir belongs to one run: config.json keeps its config, and a resume must agree with it."""

import copy
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from bertjax.checkpoint import manifest
from bertjax.errors import UserError

# Keys that may differ when a run is resumed, with all that is below them. Whatever follows from
# total_steps by reference (warm-up, length of the schedule) follows it.
MAY_DIFFER = (
  'total_steps',
  'log_steps',
  'eval_steps',
  'checkpoint_steps',
  'keep_checkpoints',
  'save_carry',
  'best',
  'mesh',
  'sharding_rules',
  'microbatches',
  'model.remat',
  'data.store',  # it may have moved; the sha256 of the last batch tells whether it is the same
  'data.threads',
  'data.workers',
  'eval.batch_size',
  'eval.pseudo_perplexity',
  'eval.fill_mask',
  'profile',
)


def config_differences(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
  """(key, old, new) for every key that differs and must not; None stands for an absent key.

  Args:
    old, new: nested dicts of JSON values.
  """
  old_flat, new_flat = _flat(old), _flat(new)
  return [
    (key, old_flat.get(key), new_flat.get(key))
    for key in sorted({*old_flat, *new_flat})
    if old_flat.get(key) != new_flat.get(key)
    and not any(key == may or key.startswith(f'{may}.') for may in MAY_DIFFER)
  ]


def check_workdir(workdir: pathlib.Path | str, config: ConfigDict) -> None:
  """Compares the config with that of the run in the workdir, if there is one; writes nothing.

  The comparison is made at the earlier total_steps, set through the config's references: with
  `warmup_steps = total_steps // 100` a longer run is the same run, while a warm-up that was given
  by hand must stay what it was.

  Raises:
    UserError: keys differ that are not in `MAY_DIFFER`; all of them are listed.
  """
  path = pathlib.Path(workdir, 'config.json')
  if not path.exists():
    return
  old = json.loads(path.read_bytes())
  comparable = copy.deepcopy(config)
  comparable.total_steps = old['total_steps']
  differences = config_differences(old, _as_json(comparable))
  if differences:
    lines = '\n'.join(f'  config.{k}: expected {a!r}, got {b!r}' for k, a, b in differences)
    raise UserError(
      f'{workdir} holds a run of another config:\n{lines}\n'
      'Give the same values to resume it, or another --workdir for a new run'
    )


def claim_workdir(workdir: pathlib.Path | str, config: ConfigDict) -> None:
  """Writes config.json. To be called when the config is known to work, lest a mistyped one keeps
  the workdir."""
  if jax.process_index() == 0:
    manifest.write_json(pathlib.Path(workdir, 'config.json'), _as_json(config))


def _as_json(config: ConfigDict) -> dict[str, Any]:
  return json.loads(config.to_json_best_effort())


def _flat(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  flat = {}
  for key, value in tree.items():
    if isinstance(value, Mapping) and value:
      flat |= _flat(value, f'{prefix}{key}.')
    else:
      flat[prefix + key] = value
  return flat
