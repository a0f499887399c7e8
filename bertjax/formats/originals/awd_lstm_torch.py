"""AWD-LSTM of fastai: state dicts of 0.7 (`fwd_wt103.h5`), 1 and 2 (`.pth`); classifiers go out.

  open_checkpoint(pathlib.Path('models/fwd_wt103.h5'))

Words are read from the one itos*.pkl, a pickled list, beside the file or in ../tmp. Their kinds of
end, of unknown and of padding (xxbos, xxunk, xxpad) are called <eos>, <unk> and <pad> here. No
tensor tells the direction, the file's name does: fwd or bwd. A directory that `tensors` made
(`convert --to=original`) is read too: it has vocab.txt, and options.json says the direction.

  torch has the gates in another order, and the table of words up to three times
"""

import pathlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.errors import UserError
from bertjax.formats import weights
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import original, torch_files
from bertjax.formats.originals.original import Opening, shape
from bertjax.formats.tables import check_tied
from bertjax.models.layers.basic import padded_rows
from bertjax.models.layers.lstm import GATES
from bertjax.vocab import special
from bertjax.vocab.vocabulary import Vocabulary

PROGRAM, OPTIONS, MARKS = 'fastai', 'options.json', ('<eos>', '<unk>')
WORDS = '0.encoder.weight'
COPIES = ('0.encoder_with_dropout.embed.weight', '0.encoder_dp.emb.weight', '1.decoder.weight')
BIAS = '1.decoder.bias'
HEAD = '1.layers.'
# Ours -> theirs, the first one that is there: a dropped kernel is kept beside the whole one.
LAYER = dict(
  input=('module.weight_ih_l0',),
  state=('weight_hh_l0_raw', 'module.weight_hh_l0_raw', 'module.weight_hh_l0'),
  bias=('module.bias_ih_l0',),
  state_bias=('module.bias_hh_l0',),
)
TORCH_GATES = ('input', 'forget', 'new', 'output')
ROLES = dict(
  xxbos='<eos>', xbos='<eos>', xxunk='<unk>', _unk_='<unk>', xxpad='<pad>', _pad_='<pad>'
)


def open_checkpoint(path: pathlib.Path) -> Opening:
  """Reads a file, or a directory that `tensors` made."""
  with original.naming(path):
    if path.is_dir():
      state = dict(weights.read(path))
      # Where words have no bias, all names begin with `0.`, which was taken for a wrapper's.
      if WORDS not in state:
        state = {f'0.{name}': x for name, x in state.items()}
    else:
      _, state = torch_files.state_dict(path, '0.rnns.0.', 'language model of fastai')
    fields = dict(fields_of(state), backward=_is_backward(path))
    check_tied(state, {copy: WORDS for copy in COPIES if copy in state})
    vocabulary, said = _vocabulary(path, fields['vocab_size'])

  def take(model: Any) -> Taken:
    del model  # it lacks nothing
    return Taken(
      params_of(state), [], sorted(n for n in state if n in COPIES or n.startswith(HEAD))
    )

  return Opening(path, (path,), fields, 'ulmfit', vocabulary, said, take)


def fields_of(state: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the fields of `config.model`."""
  words, width = shape(state, WORDS)
  return dict(
    name='awd_lstm', family='none', vocab_size=words, width=width, word_bias=BIAS in state,
    layers=original.count(state, '0.rnns.'), cells=len(_of(state, 0, 'bias')) // 4,
  )  # fmt: skip


def params_of(state: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the parameters: gates in our order on an axis of their own, words padded with zeros."""
  order = [TORCH_GATES.index(gate) for gate in GATES]
  gates = lambda leaf: leaf.reshape(4, -1, *leaf.shape[1:])[order]
  padded = lambda leaf: np.pad(
    leaf, [(0, padded_rows(len(leaf)) - len(leaf)), *[(0, 0)] * (leaf.ndim - 1)]
  )
  params: dict[str, Any] = dict(word=padded(state[WORDS]))
  for number in range(original.count(state, '0.rnns.')):
    own = {name: gates(_of(state, number, name)) for name in LAYER}
    kernels = {name: np.moveaxis(own[name], -1, 0) for name in ('input', 'state')}
    params[f'lstm_{number}'] = own | kernels
  if BIAS in state:
    params['head'] = dict(bias=padded(state[BIAS]))
  return params


def tensors(params: Mapping[str, Any], model: Any) -> Iterator[tuple[str, str, np.ndarray]]:
  """Yields (their name, ours, float32 array) of a model, by the names of fastai 0.7, or of 2 where
  words that are predicted have a bias; the other copies of the words are left out."""
  order, first = [GATES.index(gate) for gate in TORCH_GATES], model.labels or not model.word_bias
  rows = lambda leaf: np.asarray(leaf)[: model.vocab_size]
  yield WORDS, 'word', rows(params['word'])
  for number in range(model.layers):
    for name, theirs in LAYER.items():
      leaf = np.asarray(params[f'lstm_{number}'][name])
      leaf = np.moveaxis(leaf, 0, -1) if leaf.ndim == 3 else leaf
      leaf = np.ascontiguousarray(leaf[order]).reshape(-1, *leaf.shape[2:])
      theirs = theirs[bool(len(theirs) > 1 and first)]
      yield f'0.rnns.{number}.{theirs}', f'lstm_{number}/{name}', leaf
  if not first:
    yield BIAS, 'head/bias', rows(params['head']['bias'])


def head(
  params: Mapping[str, Any], statistics: Mapping[str, Any]
) -> Iterator[tuple[str, str, np.ndarray]]:
  """Yields the tensors of the head of classes likewise, by the names of 0.7, the running statistics
  of its norms among them."""
  own, running = params['label'], statistics['label']
  for number in range(2):
    norm, dense = f'norm_{number}', f'dense_{number}'
    for theirs, tree, ours, leaf in (
      ('lin.weight', own, dense, 'kernel'),
      ('lin.bias', own, dense, 'bias'),
      ('bn.weight', own, norm, 'scale'),
      ('bn.bias', own, norm, 'bias'),
      ('bn.running_mean', running, norm, 'mean'),
      ('bn.running_var', running, norm, 'var'),
    ):
      x = np.ascontiguousarray(np.asarray(tree[ours][leaf]).T)
      yield f'{HEAD}{number}.{theirs}', f'label/{ours}/{leaf}', x


def options(model: Any) -> dict[str, Any]:
  """Returns what options.json says of a `config.model`: what no tensor does."""
  return dict(backward=model.backward)


def word_list(pieces: Sequence[str], model: Any) -> str:
  """Returns the text of vocab.txt, a line for each word."""
  del model
  return ''.join(f'{piece}\n' for piece in pieces)


def _of(state: Mapping[str, Any], number: int, name: str) -> np.ndarray:
  """Returns a tensor of a layer. Raises UserError if it is not there: a QRNN has others."""
  names = [f'0.rnns.{number}.{each}' for each in LAYER[name]]
  found = next((each for each in names if each in state), None)
  if found is None:
    raise UserError(f'{" or ".join(names)} is missing: expected an LSTM, QRNNs are not read')
  return state[found]


def _is_backward(path: pathlib.Path) -> bool:
  """Returns the direction that the name of a file or a directory's options say. UserError: none."""
  if path.is_dir():
    found = special.json_beside(path / OPTIONS, OPTIONS).get('backward')
    if not isinstance(found, bool):
      raise UserError(f'expected {OPTIONS} with "backward": true or false, got {found!r}: add it')
    return found
  said = [name for name in ('fwd', 'bwd') if name in path.stem]
  if len(said) != 1:
    raise UserError(
      'expected a name with fwd or with bwd, which tells from which end the model reads a text: '
      f'rename it fwd_{path.name} or bwd_{path.name}'
    )
  return said == ['bwd']


class _Plain(pickle.Unpickler):
  """Reads lists and strings; whatever else a pickle names would be run."""

  def find_class(self, module_name: str, global_name: str, /) -> Any:
    raise pickle.UnpicklingError(f'it names {module_name}.{global_name}')


def _vocabulary(path: pathlib.Path, size: int) -> tuple[Vocabulary | None, list[str]]:
  """Returns the vocabulary, or None, and what is taken for granted."""
  folders = (path,) if path.is_dir() else (path.parent, path.parent.parent / 'tmp')
  wanted = 'vocab.txt' if path.is_dir() else 'itos*.pkl'
  files = [file for folder in folders for file in folder.glob(wanted)]
  if len(files) != 1:
    return None, [f'there is not one {wanted} beside it but {len(files)}, so no vocabulary']
  try:
    with files[0].open('rb') as file:
      listed = file.read().decode().split() if files[0].suffix == '.txt' else _Plain(file).load()
      pieces = [ROLES.get(str(piece), str(piece)) for piece in listed]
  except Exception as error:  # a damaged pickle may end in any class
    raise UserError(f'{files[0]} is no pickled list of words: {error}') from error
  if len(pieces) != size or len({*pieces}) != size or not {'<eos>', '<unk>'} <= {*pieces}:
    return None, [
      f'{files[0]} has {len({*pieces})} different words for {size} rows, or lacks xbos or _unk_: '
      'no vocabulary is made of it'
    ]
  said = 'texts are words that white space sets apart, as fastai has cut and spelled them'
  return original.words(pieces), [said]
