"""Pieces that are no text, and pieces that are symbols of the text.

The five roles, [MASK] or <s>, never come of text: where it spells them it is text. Symbols that
people add, [E1] or <user>, are tokens wherever a text has them, as in transformers. tokenizer.json
says them itself; of other vocabularies the files beside them do (`added`).
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from bertjax.data.vocab import refusals, whole_words
from bertjax.errors import UserError

CONFIG = 'tokenizer_config.json'
ROLES = dict(
  cls=('[CLS]', '<cls>', '<s>'),
  sep=('[SEP]', '<sep>', '</s>', '<|endoftext|>'),
  pad=('[PAD]', '<pad>'),
  mask=('[MASK]', '<mask>', '<special1>'),
  unk=('[UNK]', '<unk>'),
)
# Keys of the files beside a vocabulary, whose values are tokens too.
_NAMED = ('additional_special_tokens', 'extra_special_tokens', 'bos_token', 'eos_token')
_FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')


def of(pieces: Sequence[str], kind: str) -> dict[str, int | None]:
  """Returns role -> id, or None where the vocabulary has none; eod and eos where it has them."""
  index = {piece: i for i, piece in enumerate(pieces)}
  found = {
    role: next((index[name] for name in names if name in index), None)
    for role, names in ROLES.items()
  }
  if '<special1>' in index:  # XLM, whose </s> stands at both ends
    found['cls'] = found['sep']
  if '<eod>' in index:  # XLNet, whose documents end with it
    found['eod'] = index['<eod>']
  if kind in whole_words.END:
    found['eos'] = index[whole_words.END[kind]]
  return found


def json_beside(file: pathlib.Path, name: str) -> dict[str, Any]:
  """A JSON object in the folder of a file, or {}.

  Raises:
    UserError: it is no JSON object.
  """
  path = file.parent / name
  if not path.is_file():
    return {}
  try:
    found = refusals.json_of(refusals.text_of(path))
  except UserError as error:
    raise UserError(f'{path}: {error}') from error
  if not isinstance(found, dict):
    raise UserError(f'{path}: expected a JSON object, got {type(found).__name__}')
  return found


def added(file: pathlib.Path) -> dict[str, tuple[int | None, AddedToken]]:
  """What the files beside a vocabulary add to it, as transformers reads them.

  Returns:
    content -> its id, where they say one, and the token.
  """
  said, older = json_beside(file, CONFIG), {}
  if 'added_tokens_decoder' not in said:
    said = said | json_beside(file, 'special_tokens_map.json')
    older = json_beside(file, 'added_tokens.json')
  try:
    decoder = said.get('added_tokens_decoder', {}).items()
    found: dict[str, tuple[int | None, AddedToken]] = {
      token['content']: (int(i), _token(token)) for i, token in decoder
    }
    for token in itertools.chain.from_iterable(map(_listed, map(said.get, _NAMED))):
      found.setdefault(token['content'], (None, _token(token | dict(special=True))))
    for name, i in older.items():
      found[name] = int(i), found[name][1] if name in found else AddedToken(name)
    return found
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise UserError(
      f'{file.parent}: the tokens that {CONFIG} and the files beside it add have another form than '
      f'transformers gives them: {error!r}'
    ) from error


def symbols(
  file: pathlib.Path, pieces: Sequence[str], roles: Mapping[str, int | None], rust: Tokenizer | None
) -> dict[int, AddedToken]:
  """Returns id -> token of what was added to a vocabulary and has no role.

  Args:
    file: of the vocabulary.
    pieces: by id.
    roles: as `of` returns them.
    rust: its Rust tokenizer, if there is one.
  """
  if rust is None:
    index = {piece: i for i, piece in enumerate(pieces)}
    found = {index[name]: token for name, (_, token) in added(file).items() if name in index}
  else:
    found = rust.get_added_tokens_decoder()
  return {i: found[i] for i in sorted(found.keys() - set(roles.values()))}


def as_json(tokens: Mapping[int, AddedToken]) -> dict[str, dict[str, Any]]:
  """Tokens by their ids, as tokenizer_config.json has them."""
  flags = lambda token: {name: getattr(token, name) for name in ('content', *_FLAGS)}
  return {str(i): flags(token) for i, token in tokens.items()}


def _listed(value: Any) -> list[dict[str, Any]]:
  if isinstance(value, dict) and 'content' not in value:
    value = [*value.values()]  # by names of the user
  values = value if isinstance(value, list) else [value] if value else []
  return [each if isinstance(each, dict) else dict(content=each) for each in values]


def _token(said: Mapping[str, Any]) -> AddedToken:
  return AddedToken(said['content'], **{name: said[name] for name in _FLAGS if name in said})


def add(tokenizer: Tokenizer, file: pathlib.Path) -> None:
  """Makes tokens of those pieces of a Rust tokenizer that the files beside it call tokens."""
  for name, (_, token) in added(file).items():
    if tokenizer.token_to_id(name) is not None:
      (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])


def reading(tokenizer: Tokenizer, kind: str, pieces: Sequence[str]) -> Tokenizer:
  """A Rust tokenizer by which the roles are text and all that was added besides is tokens; the
  given one where that is enough."""
  roles = {pieces[i] for i in of(pieces, kind).values() if i is not None}
  tokens = [token for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
  symbols = {token.content for token in tokens if token.special} - roles
  found = tokenizer
  if symbols:
    found = Tokenizer(tokenizer.model)
    for part in ('normalizer', 'pre_tokenizer', 'decoder'):
      if getattr(tokenizer, part) is not None:
        setattr(found, part, getattr(tokenizer, part))
    for token in tokens:
      token.special &= token.content not in symbols
    found.add_tokens(tokens)
  found.encode_special_tokens = True  # where the text spells them it is text
  return found
