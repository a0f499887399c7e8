"""BERT and RoBERTa parameters to and from the state dicts of PyTorch `transformers`.

One table of rows per family, read in both directions. A row says where a tensor lives on each side
and how its axes map, e.g. 'NH,D->DNH': theirs is a matrix [N * H, D], ours an array [D, N, H].
Letters are those of `types.py`; here T counts the rows of the position table, S those of the
segment table, C the labels of a head, and E is the width where D is taken. Everything is NumPy:
neither torch nor `transformers` is imported.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bertjax.models.layers import padded_rows


class Row(NamedTuple):
  """One tensor: our path under params, their name ('{layer}' where stacked), 'theirs->ours'."""

  ours: str
  theirs: str
  axes: str


class Family(NamedTuple):
  """The rows of a `transformers` class, and what its state dict holds besides them.

  Attributes:
    rows: without the heads that `config.model.pooler` switches.
    pooled: rows of the pooler and the next-sentence head; empty where the class has none.
    tied: name of a copy -> name of its source.
    ignored: endings of names that carry nothing we train.
  """

  rows: tuple[Row, ...]
  pooled: tuple[Row, ...]
  tied: Mapping[str, str]
  ignored: tuple[str, ...]


def _dense(ours: str, theirs: str, out: str, into: str) -> tuple[Row, Row]:
  """A torch Linear: weight [out, in] becomes kernel [in, out]."""
  weight = Row(f'{ours}/kernel', f'{theirs}.weight', f'{out},{into}->{into}{out}')
  return weight, Row(f'{ours}/bias', f'{theirs}.bias', f'{out}->{out}')


def _norm(ours: str, theirs: str) -> tuple[Row, Row]:
  scale = Row(f'{ours}/scale', f'{theirs}.weight', 'D->D')
  return scale, Row(f'{ours}/bias', f'{theirs}.bias', 'D->D')


def _encoder(base: str) -> tuple[Row, ...]:
  """Embeddings and layers, the same in both families."""
  ours, theirs = 'encoder/layers', f'{base}.encoder.layer.{{layer}}'
  return (
    Row('embeddings/word', f'{base}.embeddings.word_embeddings.weight', 'V,D->VD'),
    Row('embeddings/position', f'{base}.embeddings.position_embeddings.weight', 'T,D->TD'),
    Row('embeddings/type', f'{base}.embeddings.token_type_embeddings.weight', 'S,D->SD'),
    *_norm('embeddings/norm', f'{base}.embeddings.LayerNorm'),
    *_dense(f'{ours}/attention/query', f'{theirs}.attention.self.query', 'NH', 'D'),
    *_dense(f'{ours}/attention/key', f'{theirs}.attention.self.key', 'NH', 'D'),
    *_dense(f'{ours}/attention/value', f'{theirs}.attention.self.value', 'NH', 'D'),
    *_dense(f'{ours}/attention/out', f'{theirs}.attention.output.dense', 'D', 'NH'),
    *_norm(f'{ours}/attention_norm', f'{theirs}.attention.output.LayerNorm'),
    *_dense(f'{ours}/ffn_up', f'{theirs}.intermediate.dense', 'F', 'D'),
    *_dense(f'{ours}/ffn_down', f'{theirs}.output.dense', 'D', 'F'),
    *_norm(f'{ours}/ffn_norm', f'{theirs}.output.LayerNorm'),
  )


FAMILIES: dict[str, Family] = {
  'bert': Family(  # BertForPreTraining; BertForMaskedLM where the model has no pooler
    rows=(
      *_encoder('bert'),
      *_dense('mlm/dense', 'cls.predictions.transform.dense', 'E', 'D'),
      *_norm('mlm/norm', 'cls.predictions.transform.LayerNorm'),
      Row('mlm/bias', 'cls.predictions.bias', 'V->V'),
    ),
    pooled=(
      *_dense('pooler', 'bert.pooler.dense', 'E', 'D'),
      *_dense('next', 'cls.seq_relationship', 'C', 'D'),
    ),
    tied={
      'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
      'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
    ignored=('.position_ids',),
  ),
  'roberta': Family(  # RobertaForMaskedLM
    rows=(
      *_encoder('roberta'),
      *_dense('mlm/dense', 'lm_head.dense', 'E', 'D'),
      *_norm('mlm/norm', 'lm_head.layer_norm'),
      Row('mlm/bias', 'lm_head.bias', 'V->V'),
    ),
    pooled=(),
    tied={
      'lm_head.decoder.weight': 'roberta.embeddings.word_embeddings.weight',
      'lm_head.decoder.bias': 'lm_head.bias',
    },
    # Some published files hold a pooler that was never trained.
    ignored=('.position_ids', '.pooler.dense.weight', '.pooler.dense.bias'),
  ),
}

# How TensorFlow-era files on the hub name the parameters of a norm.
_OLD_ENDINGS = (('LayerNorm.gamma', 'LayerNorm.weight'), ('LayerNorm.beta', 'LayerNorm.bias'))


def family_of(config_model) -> Family:
  """The table of a `config.model`: RoBERTa is the one whose positions start after the pad id.

  Raises:
    ValueError: a model that no class of `transformers` holds.
  """
  if config_model.name != 'bert':
    raise ValueError(f"conversion knows model.name='bert', got {config_model.name!r}")
  family = FAMILIES['roberta' if config_model.position_offset else 'bert']
  if config_model.pooler and not family.pooled:
    raise ValueError('RobertaForMaskedLM has no next-sentence head: set model.pooler=False')
  return family


def from_huggingface(state_dict: Mapping[str, np.ndarray], config_model) -> dict[str, Any]:
  """A state dict of NumPy arrays as our parameters.

  Args:
    state_dict: of BertForPreTraining, BertForMaskedLM or RobertaForMaskedLM; tied copies may be
      missing, heads that the model lacks are left out.
    config_model: `config.model` with the vocabulary size filled in.

  Returns:
    nested dict of float32 arrays, layers stacked on axis 0, the vocabulary padded with zero rows.

  Raises:
    ValueError: a missing, unexpected or untied tensor, or a shape that is not the config's.
  """
  family, sizes = family_of(config_model), _sizes(config_model)
  rows = family.rows + (family.pooled if config_model.pooler else ())
  state = {_new_name(name): array for name, array in state_dict.items()}
  _check_names(state, family, rows, config_model.layers)
  params: dict[str, Any] = {}
  for row in rows:
    if '{layer}' in row.theirs:
      names = [row.theirs.format(layer=layer) for layer in range(config_model.layers)]
      array = np.stack([_to_ours(name, state[name], row.axes, sizes) for name in names])
    else:
      array = _to_ours(row.theirs, state[row.theirs], row.axes, sizes)
    *parents, leaf = row.ours.split('/')
    node = params
    for parent in parents:
      node = node.setdefault(parent, {})
    node[leaf] = array
  return params


def to_huggingface(params: Mapping[str, Any], config_model) -> dict[str, np.ndarray]:
  """Our parameters as a state dict of NumPy arrays: the inverse of `from_huggingface`.

  Args:
    params: nested dict of arrays, without partitioning boxes.
    config_model: `config.model` with the vocabulary size filled in.

  Returns:
    float32 arrays under the names of BertForPreTraining (BertForMaskedLM without a pooler) or
    RobertaForMaskedLM, tied copies included, so that `load_state_dict(strict=True)` takes it.
  """
  family, sizes = family_of(config_model), _sizes(config_model)
  state: dict[str, np.ndarray] = {}
  for row in family.rows + (family.pooled if config_model.pooler else ()):
    node: Any = params
    for key in row.ours.split('/'):
      node = node[key]
    array = np.asarray(node, np.float32)
    if '{layer}' in row.theirs:
      for layer in range(config_model.layers):
        state[row.theirs.format(layer=layer)] = _to_theirs(array[layer], row.axes, sizes)
    else:
      state[row.theirs] = _to_theirs(array, row.axes, sizes)
  return state | {copy: state[source] for copy, source in family.tied.items()}


def _sizes(config_model) -> dict[str, int]:
  width, heads = config_model.width, config_model.heads
  return dict(
    V=config_model.vocab_size, D=width, E=width, N=heads, H=width // heads, F=config_model.ffn,
    T=config_model.positions, S=config_model.types, C=2,
  )  # fmt: skip


def _new_name(name: str) -> str:
  for old, new in _OLD_ENDINGS:
    name = name.replace(old, new)
  return name


def _check_names(
  state: Mapping[str, np.ndarray], family: Family, rows: tuple[Row, ...], layers: int
) -> None:
  wanted = {row.theirs.format(layer=layer) for row in rows for layer in range(layers)}
  known = wanted | set(family.tied) | {row.theirs for row in family.pooled}
  missing = sorted(wanted - set(state))
  extra = sorted(n for n in set(state) - known if not n.endswith(family.ignored))
  if missing or extra:
    raise ValueError(
      f'the state dict does not fit the model: missing {missing[:5]} ({len(missing)} in all), '
      f'unexpected {extra[:5]} ({len(extra)}); check model.layers, model.pooler and the class'
    )
  for copy, source in family.tied.items():
    if copy in state and not np.array_equal(state[copy], state[source]):
      raise ValueError(
        f'{copy} differs from {source}: this model ties them, untied ones do not fit'
      )


def _to_ours(name: str, array: np.ndarray, axes: str, sizes: Mapping[str, int]) -> np.ndarray:
  theirs, ours = axes.split('->')
  groups = theirs.split(',')
  expected = tuple(int(np.prod([sizes[a] for a in group])) for group in groups)
  if np.shape(array) != expected:
    raise ValueError(f'{name}: config.model says shape {expected}, got {np.shape(array)}')
  flat = ''.join(groups)
  split = np.asarray(array, np.float32).reshape([sizes[a] for a in flat])
  result = split.transpose([flat.index(a) for a in ours])
  padding = padded_rows(sizes['V']) - sizes['V'] if ours[0] == 'V' else 0
  return np.pad(result, [(0, padding)] + [(0, 0)] * (result.ndim - 1))


def _to_theirs(array: np.ndarray, axes: str, sizes: Mapping[str, int]) -> np.ndarray:
  theirs, ours = axes.split('->')
  groups = theirs.split(',')
  if ours[0] == 'V':
    array = array[: sizes['V']]
  merged = array.transpose([ours.index(a) for a in ''.join(groups)])
  shape = [int(np.prod([sizes[a] for a in group])) for group in groups]
  return np.ascontiguousarray(merged.reshape(shape))
