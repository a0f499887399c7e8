"""Parameters to and from the state dicts of PyTorch `transformers`.

One table of rows per family, `family()` of the module of this package that `config.model.family`
names, read in both directions. A row says where a tensor lives on each side
and how its axes map, e.g. 'NH,D->DNH': theirs is a matrix [N * H, D], ours an array [D, N, H].
Letters are those of `types.py`; here T counts the rows of the position table, S those of the
segment table, X those of an extra table, C the labels of a head, A is a single logit or an axis of
one that ours lacks, E is the width of the tables, and O is D where D is taken.
Everything is NumPy: neither torch nor `transformers` is imported.
"""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bertjax import registry
from bertjax.errors import UserError
from bertjax.models.layers.basic import padded_rows


class Row(NamedTuple):
  """One tensor: our path under params, their name, 'theirs->ours'.

  Ours is a stack of theirs where the name holds '{layer}', or '{group}' and '{inner}', which number
  the blocks of `config.model.groups`.
  """

  ours: str
  theirs: str
  axes: str


class Family(NamedTuple):
  """The rows of a `transformers` class, and what its state dict holds besides them.

  Attributes:
    rows: without the heads of `config.model.labels`.
    pooled: rows of the pooler and the label heads; empty where the class has none.
    projection: rows of the class where the tables and the layers differ in width.
    extra: name of a table of `config.model.extra` -> its row.
    tied: name of a copy -> name of its source.
    ignored: endings of names that carry nothing we train.
    sharing: the `config.model.sharing` that the class has.
    needed: other fields of `config.model`, with the values that the class has.
    vocab_size: ids of the published base model.
  """

  rows: tuple[Row, ...]
  pooled: tuple[Row, ...]
  tied: Mapping[str, str]
  ignored: tuple[str, ...]
  projection: tuple[Row, ...] = ()
  extra: Mapping[str, Row] = {}
  sharing: str = 'none'
  needed: Mapping[str, Any] = {}
  vocab_size: int = 30522


def dense(ours: str, theirs: str, out: str, into: str) -> tuple[Row, Row]:
  """A torch Linear: weight [out, in] becomes kernel [in, out]."""
  weight = Row(f'{ours}/kernel', f'{theirs}.weight', f'{out},{into}->{into}{out}')
  return weight, Row(f'{ours}/bias', f'{theirs}.bias', f'{out}->{out}')


def norm(ours: str, theirs: str, width: str = 'D') -> tuple[Row, Row]:
  """A torch LayerNorm: its weight is our scale."""
  scale = Row(f'{ours}/scale', f'{theirs}.weight', f'{width}->{width}')
  return scale, Row(f'{ours}/bias', f'{theirs}.bias', f'{width}->{width}')


# How TensorFlow-era files on the hub name the parameters of a norm.
_OLD_ENDINGS = (('LayerNorm.gamma', 'LayerNorm.weight'), ('LayerNorm.beta', 'LayerNorm.bias'))


def family_of(config_model) -> Family:
  """The table of `config.model.family`.

  Raises:
    UserError: a model that no class of `transformers` holds.
  """
  where = 'config.model.family'
  family = registry.find('bertjax.convert.families', config_model.family, where).family()
  got = {key: config_model[key] for key in family.needed}
  if got != family.needed:
    raise UserError(
      f'{where}={config_model.family!r} needs config.model with {dict(family.needed)}, got {got}: '
      'no class of transformers holds that'
    )
  if not _like_bert(config_model):
    return family
  if config_model.labels and not family.pooled:
    raise UserError(
      f'the class of transformers for {where}={config_model.family!r} has no label head: set '
      f'config.model.labels=(), got {config_model.labels}'
    )
  unknown = [name for name, _ in config_model.extra if name not in family.extra]
  if unknown or config_model.sinusoid:
    raise UserError(
      f'{where}={config_model.family!r} holds a learned position table and the extra tables '
      f'{sorted(family.extra)}, got sinusoid={config_model.sinusoid} and {config_model.extra}'
    )
  if config_model.sharing != family.sharing:
    raise UserError(
      f'{where}={config_model.family!r} needs config.model.sharing={family.sharing!r}, got '
      f'{config_model.sharing!r}: no class of transformers holds that'
    )
  wide = config_model.embedding_width in (0, config_model.width)
  if wide and any(row.ours.startswith('embeddings/projection') for row in family.rows):
    raise UserError(
      f'{where}={config_model.family!r} always projects its tables, which this model does where '
      f'config.model.embedding_width differs from width={config_model.width} only'
    )
  return family


def published_vocabulary(family: str) -> int:
  """Ids of a family's published base model, of BERT where none is known."""
  if family not in registry.names_in('bertjax.convert.families'):
    family = 'bert'
  return registry.find('bertjax.convert.families', family, 'family').family().vocab_size


def rows_of(family: Family, config_model) -> tuple[Row, ...]:
  """The rows of the tensors that a model has."""
  if not _like_bert(config_model):
    return family.rows
  extra = tuple(family.extra[name] for name, _ in config_model.extra)
  rows = family.rows + extra + (family.pooled if config_model.labels else ())
  if config_model.embedding_width not in (0, config_model.width):
    rows += family.projection
  if config_model.sharing == 'all' and config_model.groups * config_model.inner_groups == 1:
    alone = lambda path: path.replace('encoder/layers/', 'encoder/shared/')
    rows = tuple(row._replace(ours=alone(row.ours)) for row in rows)
  return rows


def names_of(row: Row, config_model) -> list[str]:
  """Their names of a row's tensors, in the order of our stack."""
  if '{group}' in row.theirs:
    numbers = itertools.product(range(config_model.groups), range(config_model.inner_groups))
    return [row.theirs.format(group=group, inner=inner) for group, inner in numbers]
  layers = range(config_model.layers) if '{layer}' in row.theirs else (0,)
  return [row.theirs.format(layer=layer) for layer in layers]


def from_huggingface(state_dict: Mapping[str, np.ndarray], config_model) -> dict[str, Any]:
  """A state dict of NumPy arrays as our parameters.

  Args:
    state_dict: of the family's class; of tied tensors one may be missing, heads that the model
      lacks are left out.
    config_model: `config.model` with the vocabulary size filled in.

  Returns:
    nested dict of float32 arrays, layers stacked on axis 0, the vocabulary padded with zero rows.

  Raises:
    UserError: a missing, unexpected or untied tensor, or a shape that is not the config's.
  """
  family, sizes = family_of(config_model), _sizes(config_model)
  rows = rows_of(family, config_model)
  state = {_new_name(name): array for name, array in state_dict.items()}
  for copy, source in family.tied.items():
    if copy in state:
      state.setdefault(source, state[copy])
  _check_names(state, family, rows, config_model)
  params: dict[str, Any] = {}
  for row in rows:
    tensors = [_to_ours(name, state[name], row.axes, sizes) for name in names_of(row, config_model)]
    *parents, leaf = row.ours.split('/')
    node = params
    for parent in parents:
      node = node.setdefault(parent, {})
    node[leaf] = np.stack(tensors) if 'layers' in parents else tensors[0]
  return params


def to_huggingface(params: Mapping[str, Any], config_model) -> dict[str, np.ndarray]:
  """Our parameters as a state dict of NumPy arrays: the inverse of `from_huggingface`.

  Args:
    params: nested dict of arrays, without partitioning boxes.
    config_model: `config.model` with the vocabulary size filled in.

  Returns:
    float32 arrays under the names of the family's class, tied copies included, so that its
    `load_state_dict(strict=True)` takes it.
  """
  family, sizes = family_of(config_model), _sizes(config_model)
  state: dict[str, np.ndarray] = {}
  for row in rows_of(family, config_model):
    node: Any = params
    for key in row.ours.split('/'):
      node = node[key]
    array = np.asarray(node, np.float32)
    tensors = array if 'layers' in row.ours.split('/') else array[None]
    for name, tensor in zip(names_of(row, config_model), tensors, strict=True):
      state[name] = _to_theirs(tensor, row.axes, sizes)
  return state | {copy: state[source] for copy, source in family.tied.items()}


def _like_bert(config_model) -> bool:
  """Whether the model is a `models.bert.Bert`, with its choice of tables and heads."""
  return 'labels' in config_model


def _sizes(config_model) -> dict[str, int]:
  width, heads = config_model.width, config_model.heads
  sizes = dict(
    V=config_model.vocab_size, D=width, O=width, N=heads, H=width // heads, F=config_model.ffn, S=2,
    C=2, A=1,
  )  # fmt: skip
  if _like_bert(config_model):
    sizes |= dict(
      E=config_model.embedding_width or width, T=config_model.positions, S=config_model.types,
      X=config_model.extra[0][1] if config_model.extra else 0,
    )  # fmt: skip
  return sizes


def _new_name(name: str) -> str:
  for old, new in _OLD_ENDINGS:
    name = name.replace(old, new)
  return name


def _check_names(
  state: Mapping[str, np.ndarray], family: Family, rows: tuple[Row, ...], config_model
) -> None:
  wanted = {name for row in rows for name in names_of(row, config_model)}
  known = wanted | set(family.tied) | {row.theirs for row in family.pooled}
  missing = sorted(wanted - set(state))
  extra = sorted(n for n in set(state) - known if not n.endswith(family.ignored))
  if missing or extra:
    raise UserError(
      f'the state dict does not fit the model: missing {missing[:5]} ({len(missing)} in all), '
      f'unexpected {extra[:5]} ({len(extra)}); check model.layers, model.labels and the class'
    )
  for copy, source in family.tied.items():
    if copy in state and not np.array_equal(state[copy], state[source]):
      raise UserError(f'{copy} differs from {source}: this model ties them, untied ones do not fit')


def _to_ours(name: str, array: np.ndarray, axes: str, sizes: Mapping[str, int]) -> np.ndarray:
  theirs, ours = axes.split('->')
  groups = theirs.split(',')
  expected = tuple(int(np.prod([sizes[a] for a in group])) for group in groups)
  if np.shape(array) != expected:
    raise UserError(f'{name}: config.model says shape {expected}, got {np.shape(array)}')
  flat = ''.join(groups)
  flat = ''.join(a for a in flat if a in ours)
  split = np.asarray(array, np.float32).reshape([sizes[a] for a in flat])
  result = split.transpose([flat.index(a) for a in ours])
  padding = padded_rows(sizes['V']) - sizes['V'] if ours[0] == 'V' else 0
  return np.pad(result, [(0, padding)] + [(0, 0)] * (result.ndim - 1))


def _to_theirs(array: np.ndarray, axes: str, sizes: Mapping[str, int]) -> np.ndarray:
  theirs, ours = axes.split('->')
  groups = theirs.split(',')
  if ours[0] == 'V':
    array = array[: sizes['V']]
  merged = array.transpose([ours.index(a) for a in ''.join(groups) if a in ours])
  shape = [int(np.prod([sizes[a] for a in group])) for group in groups]
  return np.ascontiguousarray(merged.reshape(shape))
