"""A tagger on the frozen layers of an encoder: what each of them knows.

The encoder has neither dropout nor gradient; its optimizer must freeze it too
(`config.optimizer.freeze`), since weight decay needs no gradient. Devlin et al. 2019, section 5.3;
Peters et al. 2018. The tagger's map is drawn as BERT's, whatever the encoder draws from.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.contracts import TargetModel
from bertjax.models.layers.tagger import Features, Kind, Tagger
from bertjax.objectives import in_one_pass, model_of, tag
from bertjax.types import Array, Batch, Factory, Objective

TAGGER = 'tagger'
DEEP = dict(second_to_last=2, sum_last_four=4, concat_last_four=4)  # layers that features need


class Options(NamedTuple):
  """The fields of `config.objective`, those of `models.layers.tagger.Tagger`."""

  features: Features = 'last'
  kind: Kind = 'bilstm'
  width: Count = 128
  layers: Count = 2
  dropout: Fraction = 0.1


def make(config) -> Objective:
  """Builds the objective from a run's config, `config.model.token_labels` as of `tag`. Raises
  UserError: see `model_of` and `tag.tags_of`; an encoder with fewer layers than are read."""
  given, classes = config.objective, tag.tags_of(config)
  encoder = model_of(config.model, config.objective.name, TargetModel).clone(token_labels=())
  needed = DEEP.get(given.features, 1)
  if encoder.layers < needed:
    raise UserError(
      f'config.objective.features={given.features!r} reads {needed} layers: expected an encoder '
      f'with as many, got {encoder.layers}'
    )
  tagger = Tagger(
    given.features, given.kind, given.width, given.layers, given.dropout, classes,
    jax.nn.initializers.truncated_normal(config.model.init_std),
  )  # fmt: skip

  def read(variables: Any, batch: Batch) -> tuple[Array, Array, Array]:
    frozen = {name: tree for name, tree in variables['params'].items() if name != TAGGER}
    out = encoder.apply(jax.lax.stop_gradient(dict(params=frozen)), batch, None, hidden=True)
    size_B = jnp.sum((batch['example_BT'] > 0).astype(jnp.int32), 1)
    return out['hidden_LBTD'], out['embedded_BTD'], size_B

  def init(key: Array, batch: Batch) -> Any:
    variables = encoder.init(key, batch)
    own = tagger.init(jax.random.fold_in(key, 1), *read(variables, batch), None)
    return dict(variables, params=dict(variables['params'], **{TAGGER: own['params']}))

  def apply(variables: Any, batch: Batch, noise: Noise | None) -> dict[str, Any]:
    own = dict(params=variables['params'][TAGGER])
    logits_BTC = tagger.apply(own, *read(variables, batch), noise)
    return dict(token_label_BTC={tag.TAG: logits_BTC})

  def flops(batch: Batch) -> float:
    entries = tagger_matrices(tagger, encoder)
    return encoder.flops(batch) / 3 + flops_lib.head_flops(flops_lib.real(batch), entries)

  probe = SimpleNamespace(init=init, apply=apply, flops=flops)
  return in_one_pass(probe, tag.terms, ('tagging',))


def tagger_matrices(tagger: Tagger, encoder: Any) -> int:
  """Entries of the matrices that a token meets in the tagger."""
  inputs = encoder.width * (4 if tagger.features == 'concat_last_four' else 1)
  if tagger.kind == 'linear':
    return inputs * tagger.classes
  both = 2 * tagger.width
  first, more = inputs + tagger.width, both + tagger.width  # of a gate, the state's included
  gates = 2 * 4 * tagger.width  # of both directions
  return gates * (first + (tagger.layers - 1) * more) + both * tagger.classes


OBJECTIVE = Factory(Options, make, targets=tag.OBJECTIVE.targets)
