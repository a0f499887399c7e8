"""`config.data.plan` and `config.data.mask`, read by type and checked together."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from bertjax import options, registry
from bertjax.data_contracts import Masking, Plan
from bertjax.errors import UserError
from bertjax.field_types import Count, NonNegative

OF_ROWS = ('pack', 'language_alpha', 'language_block')  # keys of `config.data` besides these two

# Key of `config.data` -> where the modules are whose names it has.
FOLDERS = dict(
  plan='bertjax.examples.plans', mask='bertjax.examples.noise', task='bertjax.examples.labelled'
)


class Recipe(NamedTuple):
  """The part of `config.data` that turns a store into batches.

  Attributes:
    plan_name, plan, plan_options: the rule by which tokens make up examples.
    mask_name, masking, mask_options: the rule by which tokens are hidden.
    pack: examples per row at most.
    language_alpha: languages are read with p ~ (share of the rows)^alpha; None: each row once.
    language_block: consecutive rows of one language, with language_alpha.
  """

  plan_name: str
  plan: Plan
  plan_options: Any
  mask_name: str
  masking: Masking
  mask_options: Any
  pack: Count
  language_alpha: NonNegative | None
  language_block: Count


def open_recipe(data: Any) -> Recipe:
  """Reads `config.data.plan`, `mask`, `pack`, `language_alpha` and `language_block`. Raises
  UserError: an unknown plan or masking, fields that it does not have, or two that do not go
  together."""
  plan_name, plan, plan_options = _chosen(data.plan, 'plan')
  mask_name, masking, mask_options = _chosen(data.mask, 'mask')
  known = options.fields_of(Recipe)
  fields = {k: options.convert(known[k].kind, data[k], f'config.data.{k}') for k in OF_ROWS}
  recipe = Recipe(plan_name, plan, plan_options, mask_name, masking, mask_options, **fields)
  _check_together(recipe)
  return recipe


def check_special(recipe: Recipe, special: Mapping[str, int | None], where: str) -> None:
  """Refuses a vocabulary, which `where` names, without the special tokens that rows need."""
  needed = dict.fromkeys((*recipe.masking.special, *recipe.plan.special))
  missing = [name for name in needed if special.get(name) is None]
  if missing:
    raise UserError(
      f'plan {recipe.plan_name!r} with mask {recipe.mask_name!r} needs the special tokens '
      f'{", ".join(needed)}; the vocabulary of {where} has no {", ".join(missing)}: expected one '
      'that has them'
    )


def check_length(recipe: Recipe, length: int) -> None:
  """Refuses rows of so many tokens of text that are too short for the plan."""
  least = recipe.plan.least(recipe.plan_options)
  if length < least:
    raise UserError(
      f'config.data.plan {recipe.plan_name!r} needs length >= {least}, got rows of {length} tokens '
      'of text: raise config.length, or that of the set of config.evals'
    )


def named(key: str, name: str) -> Any:
  """Returns the plan, mask or task, which `key` says, of this name. UserError: there is none."""
  return registry.chosen(FOLDERS[key], name, f'config.data.{key}.name')


def _chosen(given: Mapping[str, Any], key: str) -> tuple[str, Any, Any]:
  """Returns the name, the plan or masking, and the options that `config.data.<key>` asks for."""
  fields, where = dict(given), f'config.data.{key}'
  if 'name' not in fields:
    raise UserError(f'{where} lacks name: expected one of {FOLDERS[key].replace(".", "/")}')
  name = fields.pop('name')
  found = named(key, name)
  return name, found, options.read(found.options, fields, f'{where} ({name})')


def _check_together(recipe: Recipe) -> None:
  """Refuses what each part allows and both together do not."""
  pair = f'config.data.plan {recipe.plan_name!r} with config.data.mask {recipe.mask_name!r}'
  lacking = [name for name in recipe.masking.row if name not in recipe.plan.row]
  if lacking:
    raise UserError(
      f'{pair}: the masking reads {", ".join(f"{name}_B" for name in lacking)}, which this plan '
      'does not give; take a plan that does, or another masking'
    )
  plan, mask = dataclasses.asdict(recipe.plan_options), dataclasses.asdict(recipe.mask_options)
  for name in plan.keys() & mask.keys():
    if plan[name] != mask[name]:
      raise UserError(f'{pair}: {name} must be the same in both, got {plan[name]} and {mask[name]}')
  if recipe.plan.ordered and recipe.masking.block(recipe.mask_options) > 1:
    raise UserError(
      f'{pair}: the masking draws over blocks of rows, but these rows are read side by side; set '
      'the fields of the mask so that rows are masked one by one'
    )
  if recipe.plan.ordered and (recipe.pack > 1 or recipe.language_alpha is not None):
    raise UserError(
      f'config.data.plan {recipe.plan_name!r} reads columns side by side: expected pack=1 and '
      f'language_alpha=None, got {recipe.pack} and {recipe.language_alpha}'
    )
  if recipe.language_alpha is not None and recipe.pack > 1:
    raise UserError(
      'config.data.language_alpha reads rows language by language: expected config.data.pack=1, '
      f'got {recipe.pack}'
    )
  if recipe.language_alpha is None and recipe.language_block > 1:
    raise UserError(
      f'config.data.language_block={recipe.language_block} is read with language_alpha alone, '
      'which is None: set language_alpha, or language_block=1'
    )
