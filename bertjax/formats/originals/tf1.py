"""Checkpoints of TensorFlow 1, as the original programs write them: BERT, ALBERT, ELECTRA, XLNet,
ELMo.

  open_checkpoint(pathlib.Path('uncased_L-12_H-768_A-12'))

Which of them it is, the names of the variables say. The tables are in `originals/`. TensorFlow is
imported when a checkpoint is read, and nowhere else in the conversion.
"""

import collections
import glob
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError, require_file
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import bert, bilm, electra, xlnet
from bertjax.formats.originals.original import Kind, Opening, naming, take
from bertjax.formats.weights import Lazy, View
from bertjax.vocab.special import json_beside
from bertjax.vocab.vocabulary import Vocabulary, load_vocabulary

KINDS: tuple[Kind, ...] = (bert.ALBERT, bert.BERT, electra.KIND, xlnet.KIND, bilm.KIND)
STEP = 'global_step'
SCALARS = ('beta1_power', 'beta2_power')  # of tf.train.AdamOptimizer
VOCABULARIES = ('vocab.txt', 'spiece.model')


def open_checkpoint(path: pathlib.Path) -> Opening:
  """Finds out what a checkpoint is, by its directory or the beginning of its files
  (DIR/model.ckpt-1000), with JSON file and vocabulary beside it; reads no tensors."""
  prefix = find(path)
  files = tuple(sorted(prefix.parent.glob(f'{glob.escape(prefix.name)}.[id][na]*')))
  for file in files:
    require_file(file, 'a file of a checkpoint of TensorFlow')
  with naming(prefix):
    checkpoint = Checkpoint(prefix)
    slots, state = sort(checkpoint)
    kind = kind_of(state)
    given = json_beside(prefix, kind.config) if kind.config else {}
    fields, assumed = kind.fields(state, given)
    own_form = kind.vocabulary
    words = own_form(prefix.parent, fields['vocab_size']) if own_form else vocabulary(prefix.parent)

  def take_all(model: Any) -> Taken:
    with naming(prefix):
      known = {name for name in state if name.startswith(kind.heads)}
      taken = take(state, kind.rows(model), model, known)
    left_out = [*taken.left_out, *sorted(checkpoint.keys() & {*SCALARS})]
    left_out += [f'{slot} ({count} tensors)' for slot, count in slots.items()]
    return taken._replace(left_out=left_out)

  return Opening(path, files, fields, kind.family, words, assumed, take_all)


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
    if os.path.lexists(prefix.with_name(f'{name}.index')):
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
  """The tensors of a checkpoint, each read when asked for. UserError: it cannot be read."""

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


def sort(checkpoint: Checkpoint) -> tuple[collections.Counter[str], View]:
  """Counts the optimizer's slots by name, and returns all else but its scalars. A slot is named
  after its variable: adam_m and adam_v of BERT's own optimizers, Adam and Adam_1 of TensorFlow."""
  parts = {name: name.rpartition('/') for name in sorted(checkpoint.keys() - {STEP, *SCALARS})}
  slots = collections.Counter(slot for owner, _, slot in parts.values() if owner in checkpoint)
  return slots, View(checkpoint, {n: n for n, part in parts.items() if part[0] not in checkpoint})


def kind_of(state: Mapping[str, Any]) -> Kind:
  """Returns the program that wrote a checkpoint. UserError: none of those whose tables are here."""
  for kind in KINDS:
    if any(name.startswith(kind.mark) for name in state):
      return kind
  known = ', '.join(kind.title for kind in KINDS)
  some = ', '.join(sorted(state)[:3])
  raise UserError(
    f'this is a checkpoint of none we know: expected {known} checkpoint, got variables like {some}'
  )


def vocabulary(directory: pathlib.Path) -> Vocabulary | None:
  """Returns the vocabulary in a directory: vocab.txt, spiece.model, or the one .model that is
  there."""
  named = [directory / name for name in VOCABULARIES if (directory / name).is_file()]
  models = sorted(directory.glob('*.model'))
  if not named and len(models) != 1:
    return None
  return load_vocabulary((named or models)[0])
