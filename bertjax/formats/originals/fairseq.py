"""RoBERTa and XLM-R as fairseq writes them: a .pt file with `args` or `cfg`, and `model`.

  open_checkpoint(pathlib.Path('roberta.base/model.pt'))

The file is read by `torch_files.load`, which runs nothing of it; dict.txt beside it becomes a
vocabulary (`fairseq_vocabulary.py`).
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError
from bertjax.formats import tables
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import fairseq_vocabulary, roberta, torch_files
from bertjax.formats.originals.original import Absent, Cut, Opening, naming, take

NAMES = ('model.pt', 'checkpoint_best.pt', 'checkpoint_last.pt', 'checkpoint.pt')
PREFIXES = ('encoder.', 'decoder.')
HEADS = ('lm_head.', 'classification_heads.')


def open_checkpoint(path: pathlib.Path, into: pathlib.Path | None = None) -> Opening:
  """Reads a .pt file, or the one in a directory, with dict.txt beside it; the vocabulary is written
  `into` a directory, or to one that goes when the program ends. Raises UserError for a file that is
  not there, cannot be read, carries more than tensors, plain containers and argparse.Namespace, or
  does not fit the model."""
  file = find(pathlib.Path(path))
  with naming(file):
    found = torch_files.load(file)
    if not isinstance(found, Mapping) or 'model' not in found:
      got = ', '.join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
      raise UserError(
        f'expected a checkpoint of fairseq, dict(args or cfg, model): got {got[:300]}'
      )
    state = _renamed(torch_files.arrays(found['model'], 'model'))
    fields, assumed = roberta.fields(state, arguments(found))
    tables.check_tied(state, roberta.TIED)
    vocabulary, said = fairseq_vocabulary.write(file.parent, fields['vocab_size'], into)

  def take_all(model: Any, absent: Absent) -> Taken:
    whole = Cut(state, roberta.cuts(state))
    known = {name for name in whole if name.startswith(HEADS)} | {*roberta.TIED}
    with naming(file):
      (params,), made, left_out = take(whole, (roberta.rows(model, state),), known, absent)
    # A constant row changes no function, and transformers keeps one.
    params['embeddings']['type'] = np.zeros((1, model.width), np.float32)
    left_out = [name for name in left_out if name not in roberta.TIED]
    return Taken(params, made, left_out + sorted(found.keys() - {'args', 'cfg', 'model'}))

  return Opening(
    path=pathlib.Path(path),
    files=(file,),
    model=fields,
    recipe=roberta.RECIPES[fields['family']],
    vocabulary=vocabulary,
    step=_step(found),
    assumed=assumed + said,
    take=take_all,
  )


def find(path: pathlib.Path) -> pathlib.Path:
  """Returns the file of a checkpoint. Raises UserError if there is none, or there are several and
  none has a name of `NAMES`."""
  if not path.is_dir():
    return path
  there = sorted(path.glob('*.pt'))
  found = next((path / name for name in NAMES if path / name in there), None)
  if found is None and len(there) != 1:
    names = ', '.join(file.name for file in there) or 'none'
    raise UserError(f'{path}: expected one .pt file, or {", ".join(NAMES)}; there is {names}')
  return found or there[0]


def arguments(found: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the options of the model: `args`, or in files since the end of 2020 cfg['model']."""
  args = torch_files.options(found.get('args'))
  config = torch_files.options(found.get('cfg'))
  task = torch_files.options(config.get('task'))
  return (
    args
    | torch_files.options(config.get('model'))
    | ({'task': task['_name']} if '_name' in task else {})
  )


def _renamed(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns the state of a RoBERTa without the first part of its names and without buffers."""
  heads = [p for p in PREFIXES if any(n.startswith(f'{p}{roberta.NET}.') for n in state)]
  if len(heads) != 1:
    some = ', '.join(sorted(state)[:3])
    raise UserError(
      'this is no checkpoint of RoBERTa or XLM-R: expected tensors like '
      f'encoder.{roberta.NET}.embed_tokens.weight, got {some}'
    )
  return {
    name.removeprefix(heads[0]): array
    for name, array in state.items()
    if not name.endswith(roberta.IGNORED)
  }


def _step(found: Mapping[str, Any]) -> int | None:
  """Updates, which the history of optimizers says."""
  history = found.get('optimizer_history') or ()
  updates = history[-1].get('num_updates') if history else None
  return None if updates is None else int(updates)
