"""Rows and an objective that fit: what it learns from is what they have."""

from collections.abc import Sequence
from typing import Any

from bertjax import registry
from bertjax.data_contracts import TARGETS
from bertjax.errors import UserError, warn_once
from bertjax.examples import plan_and_mask, readers


def check(config: Any) -> None:
  """Refuses rows of `config.data` without targets that `config.objective` learns from; says so of
  an objective that does not tell them."""
  name, where = config.objective.name, 'config.objective.name'
  targets = registry.chosen('bertjax.objectives', name, where).targets
  if not targets:
    return warn_once(
      f'{where}={name!r} does not say what targets it learns from, so rows of any kind are taken: '
      "give its OBJECTIVE targets=lambda config: ('hidden',), or () if it reads none "
      '(bertjax/data_contracts.py has the kinds)'
    )
  wanted = {*targets(config)}
  for key in {'mask', 'task'} & {*readers.of(config.data).reads}:
    chosen = config.data[key].name
    found = plan_and_mask.named(key, chosen).targets
    if wanted and not wanted & {*found}:
      every = registry.names_in(plan_and_mask.FOLDERS[key])
      fitting = [each for each in every if wanted & {*plan_and_mask.named(key, each).targets}]
      raise UserError(
        f'{where}={name!r} learns from {_said(sorted(wanted))}, and config.data.{key}.name='
        f'{chosen!r} gives {_said(found)}: expected {" or ".join(fitting) or "none"} there, or an '
        'objective and a model that learn from those. A run that has begun with both under an '
        'earlier version is finished by that, or begins another one by config.init_from. A module '
        'of your own says what it gives as targets=(..), by the names of bertjax/data_contracts.py'
      )


def _said(kinds: Sequence[str]) -> str:
  return ', or '.join(TARGETS.get(kind, kind) for kind in kinds) or 'none'
