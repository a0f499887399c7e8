"""Rows of variables as TensorFlow 1 names them: kernels are [in, out], scales are called gamma."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bertjax.formats import tables
from bertjax.formats.originals.original import Part
from bertjax.formats.tables import Row, heads


class Kind(NamedTuple):
  """A program whose checkpoints are read."""

  title: str  # what a message calls it
  family: str  # `config.model.family`
  recipe: str  # module of `configs/`
  config: str  # the JSON file that it writes beside its checkpoints; '': none
  mark: str  # how a name begins that it alone has
  # (names and shapes, the JSON or {}) -> the fields of `config.model`, and what is assumed
  fields: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[dict[str, Any], list[str]]]
  parts: Callable[[Any], tuple[Part, ...]]  # `config.model` -> the rows
  heads: tuple[str, ...]  # how names of heads begin, which the model may lack
  # `config.model` -> tensors that hold all layers
  stacked: Callable[[Any], tuple[str, ...]] = lambda model: ()
  # (parameters of the parts, `config.model`) -> those of the model
  join: Callable[[list[dict[str, Any]], Any], dict[str, Any]] = lambda params, model: params[0]


def dense(ours: str, theirs: str, out: str, into: str, **more: Any) -> tuple[Row, Row]:
  """Returns the rows of tf.layers.dense; arguments as those of `tables.dense`."""
  kernel = Row(f'{ours}/kernel', f'{theirs}/kernel', f'{into},{out}->{into}{out}', **more)
  return kernel, Row(f'{ours}/bias', f'{theirs}/bias', f'{out}->{out}', **more)


def norm(ours: str, theirs: str, width: str = 'D', **more: Any) -> tuple[Row, Row]:
  """tf.contrib.layers.layer_norm."""
  scale = Row(f'{ours}/scale', f'{theirs}/gamma', f'{width}->{width}', **more)
  return scale, Row(f'{ours}/bias', f'{theirs}/beta', f'{width}->{width}', **more)


def embeddings(scope: str) -> tuple[Row, ...]:
  """Returns the tables of modeling.py (embedding_lookup, embedding_postprocessor)."""
  return (
    Row('embeddings/word', f'{scope}/word_embeddings', 'V,E->VE'),
    Row('embeddings/position', f'{scope}/position_embeddings', 'T,E->TE'),
    Row('embeddings/type', f'{scope}/token_type_embeddings', 'S,E->SE'),
    *norm('embeddings/norm', f'{scope}/LayerNorm', 'E'),
  )


def layers(scope: str, net: str = 'encoder') -> tuple[Row, ...]:
  """Returns the layers of modeling.py (transformer_model)."""
  return layer(
    f'{net}/layers',
    f'{scope}/layer_{{layer}}/*',
    'attention/self/query attention/self/key attention/self/value attention/output/dense '
    'attention/output/LayerNorm intermediate/dense output/dense output/LayerNorm',
  )


def layer(ours: str, theirs: str, names: str) -> tuple[Row, ...]:
  """Returns the rows of `tables.layer`, whose kernels are matrices [in, out]."""
  return tables.layer(ours, theirs, names, dense, norm)


def word_head(theirs: str, transform: str) -> tuple[Row, ...]:
  """Returns the masked-LM head: `theirs`/output_bias, and dense and norm at `transform`."""
  return heads(
    (
      *dense('mlm/dense', f'{transform}/dense', 'E', 'D'),
      *norm('mlm/norm', f'{transform}/LayerNorm', 'E'),
      Row('mlm/bias', f'{theirs}/output_bias', 'V->V'),
    )
  )
