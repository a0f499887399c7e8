"""The modules that `sentence-transformers` reads beside a model: pooling and normalisation."""

import json
import pathlib
from typing import Any

from bertjax.convert.directory import max_length
from bertjax.errors import UserError, choose, writing

POOLS = dict(mean='pooling_mode_mean_tokens', first='pooling_mode_cls_token')


def write(directory: pathlib.Path, model: Any, pool: str) -> None:
  """Writes modules.json and what it names.

  Args:
    directory: of an exported model.
    model: its `config.model`.
    pool: 'mean' or 'first'.

  Raises:
    UserError: another pooling, or the first token of a model whose [CLS] is the last, or that has
      none.
  """
  choose(pool, POOLS, '--sentence-transformers')
  if pool == 'first' and model.name in ('xlnet', 'transformer_xl'):
    raise UserError(
      f'--sentence-transformers=first: the first token of {model.name} stands for no text, and is '
      'padding there: expected mean'
    )
  named = ('Transformer', 'Pooling', 'Normalize')
  modules = [
    dict(
      idx=i, name=str(i), path='' if i == 0 else f'{i}_{name}',
      type=f'sentence_transformers.models.{name}',
    )
    for i, name in enumerate(named)
  ]  # fmt: skip
  _write(directory / 'modules.json', modules)
  lowercase = dict(max_seq_length=max_length(model), do_lower_case=False)  # the tokenizer does it
  _write(directory / 'sentence_bert_config.json', lowercase)
  (directory / '1_Pooling').mkdir()
  pooling = {key: name == pool for name, key in POOLS.items()}
  pooling |= dict(pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)
  width = dict(word_embedding_dimension=model.width)
  _write(directory / '1_Pooling' / 'config.json', width | pooling)
  (directory / '2_Normalize').mkdir()
  (directory / '2_Normalize' / '.keep').touch()


def _write(path: pathlib.Path, value: Any) -> None:
  with writing('the modules of sentence-transformers', path):
    path.write_text(json.dumps(value, indent=2) + '\n')
