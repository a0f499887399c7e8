"""Answers to questions on texts, whose end is asked for behind a start, and whether there is one.

  start  a score of each token's state h
  end    a score of each h beside that of a start: in training of the one that people gave, else of
         each of the likeliest, so that every start has ends of its own
  none   a score of [CLS] beside the mean of all h, each weighted by how likely the answer starts
         there

Only tokens of the text and [CLS], which stands for no answer, are a start or an end. XLNet's form
(zihangdai/xlnet, function_builder.py:get_qa_outputs) is ALBERT's for SQuAD 2.0, too (google-
research/albert, squad_utils.py:create_v2_model); ELECTRA's is in google-research/electra,
finetune/qa/qa_tasks.py:get_prediction_module. What the originals lay side by side before a dense
layer goes through the two halves of its kernel here, so that a start is projected once and not
again beside each end.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError, choose
from bertjax.kernels.dropout import Noise
from bertjax.models.layers import flops as flops_lib
from bertjax.models.layers.basic import ACTIVATIONS, Dense, Dropout, Init, Norm, affine_inits, param
from bertjax.models.layers.heads import gather_positions
from bertjax.types import Array, Batch, Beam

Answers = Literal['none', 'xlnet', 'electra']  # config.model.answers

NEVER = -1e30  # the logit of what is no start and no end; finite, as that of XLNet


class Form(NamedTuple):
  """The differences between the answer heads of the originals."""

  # width, activation: of the dense layers; width 0 is that of the encoder
  width: int
  activation: Callable[[Array], Array]
  norm: bool  # the states of ends are normalised before they are scored
  bias: bool  # the last layer of `none` has a bias
  initializer: Init | None  # of the kernels; None: that of the encoder
  last_separator: bool  # the [SEP] behind the text may be a start or an end
  # a window without the answer learns `none`; else a question without an answer does
  by_window: bool
  beam: int  # number of starts, and of ends of each, that are kept outside of training


FORMS = dict(
  xlnet=Form(
    width=0, activation=jnp.tanh, norm=True, bias=False, initializer=None, last_separator=False,
    by_window=True, beam=5,
  ),
  electra=Form(
    width=512, activation=ACTIVATIONS['gelu_erf'], norm=False, bias=True,
    initializer=jax.nn.initializers.glorot_uniform(), last_separator=True, by_window=False, beam=20,
  ),
)  # fmt: skip


class Given(NamedTuple):
  """The scores in training, float32: that the answer starts at a token, that it ends there if it
  starts where it does, and as log-odds that there is none."""

  start_BT: Array
  end_BT: Array
  none_B: Array


class Beside(nn.Module):
  """An affine map of two vectors side by side, of which one is beside many of the other; the first
  rows of its kernel are those of x."""

  width: int
  initializer: Init
  dtype: Any

  @nn.compact
  def __call__(self, x: Array, y: Array) -> Array:
    """x and y have the same number of axes, whose sizes are the same or 1, and D last."""
    rows = x.shape[-1]
    kernel_init, bias_init = affine_inits(self.initializer, 2 * rows)
    shape = (2 * rows, self.width)
    kernel = param(self, 'kernel', ('embed', 'embed_out'), shape, kernel_init).astype(self.dtype)
    bias = param(self, 'bias', ('embed_out',), (self.width,), bias_init).astype(self.dtype)
    bias = bias.reshape((1,) * (x.ndim - 1) + (self.width,))
    return x.astype(self.dtype) @ kernel[:rows] + y.astype(self.dtype) @ kernel[rows:] + bias


class AnswerHead(nn.Module):
  """The head of `config.model.answers`, a name of FORMS."""

  form: str
  text_type: int  # segment of the text; the question is in another
  norm_eps: float
  initializer: Init
  dropout: float  # rate of that before the last layer of `none`
  dtype: Any

  @nn.compact
  def __call__(self, x_BTD: Array, batch: Batch, noise: Noise | None) -> Given | Beam:
    """Scores the answers of rows with one question each: `Given` where the batch has span_start,
    else the `Beam`. Reads type, example and first, which is where [CLS] stands, and in training
    span_start."""
    form = FORMS[self.form]
    init = form.initializer or self.initializer
    one = lambda name, bias=True: Dense((1,), ('embed', 'label'), init, bias=bias, name=name)
    beside = lambda name: Beside(form.width or x_BTD.shape[-1], init, self.dtype, name=name)
    allowed_BT = self._allowed(batch, form.last_separator)

    start_BT = _masked(one('start')(x_BTD), allowed_BT)
    given = 'span_start_BG' in batch
    log_p_BT = jax.nn.log_softmax(start_BT)
    top_BK, column_BK = jax.lax.top_k(log_p_BT, min(form.beam, start_BT.shape[1]))
    column_BK = batch['span_start_BG'] if given else column_BK
    start_BK1D = gather_positions(x_BTD, column_BK)[:, :, None]
    h_BKTD = form.activation(beside('end_hidden')(x_BTD[:, None], start_BK1D))
    if form.norm:
      h_BKTD = Norm(self.norm_eps, self.dtype, name='end_norm')(h_BKTD)
    end_BKT = _masked(one('end')(h_BKTD), allowed_BT[:, None])

    mean_BD = jnp.einsum('BT,BTD->BD', jnp.exp(log_p_BT), x_BTD.astype(jnp.float32))
    cls_BD = gather_positions(x_BTD, batch['first_BG'][:, :1])[:, 0]
    h_BD = form.activation(beside('none_hidden')(mean_BD, cls_BD))
    h_BD = Dropout(self.dropout, name='none_dropout')(h_BD, noise)
    none_B = one('none', form.bias)(h_BD)[:, 0]
    if given:
      return Given(start_BT, end_BKT[:, 0], none_B)
    ends_BKK, end_column_BKK = jax.lax.top_k(jax.nn.log_softmax(end_BKT), top_BK.shape[1])
    return Beam(top_BK, column_BK, ends_BKK, end_column_BKK, none_B)

  def _allowed(self, batch: Batch, last_separator: bool) -> Array:
    """Returns the tokens that may be a start or an end, bool [B, T]: the text, with the [SEP]
    behind it if `last_separator`, and [CLS]."""
    text_BT = (batch['type_BT'] == self.text_type) & (batch['example_BT'] > 0)
    if not last_separator:
      text_BT &= jnp.pad(text_BT[:, 1:], ((0, 0), (0, 1)))
    column_1T = jnp.arange(text_BT.shape[1])[None]
    return text_BT | (column_1T == batch['first_BG'][:, :1])


def _masked(score: Array, allowed: Array) -> Array:
  """float32 scores without their last axis, NEVER where they are not allowed."""
  return jnp.where(allowed, score[..., 0], NEVER)


def check(fields: Mapping[str, Any]) -> None:
  """Raises UserError for a form in `config.model` that there is not, and one beside words or
  labels."""
  choose(fields['answers'], get_args(Answers), 'config.model.answers')
  others = {key: fields[key] for key in ('words', 'labels', 'token_labels') if fields[key]}
  if fields['answers'] != 'none' and others:
    raise UserError(
      f'config.model.answers={fields["answers"]!r} is a head of its own: expected words=False, '
      f'labels=() and token_labels=(), got {others}'
    )


def flops(form: str, width: int, batch: Batch) -> float:
  """Returns FLOPs of forward and backward through the head in training; form is
  `config.model.answers`, width the encoder's."""
  if form == 'none':
    return 0.0
  inner = FORMS[form].width or width
  each = flops_lib.head_flops(flops_lib.real(batch), width, width * inner, inner)
  return each + flops_lib.head_flops(flops_lib.examples(batch), 3 * width * inner, inner)
