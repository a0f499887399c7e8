"""Long short-term memory (Hochreiter and Schmidhuber 1997): one layer as one scan over its columns.

The products with the inputs do not depend on the state, so they are made before the scan as one
product; each step then has one product with the state, and one more where it is projected (Sak et
al. 2014, ELMo). Kernels are dropped once a forward pass for all rows and steps (DropConnect:
Merity et al. 2017). The cell is float32 whatever the dtype of the products.
"""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels import mesh
from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Init, param
from bertjax.types import Batch

Array = jax.Array

GATES = ('input', 'new', 'forget', 'output')  # in the order of axis G of kernels and biases


class State(NamedTuple):
  """The state of a layer between two columns."""

  cell_BC: Array  # float32
  hidden_BP: Array  # the layer's last output


class Rules(NamedTuple):
  """The fields of `LSTM` that its columns are read by."""

  forget_bias: float
  cell_clip: float
  projection_clip: float
  backward: bool


class Weights(NamedTuple):
  """The kernels that every column is multiplied by."""

  state_PGC: Array
  project_CP: Array | None  # None: there is no projection


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
    rules = Rules(self.forget_bias, self.cell_clip, self.projection_clip, self.backward)
    weights = Weights(state_PGC.astype(self.dtype), project_CP)
    run = lambda state, columns_TB: columns(rules, weights, state, *columns_TB)
    if real_BT is None:
      real_BT = jnp.ones(x_BTI.shape[:2], bool)
    state = State(state.cell_BC.astype(jnp.float32), state.hidden_BP.astype(self.dtype))
    return scan(run, state, (gates_BTGC, real_BT.astype(bool)), self.backward, self.segment)

  @nn.nowrap
  def first(self, rows: int) -> State:
    """Returns the state before anything is read: zeros."""
    out = self.projection or self.width
    return State(jnp.zeros((rows, self.width)), jnp.zeros((rows, out), self.dtype))


def activated(rules: Rules, cell_BC: Array, gates_BGC: Array) -> tuple[Array, Array]:
  """Returns the new cell, float32, and what it gives, of gates in the order of GATES."""
  take, new, forget, give = (gates_BGC[..., gate, :].astype(jnp.float32) for gate in range(4))
  cell_BC = jax.nn.sigmoid(forget + rules.forget_bias) * cell_BC
  cell_BC = clipped(cell_BC + jax.nn.sigmoid(take) * jnp.tanh(new), rules.cell_clip)
  return cell_BC, (jax.nn.sigmoid(give) * jnp.tanh(cell_BC)).astype(gates_BGC.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def columns(
  rules: Rules, weights: Weights, state: State, gates_TBGC: Array, real_TB: Array
) -> tuple[State, Array]:
  """Reads columns, whose gates have what inputs and biases give: the state after them and
  hidden_TBP. The gradient of the weights is one product over all columns: one a column would read
  and write all of a kernel for each."""
  return _forward(rules, weights, state, gates_TBGC, real_TB)[0]


def _forward(rules: Rules, weights: Weights, state: State, gates_TBGC: Array, real_TB: Array):
  product = lambda hidden_BP: jnp.einsum('BP,PGC->BGC', hidden_BP, weights.state_PGC)
  if mesh.ways(['tensor']) == 1:  # in two thirds of the time on CPUs; a mesh may divide C
    state_PK = weights.state_PGC.reshape(len(weights.state_PGC), -1)
    product = lambda hidden_BP: (hidden_BP @ state_PK).reshape(len(hidden_BP), 4, -1)

  def step(state: State, column: tuple[Array, Array]) -> tuple[State, Any]:
    gates_BGC, real_B = column
    gates_BGC = gates_BGC + product(state.hidden_BP)
    cell_BC, hidden_BP = activated(rules, state.cell_BC, gates_BGC)
    if weights.project_CP is not None:
      hidden_BP = clipped(hidden_BP @ weights.project_CP, rules.projection_clip)
    both = zip(State(cell_BC, hidden_BP), state, strict=True)
    new = State(*(jnp.where(real_B[:, None], a, b) for a, b in both))
    return new, (new.hidden_BP, (state, gates_BGC))

  last, (hidden_TBP, kept) = jax.lax.scan(
    step, state, (gates_TBGC, real_TB), reverse=rules.backward
  )
  return (last, hidden_TBP), (weights, kept, real_TB)


def _backward(rules: Rules, found: Any, gradient: tuple[State, Array]) -> Any:
  weights, (state_TB, gates_TBGC), real_TB = found
  # Once: XLA's CPU backend would turn the kernel in every column (2.3 times as long).
  turned_CP = [weights.state_PGC[:, gate].T for gate in range(4)]

  def step(later: State, column: Any) -> tuple[State, Any]:
    state, gates_BGC, real_B, hidden_BP = column
    later = later._replace(hidden_BP=later.hidden_BP + hidden_BP)
    own = State(*(jnp.where(real_B[:, None], x, 0) for x in later))
    (_, given_BC), back = jax.vjp(functools.partial(activated, rules), state.cell_BC, gates_BGC)
    given, product_BP = own.hidden_BP, None
    if weights.project_CP is not None:
      clip = lambda x_BP: clipped(x_BP, rules.projection_clip)
      (product_BP,) = jax.vjp(clip, given_BC @ weights.project_CP)[1](own.hidden_BP)
      given = product_BP @ weights.project_CP.T
    cell_BC, gates_BGC = back((own.cell_BC, given))
    products = (gates_BGC[:, gate] @ turned_CP[gate] for gate in range(4))
    before = State(cell_BC, functools.reduce(jnp.add, products))
    both = zip(before, later, strict=True)
    passed = State(*(jnp.where(real_B[:, None], a, b) for a, b in both))
    return passed, (gates_BGC, given_BC, product_BP)

  last, hidden_TBP = gradient
  first, (wanted_TBGC, given_TBC, product_TBP) = jax.lax.scan(
    step, last, (state_TB, gates_TBGC, real_TB, hidden_TBP), reverse=not rules.backward
  )
  state_PGC = jnp.einsum('TBP,TBGC->PGC', state_TB.hidden_BP, wanted_TBGC)
  project_CP = None
  if weights.project_CP is not None:
    project_CP = jnp.einsum('TBC,TBP->CP', given_TBC, product_TBP)
  return Weights(state_PGC, project_CP), first, wanted_TBGC, None


columns.defvjp(_forward, _backward)


def one_text(batch: Batch, model: str, tasks: str) -> Array:
  """Returns the weights of the one text of each row, [B]. Raises UserError if rows have several,
  whose states would go on from one to the next; `model` is named, and the `tasks` that it has."""
  weight_BG = batch['example_weight_BG']
  if weight_BG.shape[1] > 1:
    raise UserError(
      f'config.model.name={model!r} reads one text a row, got {weight_BG.shape[1]}: expected '
      f'config.data.task.name={tasks}'
    )
  return weight_BG[:, 0]


def clipped(x: Array, most: float) -> Array:
  """Returns x within -most..most; 0: as it is."""
  return jnp.clip(x, -most, most) if most else x


def scan(run: Any, state: Any, columns_BT: Any, backward: bool, segment: int) -> tuple[Array, Any]:
  """Runs (state, columns with T in front) -> (state, output_TB) over axis 1 of some arrays. Returns
  output_BT, and the state at the end. Between two states that are kept lie `segment` columns, which
  are computed again for the gradient."""
  columns_TB = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), columns_BT)
  length = len(jax.tree.leaves(columns_TB)[0])
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
