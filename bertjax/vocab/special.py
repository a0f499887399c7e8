"""Pieces that are no text, and pieces that are symbols of the text.

The roles, [MASK] or <s>, never come of text: where it spells them it is text. Symbols that
people add, [E1] or <user>, are tokens wherever a text has them, as in transformers. tokenizer.json
says them itself; of other vocabularies the files beside them do (`added`).
"""

import itertools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from bertjax import json_files
from bertjax.errors import UserError, require_file
from bertjax.vocab import whole_words

CONFIG = 'tokenizer_config.json'
ROLES = dict(
  cls=('[CLS]', '<cls>', '<s>', '<S>', '_start_'),
  sep=('[SEP]', '<sep>', '</s>', '<|endoftext|>', '</S>', '_delimiter_'),
  pad=('[PAD]', '<pad>'),
  mask=('[MASK]', '<mask>', '<special1>'),
  unk=('[UNK]', '<unk>'),
)
SENTINELS = 100  # of T5's vocabulary
# Keys of the files beside a vocabulary, whose values are tokens too.
_NAMED = ('additional_special_tokens', 'extra_special_tokens', 'bos_token', 'eos_token')
FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')


def of(index: Mapping[str, int], kind: str) -> dict[str, int | None]:
  """Returns role -> id of a vocabulary, piece -> id, or None where it has none; eod, last and eos
  where it has them."""
  found = {
    role: next((index[name] for name in names if name in index), None)
    for role, names in ROLES.items()
  }
  if '<special1>' in index:  # XLM, whose </s> stands at both ends
    found['cls'] = found['sep']
  if found['cls'] is None and found['sep'] == index.get('<|endoftext|>', -1):
    found['cls'] = found['sep']  # GPT-2's only one
  if '<eod>' in index:  # XLNet, whose documents end with it
    found['eod'] = index['<eod>']
  if '_classify_' in index:  # GPT-1's rows, which end otherwise than their first text
    found['last'] = index['_classify_']
  if kind in whole_words.END:
    found['eos'] = index[whole_words.END[kind]]
  return found


def json_beside(file: pathlib.Path, name: str) -> dict[str, Any]:
  """Reads a JSON object in the folder of a file, {} where there is none; null is absent."""
  path = file.parent / name
  if not os.path.lexists(path):
    return {}
  require_file(path, f'{name}, a JSON object')
  found = json_files.read(path)
  return {key: value for key, value in found.items() if value is not None}


def added(file: pathlib.Path) -> dict[str, tuple[int | None, AddedToken]]:
  """Reads what the files beside a vocabulary add to it, as transformers does: content -> its id,
  where they say one, and the token."""
  said, older = json_beside(file, CONFIG), {}
  if 'added_tokens_decoder' not in said:
    said = said | json_beside(file, 'special_tokens_map.json')
    older = json_beside(file, 'added_tokens.json')
  token = lambda given: AddedToken(
    **{key: given[key] for key in ('content', *FLAGS) if key in given}
  )
  found: dict[str, tuple[int | None, AddedToken]] = {}
  try:
    for i, given in said.get('added_tokens_decoder', {}).items():
      found[given['content']] = int(i), token(given)
    for given in itertools.chain.from_iterable(_listed(said.get(key)) for key in _NAMED):
      found.setdefault(given['content'], (None, token(given | dict(special=True))))
    for name, i in older.items():
      found[name] = int(i), found[name][1] if name in found else AddedToken(name)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise UserError(
      f'{file.parent}: the tokens that {CONFIG} and the files beside it add have another form than '
      f'transformers gives them: {error!r}'
    ) from error
  return found


def _listed(value: Any) -> list[dict[str, Any]]:
  if isinstance(value, dict) and 'content' not in value:
    value = [*value.values()]  # by names of the user
  values = value if isinstance(value, list) else [value] if value else []
  return [each if isinstance(each, dict) else dict(content=each) for each in values]


def inside(file: pathlib.Path, index: Mapping[str, int]) -> dict[int, AddedToken]:
  """Returns id -> token of what the files beside a vocabulary, piece -> id, add that it has."""
  return {index[name]: token for name, (_, token) in added(file).items() if name in index}


def reading(tokenizer: Tokenizer, kind: str, index: Mapping[str, int]) -> Tokenizer:
  """Makes a Rust tokenizer by which the roles are text and all that was added besides is tokens;
  the given one where that is enough."""
  roles = {tokenizer.id_to_token(i) for i in of(index, kind).values() if i is not None}
  added = tokenizer.get_added_tokens_decoder().values()
  if any(token.special and token.content not in roles for token in added):
    spec = json.loads(tokenizer.to_str())
    for token in spec['added_tokens']:
      token['special'] &= token['content'] in roles
    tokenizer = Tokenizer.from_str(json.dumps(spec))
  tokenizer.encode_special_tokens = True  # where the text spells them it is text
  return tokenizer
