"""Vectors of texts as a directory of sentence-transformers declares them, in modules.json."""

import json
import pathlib
from typing import Any, NamedTuple

from bertjax.errors import UserError

NAME = 'modules.json'
POOLS = dict(mean='mean', mean_tokens='mean', cls='first', cls_token='first')  # theirs -> ours


class Sentences(NamedTuple):
  """How the vector of a text is made.

  Attributes:
    pool: of its tokens, as in `Model.embed`.
    normalize: whether it has length 1.
    length: tokens that are read at most, special ones included; not more than the model takes.
    prompt: put before each text.
    lowercase: whether texts are lower-cased first.
    refused: what is declared and not computed here; '': nothing.
  """

  pool: str = 'mean'
  normalize: bool = False
  length: int = 1 << 30
  prompt: str = ''
  lowercase: bool = False
  refused: str = ''

  def text(self, text: str) -> str:
    """Returns what is read of a text."""
    return (self.prompt + text).lower() if self.lowercase else self.prompt + text


MEAN = Sentences()


def read(path: pathlib.Path, model: str) -> Sentences:
  """Reads what is declared of a model; as in that library, without modules.json it is the mean.

  Args:
    path: of the directory of the model, which may be a folder that modules.json names first.
    model: its `config.model.name`.
  """
  above = [each['path'] for each in _json(path.parent / NAME) or ()]
  root = path.parent if above[:1] == [path.name] else path
  modules = _json(root / NAME)
  if not modules:
    return MEAN
  names = [each['type'] for each in modules]
  names = [x.split('.')[-1] if x.startswith('sentence_transformers.') else x for x in names]
  own = {n: _json(root / m['path'] / 'config.json') for n, m in zip(names, modules, strict=True)}
  pooling, whole = own.get('Pooling', {}), _json(root / 'config_sentence_transformers.json')
  net = {key: x for file in path.glob('sentence_*_config.json') for key, x in _json(file).items()}
  start, modes = 'pooling_mode_', pooling.get('pooling_mode')
  modes = [modes] if isinstance(modes, str) else modes or [
    key.removeprefix(start) for key, on in pooling.items() if key.startswith(start) and on
  ] or ['mean']  # fmt: skip
  prompts, prompt = whole.get('prompts') or {}, whole.get('default_prompt_name')
  options = [key for key, x in net.items() if x and key.endswith('args')]
  known = [['Transformer', 'Pooling', 'Normalize'][:n] for n in (2, 3)]
  last = model in ('xlnet', 'transformer_xl')  # whose first token stands for no text
  wrong = {
    f'the modules {", ".join(names)}': names not in known or root / modules[0]['path'] != path,
    f'pooling by {", ".join(modes)}': len(modes) > 1 or modes[0] not in POOLS,
    f'the first token of {model}': last and POOLS.get(modes[0]) == 'first',
    f'the options {", ".join(options)}': bool(options),
    f'the prompt {prompt!r}': prompt not in (None, *prompts),
    'a prompt that is not pooled': bool(prompt) and not pooling.get('include_prompt', True),
  }
  usual = _json(path / 'tokenizer_config.json').get('model_max_length')
  return Sentences(
    POOLS.get(modes[0], 'mean'), 'Normalize' in names,
    min(int(net.get('max_seq_length') or usual or 1 << 30), 1 << 30),
    prompts.get(prompt, ''), bool(net.get('do_lower_case')),
    ', '.join(said for said, is_so in wrong.items() if is_so),
  )  # fmt: skip


def _json(path: pathlib.Path) -> Any:
  """What a file holds, {} where there is none."""
  try:
    return json.loads(path.read_bytes()) if path.is_file() else {}
  except ValueError as error:
    raise UserError(f'{path} is no JSON: {error}') from error
