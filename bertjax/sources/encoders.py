"""The encoder of a model that is to be fine-tuned, as a model of a kind that has heads for labels.

Most are of such a kind as they are. What a run of ELECTRA leaves is its discriminator, which is a
BERT; a SpanBERT without its boundary head is one too. ModernBERT's words are scored through a dense
layer and a norm with which its heads of labels begin, as in transformers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax.errors import UserError
from bertjax.formats.families import electra_net

BOUNDARY = ('boundary_positions', 'boundary_width')


class Encoder(NamedTuple):
  """An encoder.

  Attributes:
    model: its fields of `config.model`.
    select: parameters of the whole model -> its own, and heads that it is taken from.
  """

  model: Mapping[str, Any]
  select: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def of(model: Mapping[str, Any], where: str) -> Encoder:
  """The encoder of a model.

  Args:
    model: its `config.model`.
    where: the key that names it, for messages.

  Raises:
    UserError: a kind that has no heads for labels.
  """
  found = KINDS.get(model['name'], _whole)(model)
  if 'labels' not in found.model:
    raise UserError(
      f'{where} is a model of config.model.name={model["name"]!r}, which has no heads for labels: '
      'expected an encoder, as BERT, RoBERTa, ALBERT, ELECTRA, ModernBERT or XLNet'
    )
  return found


def teaching(model: Mapping[str, Any]) -> Encoder:
  """Returns the part of a teacher that the student imitates: encoder and heads, without parts for
  pretraining alone (ELECTRA's generator, SpanBERT's boundary head).

  Args:
    model: its `config.model`.
  """
  return TEACHING.get(model['name'], _whole)(model)


def _whole(model: Mapping[str, Any]) -> Encoder:
  """Returns the model unchanged."""
  return Encoder(model, lambda params: params)


def _electra(model: Mapping[str, Any]) -> Encoder:
  """The discriminator."""

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    others = {key: tree for key, tree in params.items() if key != 'discriminator'}
    return others | electra_net.select_discriminator(params)

  return Encoder(dict(electra_net.discriminator_of(ConfigDict(model))), select)


def _span_boundary(model: Mapping[str, Any]) -> Encoder:
  """A BERT."""
  fields = {key: value for key, value in model.items() if key not in BOUNDARY}
  return Encoder(fields | dict(name='bert', family='bert'), lambda params: params)


def _modernbert(model: Mapping[str, Any]) -> Encoder:
  """Returns the model unchanged; heads of labels get the layers that precede the word table."""

  def select(params: Mapping[str, Any]) -> Mapping[str, Any]:
    if 'mlm' not in params:
      return params
    return dict(params, head={key: params['mlm'][key] for key in ('dense', 'norm')})

  return Encoder(model, select)


def _xlnet(model: Mapping[str, Any]) -> Encoder:
  """Its content stream, without memory."""
  return Encoder(dict(model, mem_len=0), lambda params: params)


KINDS = dict(electra=_electra, modernbert=_modernbert, span_boundary=_span_boundary, xlnet=_xlnet)
# Of ELECTRA a student learns from the discriminator, of SpanBERT without the boundary head, which
# rows of other plans have no spans for.
TEACHING = dict(electra=_electra, span_boundary=_span_boundary)
