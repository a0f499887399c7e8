"""Interfaces of models, by which an objective runs with any model that has what it asks for.

A model names the contract that it keeps as its base class, so an objective accepts models that
were written after it and refuses all others before anything runs. An objective that is made for one
model alone (`rtd`, `plm`, `span_boundary`, `bilm`) asks for that class.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.field_types import Count, Fraction, Natural, Positive
from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Activation, Dtype
from bertjax.models.layers.encoder import unstacked
from bertjax.models.layers.heads import Head, at_targets, declared
from bertjax.models.layers.memory import Memory, Start
from bertjax.models.layers.remat import Remat
from bertjax.types import Array, Batch, Variables

ROOM = (
  'raise config.model.positions (of Transformer-XL learned_positions, or mem_len with same_length)'
)


class Model(nn.Module):
  """Any model. What differs is said anew by its class, as a constant or a property."""

  room: ClassVar[int | None] = None  # columns of the longest row; None: there is no limit
  # columns of the longest row that classes of other programs compute as it does; None: of any
  alike: ClassVar[int | None] = None
  # whether a mesh may divide the columns of a row: no memory stands before them
  divides_columns: ClassVar[bool] = True
  has_segments: ClassVar[bool] = True  # whether the segments of a row (`type_BT`) are told apart
  causal: ClassVar[bool] = False  # whether a position sees what is before it alone
  # special tokens around a text: [CLS] text [SEP]; text [SEP] [CLS]; the end of the line before it;
  # [CLS] text [SEP], whose last token stands for it
  frame: ClassVar[Literal['cls', 'cls_last', 'begin', 'end']] = 'cls'
  both_orders: ClassVar[bool] = False  # whether a label of two texts sums what both orders give
  # names of ids that it reads as `<name>_BT` beside those of every batch: language, role
  tables: ClassVar[tuple[str, ...]] = ()
  # the heads: THE list that commands, conversion and warm starts read
  output_heads: ClassVar[tuple[Head, ...]] = ()
  # characters of a word, its marks included, that it reads as `character_BTW`; 0: none
  spells: ClassVar[int] = 0
  # whether a row has one text: its states would go on from one to the next
  one_text: ClassVar[bool] = False
  # whether in training the rows of a batch know of each other: it is cut into no microbatches
  batch_statistics: ClassVar[bool] = False
  # whether it returns word, the `Scores` of the next words, beside labels, and has `word_flops`
  scores_next: ClassVar[bool] = False

  @nn.nowrap
  def alone(self) -> 'Model':
    """Returns the model with the same parameters for texts that each stand for themselves."""
    return self

  @nn.nowrap
  def require_room(self, columns: int, what: str, remedy: str = ROOM) -> None:
    """Raises UserError if rows have more columns, which `what` of the config asks for, than the
    model has room for: lower it, or `remedy`."""
    if self.room is not None and columns > self.room:
      raise UserError(
        f'{what} asks for {columns} columns, and the model has room for {self.room}: lower it, or '
        + remedy
      )

  @nn.nowrap
  def flops(self, batch: Batch) -> float:
    """Model FLOPs of a forward and backward pass on a host batch; see `layers/flops.py`."""
    raise NotImplementedError

  @nn.nowrap
  def carry(self, rows: int, start: Start = 'empty') -> Any:
    """Returns the model's own state before its first batch, B first in every leaf: Transformer-XL's
    memory, an LSTM's (c, h) of each layer. (): it has none. `start` is for memories alone."""
    return ()

  @nn.nowrap
  def reset(self, carry: Any, start_B: Array) -> Any:
    """Returns the carry with the rows whose start_B is 1 as they were before the first batch."""

    def leaf(old: Array, first: Array) -> Array:
      return jnp.where(start_B.reshape(-1, *[1] * (old.ndim - 1)) > 0, first, old)

    return jax.tree.map(leaf, carry, self.carry(len(start_B)))

  def read(self, batch: Batch, hidden: bool = True) -> dict[str, Any]:
    """Runs the model on a batch alone, without memory or dropout: for export and use. Returns what
    `__call__` does; with hidden also hidden_LBTD and embedded_BTD."""
    return self(batch, hidden=hidden)

  def word_scores(self, batch: Batch) -> Any:
    """Returns the scores of the vocabulary at the targets of a batch, of a model with that head."""
    return self.read(batch, False)['word']


class Sized(Model, kw_only=True):
  """A model of layers of attention and a feed-forward, whose fields are `config.model`.

  Attributes:
    vocab_size: ids 0..vocab_size-1; tables are padded to a multiple of 128 rows.
    layers, width, heads, ffn: L, D, N, F.
  """

  vocab_size: Natural = 0
  layers: Count
  width: Count
  heads: Count
  ffn: Count
  norm_eps: Positive
  activation: Activation
  dropout: Fraction
  remat: Remat = 'none'
  dtype: Dtype = 'float32'

  @property
  def room(self) -> int | None:
    """Columns of the longest row: the field positions, where there is one."""
    return getattr(self, 'positions', None)


class Remembering(Model):
  """Carries a `Memory`; has the fields mem_len, layers, width and dtype."""

  divides_columns = False

  @nn.nowrap
  def carry(self, rows: int, start: Start = 'empty') -> Memory | tuple[()]:
    """Returns the memory before the first batch; () where mem_len is 0. Zeros are of example 1:
    every row of a stream is one example."""
    if not self.mem_len:
      return ()
    hidden_BLMD = jnp.zeros((rows, self.layers, self.mem_len, self.width), self.dtype)
    return Memory(hidden_BLMD, jnp.full((rows, self.mem_len), int(start == 'zeros'), jnp.int32))

  @nn.nowrap
  def reset(self, carry: Memory | tuple[()], start_B: Array) -> Memory | tuple[()]:
    """Returns the memory without the rows whose text begins anew."""
    if not carry:
      return ()
    return carry._replace(example_BM=jnp.where((start_B == 0)[:, None], carry.example_BM, 0))


class LabelModel(Model):
  """Scores the labels of examples and of tokens: the model of the objectives of fine-tuning."""

  @property
  def output_heads(self) -> tuple[Head, ...]:
    """The heads that its fields ask for; see `heads.declared`."""
    return declared(self)

  def __call__(
    self, batch: Batch, noise: Noise | None = None, hidden: bool = False
  ) -> dict[str, Any]:
    """Runs the model. Returns dict with label_BGC and token_label_BTC, logits by label, {} where it
    has none; answers, what `answers.AnswerHead` gives, where it has one; last_BTD; hidden_LBTD, and
    embedded_BTD, what enters the first layer, if asked; penalties, see `StreamModel`, and updates,
    see `types.Out`, where it has some.

    Args:
      batch: see types.py.
      noise: keys of the dropout; None in evaluation.
      hidden: static; also return every layer's output.
    """
    raise NotImplementedError


class TargetModel(LabelModel):
  """Scores the vocabulary at the targets of a batch, too: the model of `objectives/mlm.py`. With
  `words` the dict also has word, the `Scores` of the vocabulary at the targets."""


class AttendingModel(TargetModel):
  """Tells what its layers attend with, too: the model of `objectives/relations.py`. It has the
  fields layers, width and heads."""

  def projections(self, out: Mapping[str, Any], layers: Sequence[int]) -> dict[str, Array]:
    """Returns query, key and value of some layers, counted from 0: [layers, B, T, N, H] each, from
    what `__call__` returned, with hidden, of the same parameters."""
    raise NotImplementedError

  def attends(self, out: Mapping[str, Any], batch: Batch, layer: int) -> Array:
    """Returns the weights of a layer, float32 [B, N, T, T], from and to; arguments as of
    `projections`."""
    raise NotImplementedError


class StreamModel(Model):
  """Scores the next word at every position of a stream: the model of `objectives/lm.py`."""

  causal, frame = True, 'begin'

  def __call__(
    self, batch: Batch, carry: Any = (), noise: Noise | None = None, hidden: bool = False
  ) -> dict[str, Any]:
    """Runs the model. Returns dict with word, `Scores` or `AdaptiveScores` at every position;
    last_BTD; carry, for the next batch; hidden_LBTD and embedded_BTD if asked; penalties, terms of
    its own that are trained beside the loss, where it has some. Arguments as of `LabelModel`;
    `carry` is what the batch before left, see `Model.carry`; (): this is the first one."""
    raise NotImplementedError

  @nn.nowrap
  def require_forward(self) -> None:
    """Raises UserError if it scores the token before each, and not the one after."""

  def word_scores(self, batch: Batch) -> Any:
    """Returns the scores of the vocabulary at the targets of a batch alone. Raises UserError as
    `require_forward`."""
    self.require_forward()
    return at_targets(self.read(batch, False)['word'], batch)


class WritingModel(Model):
  """Writes a text token by token: the model of `use/generate.py`.

  `start` and `step` read the variables that `for_writing` gives, whose layers stand apart; a model
  that runs its stack as in training returns the variables as they are."""

  @nn.nowrap
  def for_writing(self, variables: Variables) -> Variables:
    """Returns the variables as `start` and `step` read them; layers are held a second time."""
    return unstacked(variables)

  def start(self, batch: Batch, room: int) -> tuple[Array, Any]:
    """Reads what a text begins with, all at once: token_BT and example_BT, 1 where a token is and 0
    for padding. Of a model of one text it is the prompt, padded in front; of one with a second text
    the text that is read, and out_token_BU what the second begins with, in every row as many.
    Returns float32 logits_BV of the next token, -inf where it is no word; and the text so far,
    arrays with the rows first, with room, which is static, for so many tokens."""
    raise NotImplementedError

  def step(self, token_B: Array, text: Any) -> tuple[Array, Any]:
    """Writes a token of each row; returns the logits of the next one, and the text."""
    raise NotImplementedError


class PairModel(WritingModel):
  """Reads a text and scores the words of a second one: the model of `objectives/seq2seq.py`."""

  # whether both texts are [CLS] text [SEP] and the decoder begins with [SEP] (BART); else they are
  # text [SEP], and it begins with the id 0 (T5)
  framed: ClassVar[bool] = False

  def __call__(
    self, batch: Batch, noise: Noise | None = None, hidden: bool = False
  ) -> dict[str, Any]:
    """Runs the model. Returns dict with word, `Scores` at every column of the second text; last_BTD
    and out_last_BUD; hidden_LBTD and out_hidden_LBUD if asked. Arguments as of `LabelModel`; reads
    token, example, out_token and out_example."""
    raise NotImplementedError
