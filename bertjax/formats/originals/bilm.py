"""ELMo's files: HDF5 of bilm-tf and AllenNLP, and bilm-tf's checkpoints of TensorFlow 1 (`tf1.py`).

  open_checkpoint(pathlib.Path('elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5'))

bilm/training.py:dump_weights renames the variables and leaves the softmax out. Both need the JSON
of options beside them. bilm-tf's vocabulary is a list of words; HDF5 files come without one, since
words are read by their characters: theirs has the marks alone here. What `tensors` writes
(`convert --to=original`) is read too.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.errors import UserError, is_foreign, package, require_file
from bertjax.formats import tables, weights
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import original
from bertjax.formats.originals.original import Kind, Opening, activation, shape
from bertjax.formats.tables import Row
from bertjax.formats.weights import View
from bertjax.models.layers.char_cnn import CHARACTERS
from bertjax.vocab import refusals, special
from bertjax.vocab.vocabulary import Vocabulary

PROGRAM, OPTIONS, WORDS, SCOPE = 'bilm-tf', 'options.json', 'vocab*.txt', 'lm/'
SOFTMAX = ('lm/softmax/W', 'lm/softmax/b')
MARKS = ('</S>', '<S>', '<unk>', '<pad>')
UNKNOWN = '<UNK>'  # theirs
# How dump_weights calls what TensorFlow does.
DUMPED = (
  (SCOPE, ''), ('/rnn/multi_rnn_cell/cell_', '/RNN/MultiRNNCell/Cell'),
  ('/lstm_cell/projection/kernel', '/LSTMCell/W_P_0'), ('/lstm_cell/kernel', '/LSTMCell/W_0'),
  ('/lstm_cell/bias', '/LSTMCell/B'),
)  # fmt: skip


def open_checkpoint(path: pathlib.Path) -> Opening:
  """Reads a file of HDF5, or a directory that `tensors` made, with options.json, or the one file
  *options.json, beside it."""
  with original.naming(path):
    found = weights.read(path) if path.is_dir() else _hdf5(path)
    folder = path if path.is_dir() else path.parent
    names = [file.name for file in folder.glob(f'*{OPTIONS}')]
    given = special.json_beside(folder / OPTIONS, names[0] if len(names) == 1 else OPTIONS)
    state = _named(found)
    fields, assumed = fields_of(state, given)
    vocabulary = words(path if path.is_dir() else None, fields['vocab_size'])

  def take(model: Any) -> Taken:
    with original.naming(path):
      return original.take(state, rows(model), model, set())

  return Opening(path, (path,), fields, 'elmo', vocabulary, assumed, take)


def fields_of(
  state: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`, and what is assumed: nothing. Raises UserError: options
  that are not there, or that our model does not compute."""
  try:
    sizes, chars = given['lstm'], given.get('char_cnn', {})
    found: dict[str, Any] = dict(
      layers=sizes['n_layers'], width=sizes['projection_dim'], cell=sizes['dim'],
      skips=sizes['use_skip_connections'],
      cell_clip=float(sizes.get('cell_clip') or 0), characters=0,
      projection_clip=float(sizes.get('proj_clip') or 0),
    )  # fmt: skip
    if chars:
      activation(chars['activation'], dict(relu='relu'))
      found |= dict(
        characters=chars['max_characters_per_token'], character_width=chars['embedding']['dim'],
        filters=tuple((length, count) for length, count in chars['filters']),
        highways=chars.get('n_highway') or 0,
      )  # fmt: skip
  except (KeyError, TypeError, ValueError) as error:
    raise UserError(
      f'{OPTIONS} of bilm-tf is to say the sizes of the model, and {error} is not there or has '
      f'another form: expected it beside the weights, got the keys {sorted(given)}'
    ) from error
  ids = [shape(state, n)[0] for n in (f'{SCOPE}embedding', SOFTMAX[0]) if n in state]
  size, outputs = (ids[0], ids[-1]) if ids else (len(MARKS), 0)
  own = dict(vocab_size=size, words=SOFTMAX[0] in state, outputs=outputs if outputs != size else 0)
  return dict(name='elmo', family='none') | found | own, []


def rows(model: Any) -> tuple[Row, ...]:
  """Returns the table, by TensorFlow's names."""
  name = lambda ours, theirs, axes, **more: Row(ours, f'{SCOPE}{theirs}', axes, **more)
  found: list[Row] = []
  if model.characters:
    found += [name(f'spelled/{ours}', *rest, sizes=sizes) for ours, *rest, sizes in _spelled(model)]
  else:
    found.append(name('word', 'embedding', 'V,D->VD'))
  gates = dict(G=4, C=model.cell)
  for way, ours in enumerate(('forwards', 'backwards')):
    for layer in range(model.layers):
      path, at = f'{ours}_{layer}', f'RNN_{way}/rnn/multi_rnn_cell/cell_{layer}/lstm_cell'
      both = dict(theirs=f'{at}/kernel', axes='D,GC->DGC', sizes=gates)
      found += [
        name(f'{path}/input', **both, part=(0, 2)),
        name(f'{path}/state', **both, part=(1, 2)),
        name(f'{path}/bias', f'{at}/bias', 'GC->GC', sizes=gates),
        name(f'{path}/projection', f'{at}/projection/kernel', 'C,D->CD', sizes=gates),
      ]
  if model.words:
    scored = dict(V=model.outputs or model.vocab_size)
    found += [
      Row('softmax', SOFTMAX[0], 'V,D->VD', sizes=scored),
      Row('head/bias', SOFTMAX[1], 'V->V', sizes=scored),
    ]
  return tuple(found)


def _spelled(model: Any) -> Iterator[tuple[str, str, str, dict[str, int]]]:
  """Our path, their name, axes and sizes of what makes a vector of characters: E of a character, K
  and O of all filters, R characters of a filter."""
  outputs = sum(count for _, count in model.filters)
  all_of = dict(K=outputs, O=outputs, E=model.character_width)
  yield 'characters', 'char_embed', 'X,E->XE', all_of | dict(X=CHARACTERS)
  for number, (length, count) in enumerate(model.filters):
    own = all_of | dict(R=length, F=count)
    yield f'filter_{number}', f'CNN/W_cnn_{number}', 'A,R,E,F->REF', own
    yield f'filter_{number}_bias', f'CNN/b_cnn_{number}', 'F->F', own
  for number in range(model.highways):
    for gate in ('carry', 'transform'):
      yield f'{gate}_{number}/kernel', f'CNN_high_{number}/W_{gate}', 'K,O->KO', all_of
      yield f'{gate}_{number}/bias', f'CNN_high_{number}/b_{gate}', 'K->K', all_of
  yield 'projection/kernel', 'CNN_proj/W_proj', 'K,D->KD', all_of
  yield 'projection/bias', 'CNN_proj/b_proj', 'D->D', all_of


def words(folder: pathlib.Path | None, size: int) -> Vocabulary | None:
  """Returns the vocabulary of the one list of words in a folder, or of the marks where there are no
  more ids; None: there is no such list. Raises UserError: a list of other words than the model
  has."""
  files = sorted(folder.glob(WORDS)) if folder else []
  if len(files) == 1:
    pieces = [line.strip() for line in refusals.text_of(files[0]).splitlines()]
    pieces = [dict({UNKNOWN: '<unk>'}).get(piece, piece) for piece in pieces]
    if not len(pieces) == len({*pieces}) == size or not {*MARKS[:3]} <= {*pieces}:
      raise UserError(
        f'{files[0]} has {len({*pieces})} different words: expected {size}, those of the model, '
        f'with <S>, </S> and {UNKNOWN}'
      )
  elif size == len(MARKS):
    pieces = list(MARKS)
  else:
    return None
  return original.words(pieces)


def tensors(params: Mapping[str, Any], model: Any) -> Iterator[tuple[str, str, np.ndarray]]:
  """Yields (their name, ours, float32 array) of a model, by the names of the HDF5 files."""
  for name, row, array in tables.to_theirs(params, rows(model), model):
    yield dumped(name), row.ours, array


def word_list(pieces: Sequence[str], model: Any) -> str:
  """Returns the text of vocab.txt, a line for each word: of a model that reads characters, those of
  the softmax."""
  pieces = pieces[: model.outputs or None] if model.characters else pieces
  return ''.join(f'{UNKNOWN if piece == "<unk>" else piece}\n' for piece in pieces)


def options(model: Any) -> dict[str, Any]:
  """Returns what options.json says of a `config.model`."""
  sizes = dict(
    n_layers=model.layers, projection_dim=model.width, dim=model.cell,
    cell_clip=model.cell_clip or None, proj_clip=model.projection_clip or None,
    use_skip_connections=model.skips,
  )  # fmt: skip
  found: dict[str, Any] = dict(lstm=sizes)
  if model.characters:
    found['char_cnn'] = dict(
      activation='relu', embedding=dict(dim=model.character_width), n_characters=CHARACTERS + 1,
      filters=[list(each) for each in model.filters], n_highway=model.highways,
      max_characters_per_token=model.characters,
    )  # fmt: skip
  return found


def dumped(name: str) -> str:
  """Returns the name in HDF5 of a variable."""
  for theirs, here in DUMPED:
    name = name.replace(theirs, here)
  return name


def _named(state: Mapping[str, Any]) -> View:
  """Returns the tensors of an HDF5 file by TensorFlow's names, the others by their own."""
  layers = range(original.count(state, 'RNN_0/RNN/MultiRNNCell/Cell'))
  cells = [f'{SCOPE}RNN_{w}/rnn/multi_rnn_cell/cell_{n}/lstm_cell/' for w in (0, 1) for n in layers]
  leaves = ('kernel', 'bias', 'projection/kernel')
  back = {dumped(cell + leaf): cell + leaf for cell in cells for leaf in leaves}
  return View(state, {back.get(name, f'{SCOPE}{name}'): name for name in state})


def _hdf5(path: pathlib.Path) -> dict[str, np.ndarray]:
  h5py = package('h5py', 'HDF5')
  require_file(path, 'ELMo weights in HDF5, or a directory of safetensors')
  found: dict[str, np.ndarray] = {}

  def keep(name: str, node: Any) -> None:
    if isinstance(node, h5py.Dataset):
      found[name] = np.asarray(node, np.float32)

  try:
    with h5py.File(path, 'r') as file:
      file.visititems(keep)
  except Exception as error:  # a damaged file may end in any class
    if not is_foreign(error):
      raise
    raise UserError(f'it cannot be read as HDF5; is it cut off? {error}') from error
  return found


KIND = Kind(
  'an ELMo', 'elmo', OPTIONS, f'{SCOPE}RNN_0/', fields_of, rows, (), vocabulary=words
)  # fmt: skip
