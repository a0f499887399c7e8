"""Long short-term memory (Hochreiter and Schmidhuber 1997): one layer as one scan over its columns.

The products with the inputs do not depend on the state, so they are made before the scan as one
product; each step then has one product with the state, and one more where it is projected (Sak et
al. 2014, ELMo). Kernels are dropped once a forward pass for all rows and steps (DropConnect:
Merity et al. 2017). The cell is float32 whatever the dtype of the products.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Init, param
from bertjax.types import Batch

Array = jax.Array

GATES = ('input', 'new', 'forget', 'output')  # in the order of axis G of kernels and biases


class State(NamedTuple):
  """The state of a layer between two columns."""

  cell_BC: Array  # float32
  hidden_BP: Array  # the layer's last output


class LSTM(nn.Module):
  """A layer that reads its columns from left to right, or from right to left."""

  width: int  # C, of the cell
  # initializer, bias_initializer: of kernels and biases
  initializer: Init
  bias_initializer: Init = jax.nn.initializers.zeros
  projection: int = 0  # P, of the output; 0: it is the cell's own, P = C
  # cell_clip, projection_clip: largest absolute values of the cell, before its tanh, and of the
  # projected output (ELMo: 3); 0: none
  cell_clip: float = 0.0
  projection_clip: float = 0.0
  forget_bias: float = 0.0  # added to the forget gate (TensorFlow's cell: 1)
  biases: int = 1  # 1; or 2, whose sum is the bias (torch)
  weight_dropout: float = 0.0  # of the kernel of the state, once a forward pass
  backward: bool = False  # whether it reads from right to left
  # columns whose gates the backward pass makes again together; 0: all gates are kept
  segment: int = 0
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(
    self, x_BTI: Array, state: State, real_BT: Array | None = None, noise: Noise | None = None
  ) -> tuple[Array, State]:
    """Returns the output of every column, and the state after the last one. Columns that are not
    real, None: all are, change no state; noise is of the dropout."""
    inputs, out = x_BTI.shape[-1], self.projection or self.width
    axes = ('embed', None, 'ffn')
    declare = lambda name, axes, shape, init: param(self, name, axes, shape, init)
    input_IGC = declare('input', axes, (inputs, 4, self.width), self.initializer)
    state_PGC = declare('state', axes, (out, 4, self.width), self.initializer)
    if noise is not None and self.weight_dropout:
      alone = noise._replace(row_B=jnp.zeros(1, jnp.uint32))
      site = dropout_lib.site((*self.path, 'weight_dropout'))
      state_PGC = dropout_lib.dropout(state_PGC[None], self.weight_dropout, alone, site)[0]
    gates_BTGC = jnp.einsum('BTI,IGC->BTGC', x_BTI.astype(self.dtype), input_IGC.astype(self.dtype))
    for name in ('bias', 'state_bias')[: self.biases]:
      bias_GC = declare(name, (None, 'ffn'), (4, self.width), self.bias_initializer)
      gates_BTGC = gates_BTGC + bias_GC.astype(self.dtype)[None, None]
    project_CP = None
    if self.projection:
      shape = (self.width, self.projection)
      project_CP = declare('projection', ('ffn', 'embed'), shape, self.initializer)
      project_CP = project_CP.astype(self.dtype)
    clips, state_PGC = (self.cell_clip, self.projection_clip), state_PGC.astype(self.dtype)

    def step(state: State, column) -> tuple[State, Array]:
      gates_BGC, real_B = column
      new = cell(
        state, gates_BGC, state_PGC.astype(self.dtype), project_CP, self.forget_bias, clips
      )
      new = State(*(jnp.where(real_B[:, None], a, b) for a, b in zip(new, state, strict=True)))
      return new, new.hidden_BP

    if real_BT is None:
      real_BT = jnp.ones(x_BTI.shape[:2], bool)
    state = State(state.cell_BC.astype(jnp.float32), state.hidden_BP.astype(self.dtype))
    return scan(step, state, (gates_BTGC, real_BT.astype(bool)), self.backward, self.segment)

  @nn.nowrap
  def first(self, rows: int) -> State:
    """Returns the state before anything is read: zeros."""
    out = self.projection or self.width
    return State(jnp.zeros((rows, self.width)), jnp.zeros((rows, out), self.dtype))


def cell(
  state: State,
  gates_BGC: Array,
  state_PGC: Array,
  project_CP: Array | None,
  forget_bias: float = 0.0,
  clips: tuple[float, float] = (0.0, 0.0),
) -> State:
  """Reads a column: gates_BGC is what the input and the biases give to the gates, in the order of
  GATES; clips, see `LSTM`, are of the cell and of the projection, None: there is no projection."""
  product_BGC = jnp.einsum('BP,PGC->BGC', state.hidden_BP, state_PGC)
  gates_BGC = (gates_BGC + product_BGC).astype(jnp.float32)
  take, new, forget, give = (gates_BGC[:, gate] for gate in range(4))
  cell_BC = jax.nn.sigmoid(forget + forget_bias) * state.cell_BC
  cell_BC = clipped(cell_BC + jax.nn.sigmoid(take) * jnp.tanh(new), clips[0])
  hidden_BP = (jax.nn.sigmoid(give) * jnp.tanh(cell_BC)).astype(state.hidden_BP.dtype)
  if project_CP is not None:
    hidden_BP = clipped(hidden_BP @ project_CP, clips[1])
  return State(cell_BC, hidden_BP)


def one_text(batch: Batch, model: str) -> Array:
  """Returns the weights of the one text of each row, [B]. Raises UserError if rows have several,
  whose states would go on from one to the next; `model` is named."""
  weight_BG = batch['example_weight_BG']
  if weight_BG.shape[1] > 1:
    raise UserError(
      f'config.model.name={model!r} reads one text a row, got {weight_BG.shape[1]}: expected '
      "config.data.task.name='classify' or 'tags'"
    )
  return weight_BG[:, 0]


def clipped(x: Array, most: float) -> Array:
  """Returns x within -most..most; 0: as it is."""
  return jnp.clip(x, -most, most) if most else x


def scan(step: Any, state: Any, columns_BT: Any, backward: bool, segment: int) -> tuple[Array, Any]:
  """Scans over axis 1 of some arrays with (state, a column of each) -> (state, output_B). Returns
  output_BT, and the state at the end. Between two states that are kept lie `segment` columns, which
  are computed again for the gradient."""
  columns_TB = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), columns_BT)
  length = len(jax.tree.leaves(columns_TB)[0])
  run = lambda state, columns: jax.lax.scan(step, state, columns, reverse=backward)
  if not segment or segment >= length:
    state, output_TB = run(state, columns_TB)
    return jnp.moveaxis(output_TB, 0, 1), state
  rest = length % segment
  cut = lambda x, first, last: jax.tree.map(lambda leaf: leaf[first:last], x)
  parts = lambda x: jax.tree.map(lambda leaf: leaf.reshape(-1, segment, *leaf.shape[1:]), x)
  whole = parts(cut(columns_TB, rest if backward else 0, length if backward else length - rest))
  odd = cut(columns_TB, 0 if backward else length - rest, rest if backward else length)
  inner = jax.checkpoint(run, prevent_cse=False)
  state, output = jax.lax.scan(inner, state, whole, reverse=backward)
  output_TB = output.reshape(-1, *output.shape[2:])
  if rest:
    state, odd_TB = run(state, odd)
    both = (odd_TB, output_TB) if backward else (output_TB, odd_TB)
    output_TB = jnp.concatenate(both)
  return jnp.moveaxis(output_TB, 0, 1), state
