"""The description of a family of transformers: each module of `families/` exports its `FAMILY`.

The name table gives both directions, the check that nothing is left over, and the documentation
(`python -m bertjax.convert --table=bert`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bertjax import models, options, registry
from bertjax.errors import UserError
from bertjax.formats.tables import REMEDY, Row
from bertjax.models.layers import heads
from bertjax.models.layers.heads import Head

WHERE = 'config.model.family'
ANY = '*'  # in place of the name of a label
NAMED = ('text', 'token', 'answers')  # kinds of heads with names
OF_POOLER = ('pooler_activation', 'pooling')  # which a model without one leaves unread

# config.model.activation -> hidden_act of transformers, the one that is written first.
ACTIVATIONS = dict(
  gelu_erf=('gelu', 'gelu_python'),
  gelu_tanh=('gelu_new', 'gelu_pytorch_tanh', 'gelu_fast'),
  relu=('relu',),
)


class Derived(NamedTuple):
  """A tensor of theirs that is no parameter of ours."""

  shape: tuple[int, ...] = ()  # of zeros, which nothing reads; or
  source: str = ''  # name of another tensor of theirs, and
  factor: float = 1.0  # what it is multiplied with


class Layout(NamedTuple):
  """The tensors of a class."""

  rows: tuple[Row, ...]  # the table
  tied: Mapping[str, str] = {}  # name of a copy -> name of its source
  remedy: str = REMEDY  # where tensors do not fit
  ignored: tuple[str, ...] = ('.position_ids',)  # endings of names that carry nothing we train
  spare: tuple[str, ...] = ()  # names of heads that a file may have and the model may lack
  derived: Mapping[str, Derived] = {}  # name -> what it follows from
  side: tuple[Row, ...] = ()  # rows that no class holds, written to a file of their own
  elsewhere: tuple[str, ...] = ()  # how our paths begin that another class holds


class Field(NamedTuple):
  """A number or choice of `config.model` and its name in config.json."""

  # ours, theirs: the names
  ours: str
  theirs: str
  default: Any  # theirs, where a config.json does not say it
  # our value -> theirs, the one that is written first; {}: the same
  values: Mapping[Any, tuple[Any, ...]] = {}
  export: Callable[[Any], Any] | None = None  # our value -> theirs, and
  import_: Callable[[Any], Any] | None = None  # theirs -> ours, where it is none of that


def named(**fields: tuple[Any, ...]) -> tuple[Field, ...]:
  """Returns fields of which both sides have the same values, or pairs of them: ours=(theirs,
  default[, values])."""
  return tuple(Field(ours, *rest) for ours, rest in fields.items())


class Family(NamedTuple):
  """A family of classes."""

  model: str  # module of `models/` that computes them
  model_type: str  # of config.json
  base: str  # how the names of the encoder begin; the headless class leaves it out
  classes: Mapping[str, str]  # name -> its heads
  layout: Callable[[Any], Layout]  # `config.model` -> the tensors
  fields: tuple[Field, ...]  # of config.json that are fields of `config.model`
  fixed: Mapping[str, Any]  # other fields of `config.model` -> the one value that the classes have
  # fields of config.json -> what the model computes, the value that is written first
  theirs: Mapping[str, tuple[Any, ...]] = {}
  # fields of `theirs` -> what a config.json means that leaves them out, where it is not that
  unsaid: Mapping[str, Any] = {}
  # `config.model` -> further fields of config.json; refuses what they cannot express
  write: Callable[[Any], dict[str, Any]] = lambda model: {}
  recipe: str = ''  # module of `configs/` whose recipe goes with them; '': named as the model
  pair: bool = False  # it has a decoder, which writes a second text
  # (our model, a batch) -> what its classes take beside ids, mask, segments and a second text
  takes: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = lambda module, batch: {}
  # model_type of classes that compute the same -> how their names begin, and how ours do
  alike: Mapping[str, tuple[str, str]] = {}
  # model_type of classes that are named alike and compute something else -> what
  unlike: Mapping[str, str] = {}
  read_as: str = ''  # the family that a directory of these classes is read as; '': this one
  # config.json -> further fields of `config.model`; refuses what our model does not compute
  read: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda given: {}


def uncomputed(found: object, expected: object) -> UserError:
  """Returns the error for what a config.json has."""
  return UserError(
    f'config.json has {found}, which our model does not compute: expected {expected}'
  )


def find(name: str, where: str = WHERE) -> Family:
  """Returns the family of that name. Raises UserError: no class of transformers holds it."""
  return registry.find('bertjax.formats.families', name, where).FAMILY


def said_heads(model: Any) -> str:
  """Returns the heads of a `config.model` as `Family.classes` has them. The discriminator speaks
  for ELECTRA's generator; a boundary head goes to a file of its own."""
  heads = [head for head in models.heads_of(model) if head.kind != 'boundary']
  if any(head.kind == 'replaced' for head in heads):
    heads = [head for head in heads if head.kind != 'word']
  return ' '.join(f'{h.kind}:{h.name}' if h.kind in NAMED else h.kind for h in heads)


def class_of(model: Any) -> str:
  """Returns the class of transformers that computes a model. Raises UserError that names the field
  which none can express."""
  family = find(model.family)
  _check_fixed(family, model)
  family.write(model)
  heads = said_heads(model)
  for name, wanted in family.classes.items():
    if re.fullmatch(wanted.replace(ANY, r'\S+'), heads):
      return name
  known = '; '.join(f'{name}: {heads or "none"}' for name, heads in family.classes.items())
  raise UserError(
    f'no class of transformers for {WHERE}={model.family!r} has these heads: {heads or "none"}. '
    f'There are {known}'
  )


def bare(model: Any) -> str:
  """Returns the prefix that a class leaves out of its names; '' if it has heads, which keep it."""
  return f'{find(model.family).base}.' if said_heads(model) in ('', 'pooled') else ''


def head_fields(family: Family, name: str, classes: int) -> dict[str, Any]:
  """Returns the fields of `config.model` of a class, with so many classes of a label."""
  fixed, found = {'next': 2, 'order': 2, 'span': 2, 'right': 1}, []
  for said in family.classes[name].split():
    kind, _, label = said.partition(':')
    label = dict(text='label', token='tag')[kind] if label == ANY else label
    found.append(Head(kind, label, fixed.get(label, classes), label))  # pyright: ignore
  words = any(head.kind in ('word', 'replaced') for head in found)
  known = options.fields_of(models.factory(dict(name=family.model)).options)
  return {key: value for key, value in heads.fields(words, found).items() if key in known}


def _check_fixed(family: Family, model: Any) -> None:
  if model.name != family.model:
    raise UserError(
      f'{WHERE}={model.family!r} is of config.model.name={family.model!r}, got {model.name!r}'
    )
  unread = () if re.search('text|pooled', said_heads(model)) else OF_POOLER
  fixed = {k: v for k, v in family.fixed.items() if k in model and k not in unread}
  wrong = {k: model[k] for k, v in fixed.items() if model[k] != v}
  if wrong:
    expected = {key: family.fixed[key] for key in wrong}
    raise UserError(
      f'no class of transformers for {WHERE}={model.family!r} holds config.model with {wrong}: '
      f'expected {expected}'
    )
