"""Checkpoints of TensorFlow 1, as the original programs write them: BERT, ALBERT, ELECTRA, XLNet.

  open_checkpoint(pathlib.Path('uncased_L-12_H-768_A-12'))

Which of them it is, the names of the variables say. The tables are in `originals/`. TensorFlow is
imported when a checkpoint is read, and nowhere else in the conversion.
"""

import glob
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import bert, electra, xlnet
from bertjax.formats.originals.original import Absent, Cut, Opening, even, naming, read_json, take
from bertjax.formats.originals.tensorflow_rows import Kind
from bertjax.formats.tables import names_of
from bertjax.formats.weights import Lazy, View

KINDS: tuple[Kind, ...] = (bert.ALBERT, bert.BERT, electra.KIND, xlnet.KIND)
# Programs whose names we know well enough to say what they are: mark -> title.
OTHERS = {
  'transformer/adaptive_embed/': "TensorFlow's Transformer-XL",
  'shared/embedding': 'T5',
  'model/wte': 'GPT-2',
  'bert/': 'a program that is neither BERT nor ALBERT',
}
STEP = 'global_step'
# Scalars of tf.train.AdamOptimizer.
SCALARS = (STEP, 'beta1_power', 'beta2_power')
VOCABULARIES = ('vocab.txt', 'spiece.model')


def open_checkpoint(path: pathlib.Path, into: pathlib.Path | None = None) -> Opening:
  """Finds out what a checkpoint is, by its directory or the beginning of its files
  (DIR/model.ckpt-1000), with JSON file and vocabulary beside it; reads no tensors. Raises UserError
  for no checkpoint, an unreadable one, or tensors that do not fit, which are listed."""
  del into
  prefix = find(pathlib.Path(path))
  with naming(prefix):
    checkpoint = Checkpoint(prefix)
    slots, scalars, state = sort(checkpoint)
    kind = kind_of(state)
    file = prefix.parent / kind.config
    given = read_json(file) if kind.config and file.is_file() else {}
    fields, assumed = kind.fields(state, given)

  def take_all(model: Any, absent: Absent) -> Taken:
    with naming(prefix):
      whole = _cut(state, kind, model)
      known = {name for name in whole if name.startswith(kind.heads)}
      params, made, left_out = take(whole, kind.parts(model), known, absent)
    left_out += sorted(scalars.keys() - {STEP})
    left_out += [f'{slot} ({len(found)} tensors)' for slot, found in slots.items()]
    return Taken(kind.join(params, model), made, left_out)

  def take_slots(model: Any) -> dict[str, Any]:
    rows = [(row, part.model) for part in kind.parts(model) for row in part.rows]
    used = {name.partition('[')[0] for row, own in rows for name in names_of(row, own)}
    zeros = lambda row, shape: np.zeros(shape, np.float32)  # of heads that are made
    found = {}
    with naming(prefix):
      for slot, all_of_it in slots.items():
        view = _cut(_slot(slot, all_of_it, used & state.keys()), kind, model)
        found[slot] = kind.join(take(view, kind.parts(model), set(), zeros)[0], model)
    return found

  return Opening(
    path=pathlib.Path(path),
    files=tuple(sorted(prefix.parent.glob(f'{glob.escape(prefix.name)}.[id][na]*'))),
    model=fields,
    recipe=kind.recipe,
    vocabulary=vocabulary(prefix.parent),
    step=int(scalars[STEP]) if STEP in scalars else None,
    assumed=assumed,
    take=take_all,
    take_slots=take_slots,
  )


def _cut(tree: Mapping[str, Any], kind: Kind, model: Any) -> Cut:
  return Cut(tree, {name: even(tree, name) for name in kind.stacked(model) if name in tree})


def find(path: pathlib.Path) -> pathlib.Path:
  """Returns the prefix of a checkpoint's files (PREFIX.index, PREFIX.data-...). Raises UserError if
  there is none, or there are several and nothing says which is meant."""
  if path.is_dir():
    found = sorted(file.with_suffix('') for file in path.glob('*.index'))
    newest = _newest(path)
    if len(found) > 1 and newest in found:
      return newest
  else:
    name = path.name.partition('.data-')[0].removesuffix('.index').removesuffix('.meta')
    prefix = path.with_name(name)
    if prefix.with_name(f'{name}.index').is_file():
      return prefix
    found = []
  if len(found) != 1:
    near = path if path.is_dir() else path.parent
    there = ', '.join(sorted(file.name for file in near.glob('*.index'))) or 'none'
    raise UserError(
      f'{path}: expected a checkpoint of TensorFlow, a directory with one or DIR/model.ckpt-1000 '
      f'of files model.ckpt-1000.index and .data-00000-of-00001; there is {there}. Name one'
    )
  return found[0]


def _newest(directory: pathlib.Path) -> pathlib.Path | None:
  """Reads the newest prefix from the file `checkpoint`; its folder may be another machine's."""
  file = directory / 'checkpoint'
  for line in file.read_text(encoding='utf-8').splitlines() if file.is_file() else ():
    key, _, value = line.partition(':')
    if key == 'model_checkpoint_path':
      return directory / pathlib.PurePosixPath(value.strip().strip('"')).name
  return None


class Checkpoint(Lazy):
  """The tensors of a checkpoint, each read when it is asked for.

  Raises:
    UserError: it cannot be read: it is cut off, a file is missing, or it is none.
  """

  def __init__(self, prefix: pathlib.Path):
    import tensorflow as tf

    self._errors = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
    try:
      self._reader = tf.train.load_checkpoint(str(prefix))
      super().__init__(self._reader.get_variable_to_shape_map())
    except self._errors as error:
      raise UserError(self._said(error)) from error

  def _said(self, error: Exception) -> str:
    first = (str(error).splitlines() or [''])[0]
    return f'the checkpoint cannot be read; is it cut off, or is a file missing? {first}'

  def __getitem__(self, name: str) -> np.ndarray:
    try:
      return self._reader.get_tensor(name)
    except self._errors as error:
      raise UserError(self._said(error)) from error

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns the shape of a tensor without reading it."""
    return tuple(self.names[name])


def sort(checkpoint: Checkpoint) -> tuple[dict[str, View], dict[str, Any], View]:
  """Returns the optimizer's slots by name, its scalars, and all else. A slot is named after its
  variable: adam_m and adam_v of BERT's own optimizers, Adam and Adam_1 of TensorFlow's."""
  slots: dict[str, dict[str, str]] = {}
  rest = {}
  for name in sorted(checkpoint.keys() - {*SCALARS}):
    variable, _, slot = name.rpartition('/')
    if variable in checkpoint:
      slots.setdefault(slot, {})[variable] = name
    else:
      rest[name] = name
  scalars = {name: checkpoint[name] for name in SCALARS if name in checkpoint}
  views = {slot: View(checkpoint, names) for slot, names in slots.items()}
  return views, scalars, View(checkpoint, rest)


def _slot(slot: str, found: View, names: set[str]) -> View:
  """Returns a slot of the variables that are taken. Raises UserError if some have none."""
  missing = sorted(names - found.keys())
  if missing:
    raise UserError(
      f'{len(missing)} variables have no slot {slot!r}, {missing[0]} for one: leave the slots out'
    )
  return View(found.state, {name: found.names[name] for name in names})


def kind_of(state: Mapping[str, Any]) -> Kind:
  """Returns the program that wrote a checkpoint. Raises UserError: none of those whose tables are
  here."""
  for kind in KINDS:
    if any(name.startswith(kind.mark) for name in state):
      return kind
  known = ', '.join(kind.title for kind in KINDS)
  other = [title for mark, title in OTHERS.items() if any(n.startswith(mark) for n in state)]
  said = f'this is a checkpoint of {other[0]}' if other else 'this is a checkpoint of none we know'
  some = ', '.join(sorted(state)[:3])
  raise UserError(f'{said}: expected {known} checkpoint, got variables like {some}')


def vocabulary(directory: pathlib.Path) -> pathlib.Path | None:
  """Returns the vocabulary in a directory: vocab.txt, spiece.model, or the one .model that is
  there."""
  for name in VOCABULARIES:
    if (directory / name).is_file():
      return directory / name
  found = sorted(directory.glob('*.model'))
  return found[0] if len(found) == 1 else None
