"""Labelled examples for models with further embedding tables: all tokens of a file have one id; and
for vocabularies that cut words by the rules of their language.

XLM reads examples in the language that `config.data.language` says, or an evaluation's own
`language` (facebookresearch/XLM, xlm/evaluation/xnli.py: lang_id). An ERNIE of dialogues reads them
in role 0, which is ours: no original says it.
"""

from collections.abc import Sequence
from typing import Any

from bertjax.errors import UserError, choose

KEY = 'config.data.language'


def ids(config: Any, language: str = '', languages: Sequence[str] = ()) -> dict[str, int]:
  """Returns table of `config.model.extra` -> the id of all tokens.

  `language` is a name or number, '' that of `config.data.language`; `languages` those of the store,
  in the order of their ids, where `config.data.languages` is (). Raises UserError: a table of
  languages, and none is said, or one that it has not.
  """
  tables = dict(config.model.extra) if 'extra' in config.model else {}
  found = dict.fromkeys(tables, 0)
  if 'language' in tables:
    said = language or config.data.get('language', '')
    found['language'] = _number(said, config.data.languages or languages, tables['language'])
  return found


def name(config: Any, language: str = '', languages: Sequence[str] = ()) -> str:
  """Returns the language of some examples, for a vocabulary that cuts words by its rules; arguments
  as `ids`. Raises UserError: none is said, or a number that has no name."""
  said = language or config.data.get('language', '')
  languages = config.data.languages or languages
  if said.isdecimal() and int(said) < len(languages):
    return languages[int(said)]
  if not said or said.isdecimal():
    remedy = (
      '; config.data.languages names those of the table of the model, in the order of their ids'
      if said
      else ''
    )
    raise UserError(
      'the vocabulary cuts words by the rules of their language: expected that of the examples by '
      f'name in {KEY}, or in language of an evaluation, got {said!r}{remedy}'
    )
  return said


def _number(said: str, languages: Sequence[str], rows: int) -> int:
  if not said or not (languages or said.isdecimal()):
    known = f'one of {", ".join(languages)}' if languages else f'its number, 0 to {rows - 1}'
    raise UserError(
      f'the model has a table of languages: expected in {KEY}, or in language of an evaluation, '
      f'that of the examples, {known}, got {said!r}'
    )
  if not said.isdecimal():
    return list(languages).index(choose(said, languages, KEY))
  if int(said) >= rows:
    raise UserError(f'{KEY}: expected a number below {rows}, the rows of the table, got {said}')
  return int(said)
