"""The encoder of a model, as its module of models/ takes it from the whole: a run of ELECTRA leaves
its discriminator, which is a BERT; SpanBERT without its boundary head is one too."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bertjax import models
from bertjax.errors import UserError

Params = Mapping[str, Any]


class Encoder(NamedTuple):
  """`config.model` of an encoder, and parameters of the whole model -> its own."""

  model: Mapping[str, Any]
  select: Callable[[Params], Params]


def of(model: Mapping[str, Any], where: str) -> Encoder:
  """Returns the encoder with which fine-tuning begins, of a `config.model` that `where` names.
  Raises UserError: a kind that has no heads for labels."""
  factory = models.factory(model)
  way = factory.tuned or factory.encoder
  found = Encoder(way.model(model), way.select)
  if 'labels' not in found.model:
    raise UserError(
      f'{where} is a model of config.model.name={model["name"]!r}, which has no heads for labels: '
      'expected an encoder, as BERT, RoBERTa, ALBERT, ELECTRA, ModernBERT, XLNet or GPT'
    )
  return found


def teaching(model: Mapping[str, Any]) -> Encoder:
  """Returns the part of a teacher that the student imitates: encoder and heads."""
  way = models.factory(model).encoder
  return Encoder(way.model(model), way.select)
