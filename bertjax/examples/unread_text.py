"""Checks made before text is read: they refuse rows that no store of this text could have.

Reading and encoding all of the text may take hours.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from bertjax.errors import UserError
from bertjax.examples import plan_and_mask
from bertjax.examples.plan_and_mask import Recipe
from bertjax.examples.seqio_tasks import names
from bertjax.text import corpus, files
from bertjax.vocab.vocabulary import read_vocabulary

# Column -> how `config.data` gets it, of files.
_REMEDY = dict(
  language="config.data.input=LANGUAGE=FILES, or config.data.columns=('language',) of JSON lines",
  role="config.data.columns=('role',) of JSON lines",
)


def check(data: Any, tables: Sequence[str]) -> None:
  """Refuses a plan and mask that do not go together, or that need of the vocabulary or of the text
  what these will not have, with the remedy; `tables` are the model's embedding tables that read a
  column of the store."""
  recipe = plan_and_mask.open_recipe(data)
  if data.store or not (data.input or data.mixture):
    return  # a store of the workdir is taken as it is
  files.refuse_removed(data.input)
  if data.vocab:
    special = _special(data.vocab, data.lowercase)
    plan_and_mask.check_special(recipe, special, f'config.data.vocab={data.vocab}')
  _check_units(recipe, data)
  if not _by_task(data):
    _check_columns(recipe, tables, data)


@functools.cache  # a vocabulary is of all phases
def _special(vocab: str, lowercase: bool | None) -> Mapping[str, int | None]:
  return read_vocabulary(vocab, lowercase).special


def _check_units(recipe: Recipe, data: Any) -> None:
  if recipe.masking.units(recipe.mask_options) and not (data.lexicon or data.segmenter):
    raise UserError(
      f'config.data.mask {recipe.mask_name!r} hides phrases and entities as a whole, and nothing '
      'finds them: expected config.data.lexicon=FILES or config.data.segmenter=MODULE:FUNCTION '
      '(capitals: runs of capitalised words), got neither'
    )


def _check_columns(recipe: Recipe, tables: Sequence[str], data: Any) -> None:
  names_of = ' and '.join(_REMEDY)
  said = {*data.columns, *(['language'] if files.says_language(data.input) else [])}
  by_language = ['language'] if recipe.language_alpha is not None else []
  for name in (*recipe.plan.columns, *by_language, *tables):
    if name not in said:
      raise UserError(
        f'the {name} of each text is read, by plan {recipe.plan_name!r}, language_alpha or the '
        f"model's tables, and config.data.input={data.input} does not say it: expected "
        f'{_REMEDY.get(name, f"one of {names_of}, which is all that a text can say")}'
      )


def _by_task(data: Any) -> bool:
  """Returns True if the text comes from a seqio Task or a TFDS builder, whose columns are known
  only when it is opened."""
  named = data.input
  if data.mixture or data.module:
    return True
  return named != corpus.PYTHON_DOCS and (
    named.startswith('tfds:') or named in names.WITH_TENSORFLOW
  )
