"""Name tables: where a tensor lives here, where it lives there, and how its axes map.

A row is read in both directions. Its axes are 'theirs->ours', e.g. 'NH,D->DNH': theirs is a matrix
[N * H, D], ours an array [D, N, H]. Letters are those of `types.py`; here T counts the rows of the
position table, S those of the segment table, X those of an extra table, C the classes of a head, A
is a single logit or an axis of one that ours lacks, E is the width of the tables, and O is D where
D is taken. Everything is NumPy: neither torch nor `transformers` is imported.
"""

import hashlib
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax import dotted
from bertjax.errors import UserError
from bertjax.formats.weights import shape_of
from bertjax.models.layers.basic import padded_rows

Sizes = Mapping[str, int]  # letter -> size
SHOWN = 20  # names of an error, at most
REMEDY = 'check config.model.layers, the heads and the class'


class Row(NamedTuple):
  """One tensor: our path under params, their name, 'theirs->ours'.

  Ours is a stack of theirs where the name holds '{layer}', or '{group}' and '{inner}', which number
  the blocks of `config.model.groups`. Where theirs is one tensor for all layers both begin with L.
  """

  # ours, theirs, axes: see above
  ours: str
  theirs: str
  axes: str
  # letters of this row alone: C of a head, L of a net of another depth than the model
  sizes: Mapping[str, int] = {}
  # whether it belongs to a head, which a checkpoint may lack: it is then made anew
  head: bool = False
  # (index, count) where theirs holds count tensors of ours, one after the other on its first axis;
  # their rows follow each other
  part: tuple[int, int] = (0, 1)
  axis: int = 0  # of theirs, on which they follow each other
  first: str = ''  # their name of layer 0's, where that lies elsewhere; '': it does not


def dense(ours: str, theirs: str, out: str, into: str, **more: Any) -> tuple[Row, Row]:
  """Returns a torch Linear: weight [out, in] becomes kernel [in, out]."""
  weight = Row(f'{ours}/kernel', f'{theirs}.weight', f'{out},{into}->{into}{out}', **more)
  return weight, Row(f'{ours}/bias', f'{theirs}.bias', f'{out}->{out}', **more)


def norm(ours: str, theirs: str, width: str = 'D', **more: Any) -> tuple[Row, Row]:
  """Returns a torch LayerNorm: its weight is our scale."""
  scale = Row(f'{ours}/scale', f'{theirs}.weight', f'{width}->{width}', **more)
  return scale, Row(f'{ours}/bias', f'{theirs}.bias', f'{width}->{width}', **more)


def layer(ours: str, theirs: str, names: str) -> tuple[Row, ...]:
  """Returns the rows of a post-norm layer at `ours`. `names`, of query, key, value, output, their
  norm, the two of feed-forward and its norm, take the place of * in `theirs`."""
  rows: tuple[Row, ...] = ()
  for (path, *axes), name in zip(_LAYER, names.split(), strict=True):
    place = f'{ours}/{path}', theirs.replace('*', name)
    rows += dense(*place, *axes) if axes else norm(*place)
  return rows


_LAYER = (
  ('attention/query', 'NH', 'D'),
  ('attention/key', 'NH', 'D'),
  ('attention/value', 'NH', 'D'),
  ('attention/out', 'D', 'NH'),
  ('attention_norm',),
  ('ffn_up', 'F', 'D'),
  ('ffn_down', 'D', 'F'),
  ('ffn_norm',),
)


def heads(rows: Sequence[Row], **sizes: int) -> tuple[Row, ...]:
  """Returns the rows as those of a head, with its own sizes."""
  return tuple(row._replace(head=True, sizes=dict(row.sizes, **sizes)) for row in rows)


def names_of(row: Row, model: Any) -> list[str]:
  """Returns their names of a row's tensors, in the order of our stack."""
  if '{group}' in row.theirs:
    numbers = itertools.product(range(model.groups), range(model.inner_groups))
    return [row.theirs.format(group=group, inner=inner) for group, inner in numbers]
  layers = range(row.sizes.get('L', model.layers)) if '{layer}' in row.theirs else (0,)
  names = [row.theirs.format(layer=layer) for layer in layers]
  return [row.first, *names[1:]] if row.first else names


def sizes_of(model: Any) -> dict[str, int]:
  """Returns the letters of a `config.model`."""
  width = model.width
  sizes = dict(V=model.vocab_size, D=width, O=width, S=2, A=1, E=width, L=model.layers)
  if 'heads' in model:
    head_size = model.head_size if 'head_size' in model else width // model.heads
    sizes |= dict(N=model.heads, H=head_size, F=model.ffn)
  if 'embedding_width' in model:
    sizes |= dict(
      E=model.embedding_width or width, T=model.positions, S=model.types,
      X=model.extra[0][1] if model.extra else 0,
    )  # fmt: skip
  return sizes


def to_ours(state: Mapping[str, np.ndarray], rows: Sequence[Row], model: Any) -> dict[str, Any]:
  """Returns their tensors as our parameters, nested float32 arrays: layers stacked on axis 0, the
  vocabulary padded with zeros; what the state lacks is made, see `_fresh`. Raises UserError that
  lists tensors of another shape."""
  sizes = sizes_of(model)
  _check_shapes(state, rows, model, sizes)
  params: dict[str, Any] = {}
  for row in rows:
    names, mine = names_of(row, model), {**sizes, **row.sizes}
    stacked, ours = _is_stacked(row), _groups(row)[1]
    shape = tuple(padded_rows(mine[a]) if ours[0] == a == 'V' else mine[a] for a in ours)
    whole = _aligned_zeros((len(names), *shape) if stacked else shape)
    if names[0] not in state:
      whole[...] = _fresh(row, whole.shape, model)
    else:
      for index, name in enumerate(names if stacked else names[:1]):
        _fill(whole[index] if stacked else whole, state[name], row, mine)
    if not stacked:
      _check_copies(state, names)
    params[row.ours] = whole
  return dotted.nested(params, '/')


def _fresh(row: Row, shape: tuple[int, ...], model: Any) -> np.ndarray:
  """Returns the array of a head that is not there: of kernels and tables normal with the `init_std`
  of `config.model`, of biases 0, of scales 1; the same each time."""
  leaf = row.ours.rpartition('/')[2]
  if leaf in ('bias', 'scale'):
    return np.full(shape, float(leaf == 'scale'), np.float32)
  rng = np.random.default_rng(zlib.crc32(row.ours.encode()))
  return rng.normal(0, model.init_std, shape).astype(np.float32)


def _aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
  """float32 zeros whose memory XLA takes as it is, where it would copy NumPy's."""
  size = int(np.prod(shape)) * 4
  block = np.zeros(size + 64, np.uint8)
  start = -block.ctypes.data % 64
  return block[start : start + size].view(np.float32).reshape(shape)


def to_theirs(
  params: Mapping[str, Any], rows: Sequence[Row], model: Any, elsewhere: tuple[str, ...] = ()
) -> Iterator[tuple[str, Row, np.ndarray]]:
  """Yields our parameters as (their name, row, float32 array), the inverse of `to_ours`; paths that
  begin with one of `elsewhere` are of another table. Raises UserError that lists parameters without
  a row."""
  sizes = sizes_of(model)
  whole, known = dotted.flat(params, mark='/'), {row.ours for row in rows}
  found = {path for path in whole if not path.startswith(elsewhere)}
  if known != found:
    raise UserError(
      f'the parameters do not fit the table of config.model.family={model.family!r}: no row for '
      f'{_some(sorted(found - known))}, nothing at {_some(sorted(known - found))}'
    )
  for _, alike in itertools.groupby(rows, lambda row: row.theirs):
    parts = list(alike)
    for index, name in enumerate(names_of(parts[0], model)):
      arrays = []
      for row in parts:
        array = whole[row.ours][index] if _is_stacked(row) else whole[row.ours]
        arrays.append(_theirs(np.asarray(array, np.float32), row, {**sizes, **row.sizes}))
      yield name, parts[0], arrays[0] if len(parts) == 1 else np.concatenate(arrays, parts[0].axis)


def their_shapes(rows: Sequence[Row], model: Any) -> dict[str, tuple[int, ...]]:
  """Name -> shape of their tensors, in the order of `to_theirs`."""
  sizes = sizes_of(model)
  return {
    name: _their_shape(row, {**sizes, **row.sizes}) for row in rows for name in names_of(row, model)
  }


def digest(array: Any) -> str:
  """sha256 of an array's bytes."""
  return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


def check_names(
  state: Mapping[str, Any], rows: Sequence[Row], known: set[str], ignored: tuple[str, ...], model,
  remedy: str = REMEDY,
) -> tuple[list[str], list[str]]:  # fmt: skip
  """Compares the names of a state with those of a table. Returns our paths of heads that the state
  lacks, and names that are left out: those of `known` and those that end as one of `ignored`.
  Raises UserError that lists all other missing or unexpected tensors, and says the remedy."""
  names = {name: row for row in rows for name in names_of(row, model)}
  absent = sorted(names.keys() - state.keys())
  missing = [name for name in absent if not names[name].head]
  # A head is whole or not there: half of one is damage.
  whole = {names[name].ours.partition('/')[0] for name in names.keys() & state.keys()}
  missing += [n for n in absent if names[n].head and names[n].ours.partition('/')[0] in whole]
  extra = sorted(state.keys() - names.keys() - known)
  unexpected = [name for name in extra if not name.endswith(ignored)]
  if missing or unexpected:
    raise UserError(
      f'the tensors do not fit the model: {len(missing)} missing {_some(missing)}, '
      f'{len(unexpected)} unexpected {_some(unexpected)}; {remedy}'
    )
  left_out = sorted(state.keys() & (known - names.keys())) + extra
  return sorted({names[name].ours for name in absent}), left_out


def _some(names: Sequence[str]) -> str:
  more = f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''
  return f'[{", ".join(names[:SHOWN])}]{more}'


def _check_shapes(state, rows: Sequence[Row], model: Any, sizes: Sizes) -> None:
  wrong = []
  for row in rows:
    expected = _their_shape(row, {**sizes, **row.sizes})
    for name in filter(state.__contains__, names_of(row, model)):
      got = shape_of(state, name)
      if got != expected:
        wrong.append(f'{name}: config.model says shape {expected}, got {got}')
  if wrong:
    more = f'; and {len(wrong) - SHOWN} more' if len(wrong) > SHOWN else ''
    raise UserError('; '.join(wrong[:SHOWN]) + more)


def _check_copies(state, names: Sequence[str]) -> None:
  """Refuses layers that differ where ours share one tensor."""
  differing = [n for n in names[1:] if not np.array_equal(state[n], state[names[0]])]
  if differing:
    raise UserError(
      f'{_some(differing)} differ from {names[0]}: this model has one for all layers, others do '
      'not fit'
    )


def check_tied(state, tied: Mapping[str, str], remedy: str = REMEDY) -> None:
  """Refuses a copy that differs from its source; `tied` is name -> name."""
  for copy, source in tied.items():
    if copy in state and source in state and not np.array_equal(state[copy], state[source]):
      raise UserError(f'{copy} differs from {source}: this model ties them; {remedy}')


def _is_stacked(row: Row) -> bool:
  return 'layers' in row.ours.split('/') and not row.axes.startswith('L')


def _groups(row: Row) -> tuple[list[str], str]:
  theirs, ours = row.axes.split('->')
  return theirs.split(','), ours


def _their_shape(row: Row, sizes: Sizes) -> tuple[int, ...]:
  shape = [int(np.prod([sizes[a] for a in group])) for group in _groups(row)[0]]
  shape[row.axis] *= row.part[1]
  return tuple(shape)


def _fill(mine: np.ndarray, theirs: np.ndarray, row: Row, sizes: Sizes) -> None:
  groups, ours = _groups(row)
  letters = ''.join(a for a in ''.join(groups) if a in ours)
  index, count = row.part
  split = np.split(np.asarray(theirs, np.float32), count, row.axis)[index].reshape(
    [sizes[a] for a in letters]
  )
  split = split.transpose([letters.index(a) for a in ours])
  target = mine[: sizes['V']] if ours[0] == 'V' else mine
  target[...] = split


def _theirs(mine: np.ndarray, row: Row, sizes: Sizes) -> np.ndarray:
  groups, ours = _groups(row)
  if ours[0] == 'V':
    mine = mine[: sizes['V']]
  mine = mine.transpose([ours.index(a) for a in ''.join(groups) if a in ours])
  return np.ascontiguousarray(mine.reshape(_their_shape(row._replace(part=(0, 1)), sizes)))
