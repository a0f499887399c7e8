"""Rows and an objective that fit: what it learns from is what they have."""

from collections.abc import Sequence
from typing import Any

from bertjax import registry
from bertjax.data_contracts import TARGETS
from bertjax.errors import UserError, warn_once
from bertjax.examples import readers

# Section of `config.data` that says what rows ask for -> its folder, and what each module exports.
OF_TARGETS = dict(mask=('noise', 'MASKING'), task=('labelled', 'TASK'))


def check(config: Any) -> None:
  """Refuses rows of `config.data` without targets that `config.objective` learns from; says so of
  an objective that does not tell them."""
  name, where = config.objective.name, 'config.objective.name'
  targets = registry.find('bertjax.objectives', name, where).OBJECTIVE.targets
  if not targets:
    return warn_once(
      f'{where}={name!r} does not say what targets it learns from, so rows of any kind are taken: '
      "give its OBJECTIVE targets=lambda config: ('hidden',), or () if it reads none "
      '(bertjax/data_contracts.py has the kinds)'
    )
  wanted = {*targets(config)}
  for key in OF_TARGETS.keys() & readers.of(config.data).reads:
    chosen = config.data[key].name
    found = _targets(key, chosen)
    if wanted and not wanted & {*found}:
      every = registry.names_in(f'bertjax.examples.{OF_TARGETS[key][0]}')
      fitting = [each for each in every if wanted & {*_targets(key, each)}]
      raise UserError(
        f'{where}={name!r} learns from {_said(sorted(wanted))}, and config.data.{key}.name='
        f'{chosen!r} gives {_said(found)}: expected {" or ".join(fitting) or "none"} there, or an '
        'objective and a model that learn from those. A run that has begun with both under an '
        'earlier version is finished by that, or begins another one by config.init_from. A module '
        'of your own says what it gives as targets=(..), by the names of bertjax/data_contracts.py'
      )


def _targets(key: str, name: str) -> Sequence[str]:
  folder, export = OF_TARGETS[key]
  module = registry.find(f'bertjax.examples.{folder}', name, f'config.data.{key}.name')
  return getattr(module, export).targets


def _said(kinds: Sequence[str]) -> str:
  return ', or '.join(TARGETS.get(kind, kind) for kind in kinds) or 'none'
