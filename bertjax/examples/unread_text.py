"""Checks made before text is read: they refuse rows that no store of this text could have.

Reading and encoding all of the text may take hours.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax import registry
from bertjax.errors import UserError
from bertjax.examples import plan_and_mask
from bertjax.examples.plan_and_mask import Recipe
from bertjax.examples.seqio_tasks import names, windows
from bertjax.store.reader import Store
from bertjax.text import corpus, files
from bertjax.vocab import whole_words
from bertjax.vocab.special import ROLES, SENTINELS
from bertjax.vocab.vocabulary import read_vocabulary

_read_once = functools.cache(read_vocabulary)  # a vocabulary is of all phases

# Column -> how `config.data` gets it, of files.
_REMEDY = dict(
  language="config.data.input=LANGUAGE=FILES, or config.data.columns=('language',) of JSON lines",
  role="config.data.columns=('role',) of JSON lines",
)


def check(config: Any, tables: Sequence[str]) -> None:
  """Refuses a plan and mask that do not go together, or that need of the vocabulary or of the text
  what these will not have, with the remedy; `tables` are the model's embedding tables that read a
  column of the store."""
  data = config.data
  recipe = plan_and_mask.open_recipe(data)
  if data.store or not (data.input or data.mixture):
    return  # a store of the workdir is taken as it is
  plan_and_mask.check_length(recipe, recipe.masking.raw(recipe.mask_options, config.length))
  if data.vocab:
    vocabulary = _read_once(data.vocab, data.lowercase)
    check_vocabulary(config, vocabulary.meta, f'config.data.vocab={data.vocab}')
  elif kind := data.train_vocab.type:
    roles = trained_roles(kind)
    special = dict.fromkeys(ROLES) | {role: i for i, role in enumerate(roles)}
    sentinels = range(SENTINELS if kind == 't5' else 0)
    made = dict(special=special, size=data.train_vocab.size, sentinels=sentinels)
    check_vocabulary(config, made, f'config.data.train_vocab.type={kind}')
  _check_units(recipe, data)
  if not by_task(data):
    _check_columns(recipe, tables, data)


def trained_roles(kind: str) -> Sequence[str]:
  """Returns the roles that have a piece in a vocabulary which `bertjax.vocab` trains."""
  own = dict(unigram=[*ROLES, 'eod'], t5=['sep', 'pad', 'unk'])
  own |= {whole_words.MARKED: ['cls', 'sep', 'pad', 'unk', 'eos']}
  return own.get(kind, ['pad', 'unk', 'eos'] if kind in whole_words.END else [*ROLES])


def check_vocabulary(config: Any, meta: Mapping[str, Any], where: str) -> None:
  """Refuses a vocabulary, `Vocabulary.meta`, which lacks special tokens or sentinels that the plan
  and mask of a config need; `where` names it for people."""
  recipe = plan_and_mask.open_recipe(config.data)
  plan_and_mask.check_special(recipe, meta['special'], where)
  counts = np.ones(meta['size'], np.int64)  # as of a text that has every id
  store: Store = dataclasses.replace(windows.without_text(where, meta), counts=counts)
  noise, options = recipe.masking, recipe.mask_options
  noise.check(options, store, noise.raw(options, config.length))


def lacks(special: Mapping[str, int | None]) -> list[str]:
  """Returns a line for each special token that a vocabulary lacks, with the plans and masks that
  need it."""
  found = []
  for role in [role for role in ROLES if special.get(role) is None]:
    for key in ('mask', 'plan'):
      names_of = registry.names_in(plan_and_mask.FOLDERS[key])
      users = [name for name in names_of if role in plan_and_mask.named(key, name).special]
      found += [f'{role}: expected one for config.data.{key}={", ".join(users)}'] if users else []
  return found


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


def by_task(data: Any) -> bool:
  """Returns whether the text comes from a seqio Task or a TFDS builder, whose columns are known
  only when it is opened."""
  named = data.input
  if data.mixture or data.module:
    return True
  return named != corpus.PYTHON_DOCS and (
    named.startswith('tfds:') or named in names.WITH_TENSORFLOW
  )
