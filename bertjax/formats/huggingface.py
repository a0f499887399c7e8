"""Parameters to and from the state dicts of PyTorch `transformers`, family by family.

The tables are in `families/`, one module for each `config.model.family`; directories with
config.json and tokenizer are `directory.py`'s. Everything is NumPy: neither torch nor
`transformers` is imported.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bertjax import registry
from bertjax.errors import UserError
from bertjax.formats import family as family_lib
from bertjax.formats import tables
from bertjax.formats.family import Layout
from bertjax.formats.weights import View

# How TensorFlow-era files on the hub name the parameters of a norm, and a RoBERTa names itself.
_OTHER_NAMES = (
  ('LayerNorm.gamma', 'LayerNorm.weight'),
  ('LayerNorm.beta', 'LayerNorm.bias'),
  ('data2vec_text.', 'roberta.'),
)


# Ids of published base models whose config.json does not have the default of their class.
_PUBLISHED = dict(
  ernie=18_000, longformer=50_265, transformer_xl=30_522,
  xlm=95_000,  # XLM-15
  xlm_roberta=250_002,
)  # fmt: skip


class Taken(NamedTuple):
  """A state dict, converted to our parameters."""

  # nested dict of float32 arrays, layers stacked on axis 0, the vocabulary padded with zero rows
  params: dict[str, Any]
  made: list[str]  # our paths of heads that it lacked, made here
  # its names of heads that the model lacks, and of tensors that are not trained
  left_out: list[str]


def published_vocabulary(name: str) -> int:
  """Ids of a family's published base model, of BERT where none is known."""
  known = name in registry.names_in('bertjax.formats.families')
  fields = family_lib.find(name if known else 'bert').fields
  default: int = next(field.default for field in fields if field.ours == 'vocab_size')
  return _PUBLISHED.get(name, default)


def take(state_dict: Mapping[str, np.ndarray], model: Any) -> Taken:
  """Returns a state dict as our parameters. It may lack a prefix, one of two tied tensors and whole
  heads. Raises UserError that lists every missing, unexpected, untied or misshapen tensor."""
  family = family_lib.find(model.family)
  layout = family.layout(model)
  state = _renamed(state_dict, family.base, layout)
  rows = layout.rows + layout.side
  known = {*layout.tied, *layout.spare, *layout.derived}
  made, left_out = tables.check_names(state, rows, known, layout.ignored, model, layout.remedy)
  tables.check_tied(state, layout.tied, layout.remedy)
  _check_derived(state, layout)
  left_out = [n for n in left_out if n not in layout.tied and n not in layout.derived]
  return Taken(tables.to_ours(state, rows, model), made, left_out)


def shapes(model: Any) -> dict[str, tuple[int, ...]]:
  """Name -> shape of what `tensors` yields, in its order."""
  layout, prefix = layout_of(model), family_lib.bare(model)
  found = tables.their_shapes(layout.rows, model)
  for name, each in layout.derived.items():
    found[name] = found[each.source] if each.source else each.shape
  return {name.removeprefix(prefix): shape for name, shape in found.items()}


def tensors(params: Mapping[str, Any], model: Any) -> Iterator[tuple[str, str, np.ndarray]]:
  """Yields the tensors of a class one at a time, without tied copies: (name, our path, float32)."""
  layout, prefix = layout_of(model), family_lib.bare(model)
  sources: dict[str, np.ndarray] = {}
  needed = {each.source for each in layout.derived.values()}
  elsewhere = (*layout.elsewhere, *(row.ours for row in layout.side))
  for name, row, array in tables.to_theirs(params, layout.rows, model, elsewhere):
    if name in needed:
      sources[name] = array
    yield name.removeprefix(prefix), row.ours, array
  for name, each in layout.derived.items():
    yield name, '', derived(each, sources)


def side_tensors(params: Mapping[str, Any], model: Any) -> dict[str, np.ndarray]:
  """Returns the tensors that no class holds: SpanBERT's boundary head."""
  layout = layout_of(model)
  if not layout.side:
    return {}
  elsewhere = (*layout.elsewhere, *(row.ours for row in layout.rows))
  return {name: array for name, _, array in tables.to_theirs(params, layout.side, model, elsewhere)}


def layout_of(model: Any) -> Layout:
  """Returns the tensors of the class that computes a model. Raises UserError if there is none."""
  family_lib.class_of(model)
  return family_lib.find(model.family).layout(model)


def derived(each: family_lib.Derived, state: Mapping[str, np.ndarray]) -> np.ndarray:
  """Returns a tensor that follows from others."""
  if not each.source:
    return np.zeros(each.shape, np.float32)
  return np.asarray(state[each.source], np.float32) * np.float32(each.factor)


def _renamed(state: Mapping[str, np.ndarray], base: str, layout: Layout) -> View:
  """Returns a state under today's names: with prefix, new endings, sources in place of copies."""
  encoder = {row.theirs for row in layout.rows if row.theirs.startswith(f'{base}.')}
  tops = {name.removeprefix(f'{base}.').partition('.')[0] for name in encoder}
  bare = not any(name.startswith(f'{base}.') for name in state)
  names = {}
  for name in state:
    new = name
    for old, today in _OTHER_NAMES:
      new = new.replace(old, today)
    if bare and new.partition('.')[0] in {*tops, 'pooler'}:
      new = f'{base}.{new}'
    names[new] = name
  for copy, source in layout.tied.items():
    if copy in names and source not in names:
      names[source] = names[copy]
  return View(state, names)


def _check_derived(state: Mapping[str, np.ndarray], layout: Layout) -> None:
  for name, each in layout.derived.items():
    if name not in state or not each.source:
      continue  # zeros that nothing reads may be anything
    if not np.array_equal(np.asarray(state[name], np.float32), derived(each, state)):
      raise UserError(
        f'{name} is not {each.source} times {each.factor:g}: this model has one table for both, '
        'others do not fit'
      )
