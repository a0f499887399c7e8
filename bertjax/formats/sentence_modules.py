"""The modules of sentence-transformers beside a model: how they make the vector of a text."""

import json
import pathlib
from typing import Any, NamedTuple

from bertjax import json_files
from bertjax.errors import UserError, choose, writing

NAME = 'modules.json'
MODULES = ('Transformer', 'Pooling', 'Normalize')
WRITTEN = dict(mean='pooling_mode_mean_tokens', first='pooling_mode_cls_token')
POOLS = dict(mean='mean', mean_tokens='mean', cls='first', cls_token='first')  # theirs -> ours
ENDS_WITH_CLS = ('xlnet', 'transformer_xl')  # or have none: their first token stands for no text
ANY = 1 << 30  # tokens


class Sentences(NamedTuple):
  """The way in which the vector of a text is computed, as sentence-transformers declares it."""

  pool: str = 'mean'  # pooling of the tokens' vectors, as in `Model.embed`
  normalize: bool = False  # True scales the vector to length 1
  # most tokens read of a text, special ones included; not more than the model takes
  length: int = ANY
  prompt: str = ''  # text put before each text; '': none
  lowercase: bool = False  # True lower-cases texts first
  refused: str = ''  # a declared step that is not computed here; '': none

  def text(self, text: str) -> str:
    """Returns what is read of a text."""
    return (self.prompt + text).lower() if self.lowercase else self.prompt + text


MEAN = Sentences()


def read(path: pathlib.Path, model: str) -> Sentences:
  """Reads what is declared of the model of a directory, which may be 0_Transformer below
  modules.json; as in that library, without modules.json it is the mean."""
  above = path.name.startswith('0_') and not (path / NAME).is_file()
  root = path.parent if above else path
  modules = _json(root / NAME, list)
  usual = _json(path / 'tokenizer_config.json').get('model_max_length')
  if not modules:
    return MEAN
  if not all(isinstance(each, dict) and {'type', 'path'} <= {*each} for each in modules):
    raise UserError(f'{root / NAME}: expected objects with type and path, got {modules!r:.60}')
  names = [str(each['type']) for each in modules]
  names = [x.split('.')[-1] if x.startswith('sentence_transformers.') else x for x in names]
  paths = {name: root / str(each['path']) for name, each in zip(names, modules, strict=True)}
  pooling = _json(paths['Pooling'] / 'config.json') if 'Pooling' in paths else {}
  whole = _json(root / 'config_sentence_transformers.json')
  net = {key: x for file in path.glob('sentence_*_config.json') for key, x in _json(file).items()}
  start, modes = 'pooling_mode_', pooling.get('pooling_mode')
  if not modes:
    on = [key for key in pooling if key.startswith(start) and pooling[key]]
    modes = [key.removeprefix(start) for key in on] or ['mean']
  modes = [modes] if isinstance(modes, str) else [*map(str, modes)]
  pool = POOLS.get(modes[0], '')
  prompts, prompt = whole.get('prompts') or {}, whole.get('default_prompt_name')
  options = [key for key, x in net.items() if x and key.endswith('args')]
  cut = whole.get('truncate_dim') or 0
  known = names in ([*MODULES[:2]], [*MODULES]) and paths['Transformer'] == path
  wrong = {
    f'the modules {", ".join(names)}': not known,
    f'pooling by {", ".join(modes)}': len(modes) > 1 or not pool,
    f'the first token of {model}': model in ENDS_WITH_CLS and pool == 'first',
    f'the options {", ".join(options)}': bool(options),
    f'the prompt {prompt!r}': prompt not in (None, *prompts),
    f'vectors of {cut} numbers': 0 < cut < pooling.get('word_embedding_dimension', ANY),
    'a prompt that is not pooled': bool(prompt) and not pooling.get('include_prompt', True),
  }
  return Sentences(
    pool, 'Normalize' in names, min(int(net.get('max_seq_length') or usual or ANY), ANY),
    str(prompts.get(prompt, '')), bool(net.get('do_lower_case')),
    ', '.join(said for said, is_so in wrong.items() if is_so),
  )  # fmt: skip


def write(directory: pathlib.Path, model: Any, pool: str, length: int) -> None:
  """Writes modules.json and what it names. Raises UserError: another pooling, or the first token of
  a model whose [CLS] is the last, or that has none."""
  choose(pool, WRITTEN, '--sentence-transformers')
  if pool == 'first' and model.name in ENDS_WITH_CLS:
    raise UserError(
      f'--sentence-transformers=first: the first token of {model.name} stands for no text, and is '
      'padding there: expected mean'
    )
  folders = ['', *(f'{i}_{name}' for i, name in enumerate(MODULES) if i)]
  modules = [
    dict(idx=i, name=str(i), path=folder, type=f'sentence_transformers.models.{name}')
    for i, (folder, name) in enumerate(zip(folders, MODULES, strict=True))
  ]
  pooling = {key: name == pool for name, key in WRITTEN.items()}
  pooling |= dict(pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)
  files = {
    NAME: modules,
    # The tokenizer lowercases.
    'sentence_bert_config.json': dict(max_seq_length=length, do_lower_case=False),
    '1_Pooling/config.json': dict(word_embedding_dimension=model.width) | pooling,
  }
  with writing('the modules of sentence-transformers', directory / NAME):
    for folder in folders[1:]:
      (directory / folder).mkdir()
    (directory / folders[-1] / '.keep').touch()
    for name, value in files.items():
      (directory / name).write_text(json.dumps(value, indent=2) + '\n')


_KINDS = dict(
  prompts=dict, default_prompt_name=str, max_seq_length=int, model_max_length=int | float,
  pooling_mode=str | list,
)  # fmt: skip


def _json(path: pathlib.Path, kind: type = dict) -> Any:
  """Reads what a file holds, nothing where there is none."""
  found = json_files.read(path, kind) if path.is_file() else kind()
  if kind is dict:
    json_files.check(path, found, _KINDS)
  return found
