"""Functions of (variables, batch) for all that a trained model can do, one set for each kind.

A batch is `bertjax.text.sentences.as_batch`'s: one text a row, in segment 0, no memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bertjax import models
from bertjax.errors import UserError
from bertjax.kernels.adaptive_softmax import AdaptiveScores
from bertjax.kernels.cross_entropy import Scores
from bertjax.models.electra import Electra
from bertjax.models.layers.contracts import StreamModel, TargetModel
from bertjax.models.layers.heads import gather_positions
from bertjax.models.xlnet import Labelled, XLNet
from bertjax.text.sentences import Frame, bert_frame
from bertjax.types import Array, Batch, Variables
from bertjax.use.answers import Pool

Words = Callable[..., Scores | AdaptiveScores]  # (variables, batch)

SPAN = ('left', 'right', 'offset')  # `<name>_BP`, which a boundary head reads


class Net(NamedTuple):
  """A model and what it can do.

  Attributes:
    name: `config.model.name`.
    init: (key, batch) -> its variables.
    words: the scores of the vocabulary at the slots of the batch; None: it has no such head.
    causal: whether a position sees what is before it alone.
    judge: float32 logits [B, T] of "replaced"; None: it has no discriminator.
    labels: (variables, batch) -> label -> float32 logits [B, C] of the texts; None: it has no head
      for labels.
    token_labels: (variables, batch) -> label -> float32 logits [B, T, C] of the tokens; None: it
      has no such head.
    spans: (variables, batch) -> what answers to questions are decoded from: float32 logits of both
      their ends [B, T, 2], or a `Beam`; None: it has no such head.
    outputs: (variables, batch, whether all) -> the last layer's output [B, T, D]; or with it of all
      layers [L, B, T, D] and what enters the first [B, T, D].
    layers: how many outputs it has.
    width: of them.
    room: columns that it takes at most; None: any number.
    tables: of `config.model.extra`, to be given as `<name>_BT`.
    frame: special tokens around a text.
  """

  name: str
  init: Callable[[Array, Batch], Variables]
  words: Words | None
  causal: bool
  judge: Callable[[Variables, Batch], Array] | None
  labels: Callable[[Variables, Batch], Mapping[str, Array]] | None
  token_labels: Callable[[Variables, Batch], Mapping[str, Array]] | None
  spans: Callable[[Variables, Batch], Any] | None
  outputs: Callable[[Variables, Batch, bool], Any]
  layers: int
  width: int
  room: int | None
  tables: tuple[str, ...]
  frame: Frame


def make(config: Any, special: Mapping[str, int | None]) -> Net:
  """Builds the functions of a model.

  Args:
    config: `config.model` with the vocabulary size filled in.
    special: role -> id.

  Raises:
    UserError: there is no such model, or it is of a kind that is unknown here.
  """
  config = config.copy_and_resolve_references()
  room = models.build(config).room
  for key, value in dict(mem_len=0, same_length=False).items():  # each text stands for itself
    if key in config:
      config[key] = value
  model = models.build(config)
  kinds = {
    Electra: _electra, Labelled: _labelled_xlnet, XLNet: _xlnet, StreamModel: _stream,
    TargetModel: _target,
  }  # fmt: skip
  for kind, functions in kinds.items():
    if isinstance(model, kind):
      own: dict[str, Any] = dict(
        causal=False, judge=None, labels=None, token_labels=None, spans=None,
        frame=bert_frame(special),
      )  # fmt: skip
      own |= functions(model, config, special)
      layers = config.layers * (config.inner_groups if 'inner_groups' in config else 1)
      return Net(
        name=config.name, init=model.init, layers=layers, width=config.width, room=room,
        tables=_tables(config), **own,
      )  # fmt: skip
  raise UserError(
    f'config.model.name={config.name!r} is used by commands once its class is a TargetModel or a '
    f'StreamModel of bertjax.models.layers.contracts, got {type(model).__name__}'
  )


def without(net: Net, made: Sequence[str]) -> Net:
  """The net without the heads whose parameters are not the model's own.

  Args:
    made: paths of parameters that were made, as they were not there.
  """
  tops = {path.partition('/')[0] for path in made}
  words = None if tops & {'mlm', 'head', 'words'} else net.words
  return net._replace(words=words, judge=None if 'rtd' in tops else net.judge)


def _tables(config: Any) -> tuple[str, ...]:
  """Names of the further tables, and of the languages where they decide who sees whom."""
  names = [name for name, _ in config.extra] if 'extra' in config else []
  by_language = 'attend' in config and config.attend == 'language'
  return tuple(dict.fromkeys([*names, *(['language'] if by_language else [])]))


def _target(model: Any, config: Any, special: Mapping[str, int | None]) -> dict[str, Any]:
  """BERT and all that scores words at the targets of a batch."""
  del special
  words = 'words' not in config or config.words

  def apply(variables, batch, hidden):
    slots = {f'{name}_BP': jnp.zeros_like(batch['target_pos_BP']) for name in SPAN}
    return model.apply(variables, dict(batch, **slots), None, hidden)

  def labels(variables, batch):
    found = apply(variables, batch, False)['label_BGC']
    return {name: logits_BGC[:, 0] for name, logits_BGC in found.items()}

  token_labels = lambda variables, batch: apply(variables, batch, False)['token_label_BTC']

  def spans(variables, batch):
    out = apply(variables, batch, False)
    return out['answers'] if 'answers' in out else out['token_label_BTC']['span']

  tags = dict(config.token_labels) if 'token_labels' in config else {}
  answers = 'answers' in config and config.answers != 'none'
  return dict(
    words=(lambda variables, batch: apply(variables, batch, False)['word']) if words else None,
    causal='attend' in config and config.attend == 'causal',
    labels=labels if 'labels' in config and config.labels else None,
    token_labels=token_labels if tags else None,
    spans=spans if answers or 'span' in tags else None,
    outputs=lambda variables, batch, every: _outputs(apply(variables, batch, every), 'BTD', every),
  )


def _electra(model: Any, config: Any, special: Mapping[str, int | None]) -> dict[str, Any]:
  """The generator scores words; the discriminator judges tokens and gives the outputs."""
  del special

  def words(variables, batch):
    scores = model.apply(variables, batch, None, method=model.generate)
    return _at(scores, batch) if config.generator == 'two_tower' else scores

  def outputs(variables, batch, every):
    out = model.apply(variables, batch, None, every, method=model.discriminate)
    return _outputs(out, 'BTD', every)

  judge = lambda variables, batch: model.apply(variables, batch, None, method=model.discriminate)[
    'rtd_BT'
  ]
  return dict(words=None if config.generator == 'uniform' else words, judge=judge, outputs=outputs)


def _stream(model: Any, config: Any, special: Mapping[str, int | None]) -> dict[str, Any]:
  """Transformer-XL: the end of the line before stands in front of the text."""
  del config
  apply = lambda variables, batch, hidden: model.apply(variables, batch, (), None, hidden)
  begin = next((i for role in ('eos', 'sep', 'cls') if (i := special.get(role)) is not None), None)
  return dict(
    words=lambda variables, batch: _at(apply(variables, batch, False)['word'], batch),
    causal=True,
    outputs=lambda variables, batch, every: _outputs(apply(variables, batch, every), 'BTD', every),
    frame=Frame(() if begin is None else (begin,)),
  )


def _xlnet(model: Any, config: Any, special: Mapping[str, int | None]) -> dict[str, Any]:
  """The query stream asks what stands at the slots, which nobody else sees; the content stream
  alone gives the outputs."""

  def words(variables, batch):
    length = batch['token_BT'].shape[1]
    slot_BPT = batch['target_pos_BP'][..., None] == jnp.arange(length)[None, None]
    hidden_BT = jnp.any(slot_BPT & (batch['weight_BP'][..., None] > 0), 1)
    orders = dict(order_q_BT=jnp.ones_like(batch['token_BT']), order_k_BT=2 * hidden_BT)
    return model.apply(variables, dict(batch, **orders))['word']

  def outputs(variables, batch, every):
    content = {k: v for k, v in batch.items() if not k.endswith('_BP')}
    return _outputs(model.apply(variables, content, (), None, every), 'BXD', every)

  return dict(words=words if config.words else None, outputs=outputs, frame=_xlnet_frame(special))


def _labelled_xlnet(model: Any, config: Any, special: Mapping[str, int | None]) -> dict[str, Any]:
  """XLNet as it is fine-tuned: the content stream alone."""
  return dict(_target(model, config, special), frame=_xlnet_frame(special))


def _xlnet_frame(special: Mapping[str, int | None]) -> Frame:
  """text [SEP] [CLS]."""
  after = tuple(i for role in ('sep', 'cls') if (i := special[role]) is not None)
  return Frame((), after, last_type=2, stands_last=True)


def _outputs(out: Mapping[str, Array], axes: str, every: bool) -> Any:
  last = out['last_BTD']
  return (last, out[f'hidden_L{axes}'], out[f'embedded_{axes}']) if every else last


def _at(scores: Any, batch: Batch) -> Any:
  """Scores of every token, at the slots."""
  if isinstance(scores, AdaptiveScores):
    tails = tuple(_at(tail, batch) for tail in scores.tails)
    return scores._replace(head=_at(scores.head, batch), tails=tails)
  return scores._replace(hidden_BPE=gather_positions(scores.hidden_BPE, batch['target_pos_BP']))


def shapes(net: Net) -> Any:
  """The variables of a net, as partitioning boxes of shapes."""
  batch = {
    f'{name}_{axes}': jax.ShapeDtypeStruct((1, 8), jnp.int32)
    for name, axes in [
      *((name, 'BT') for name in ('token', 'example', 'type', 'position', *net.tables)),
      *((name, 'BP') for name in ('target_pos', 'target', *SPAN)),
      ('first', 'BG'),
    ]
  }
  batch['weight_BP'] = jax.ShapeDtypeStruct((1, 8), jnp.float32)
  return jax.eval_shape(net.init, jax.random.key(0), batch)


def layer_number(net: Net, layer: int) -> int:
  """The number of a layer, from 0 to the number of layers.

  Raises:
    UserError: there is none.
  """
  if not isinstance(layer, int) or not -net.layers - 1 <= layer <= net.layers:
    raise UserError(
      f'the model has {net.layers} layers: expected layer from 0, what enters the first, to '
      f'{net.layers}, or from -1, the last, to {-net.layers - 1}; got {layer}'
    )
  return layer if layer >= 0 else net.layers + 1 + layer


def vectors(net: Net, pool: Pool, layer: int, variables: Variables, batch: Batch) -> Array:
  """The vectors of each row, float32 [B, D], or with 'none' of its tokens [B, T, D].

  Args:
    net: the model.
    pool: how.
    layer: see `layer_number`.
    variables: of the model.
    batch: of texts.
  """
  if layer == net.layers:
    x_BTD = net.outputs(variables, batch, False)
  else:
    _, x_LBTD, embedded_BTD = net.outputs(variables, batch, True)
    x_BTD = x_LBTD[layer - 1] if layer else embedded_BTD
  x_BTD = x_BTD.astype(jnp.float32)
  if pool == 'none':
    return x_BTD
  if pool == 'first':
    return gather_positions(x_BTD, batch['first_BG'])[:, 0]
  real_BT = (batch['example_BT'] > 0).astype(jnp.float32)
  return jnp.einsum('BTD,BT->BD', x_BTD, real_BT / jnp.maximum(jnp.sum(real_BT, 1)[:, None], 1))
