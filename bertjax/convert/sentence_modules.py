"""Vectors of texts as a directory of sentence-transformers declares them, in modules.json."""

import json
import pathlib
from typing import Any, NamedTuple

from bertjax.errors import UserError

NAME = 'modules.json'
KNOWN = (['Transformer', 'Pooling'], ['Transformer', 'Pooling', 'Normalize'])
POOLS = dict(mean='mean', mean_tokens='mean', cls='first', cls_token='first')  # theirs -> ours
READ = (  # keys that are read here, or follow from the modules, or change no vector
  'max_seq_length', 'do_lower_case', 'prompts', 'default_prompt_name', 'similarity_fn_name',
  'unpad_inputs', 'transformer_task', 'modality_config', 'module_output_name', 'model_type',
  '__version__',
)  # fmt: skip


class Sentences(NamedTuple):
  """How the vector of a text is made.

  Attributes:
    pool: of its tokens, as in `Model.embed`.
    normalize: whether it has length 1.
    length: tokens that are read at most, special ones included; None: as many as the model takes.
    prompt: put before each text.
    lowercase: whether texts are lower-cased first.
    refused: what is declared and not computed here; '': nothing.
  """

  pool: str = 'mean'
  normalize: bool = False
  length: int | None = None
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
  start = 'pooling_mode_'
  modes = [key.removeprefix(start) for key, on in pooling.items() if key.startswith(start) and on]
  modes = pooling.get('pooling_mode') or modes or ['mean']
  modes = [modes] if isinstance(modes, str) else modes
  prompts, prompt = whole.get('prompts') or {}, whole.get('default_prompt_name')
  options = {key: x for key, x in (net | whole).items() if x and key not in READ}
  last = model in ('xlnet', 'transformer_xl')  # whose first token stands for no text
  wrong = {
    f'the modules {", ".join(names)}': names not in KNOWN or root / modules[0]['path'] != path,
    f'pooling by {", ".join(modes)}': len(modes) > 1 or modes[0] not in POOLS,
    f'the first token of {model}': last and POOLS.get(modes[0]) == 'first',
    f'{options}': bool(options),
    f'the prompt {prompt!r}': prompt not in (None, *prompts),
    'a prompt that is not pooled': bool(prompt) and not pooling.get('include_prompt', True),
  }
  usual = _json(path / 'tokenizer_config.json').get('model_max_length')
  tokens = net.get('max_seq_length') or usual
  return Sentences(
    POOLS.get(modes[0], 'mean'), 'Normalize' in names, tokens and min(int(tokens), 1 << 30),
    prompts.get(prompt, ''), bool(net.get('do_lower_case')),
    ', '.join(said for said, is_so in wrong.items() if is_so),
  )  # fmt: skip


def _json(path: pathlib.Path) -> Any:
  """What a file holds, {} where there is none."""
  try:
    return json.loads(path.read_bytes()) if path.is_file() else {}
  except ValueError as error:
    raise UserError(f'{path} is no JSON: {error}') from error
