"""Long short-term memory (Hochreiter and Schmidhuber 1997): one layer as one scan over its columns.

The products with the inputs do not depend on the state, so they are made before the scan as one
product; each step then has one product with the state, and one more where it is projected (Sak et
al. 2014, ELMo). Within the scan rows are the last axis: the CPU's product of a kernel with a few
columns takes less than half the time of a few rows with a kernel. Kernels are dropped once a
forward pass for all rows and steps (DropConnect: Merity et al. 2017). The cell is float32 whatever
the dtype of the products.
"""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.dropout import Noise
from bertjax.models.layers.basic import Init, param
from bertjax.types import Array

GATES = ('input', 'new', 'forget', 'output')  # in the order of axis G of kernels and biases


class State(NamedTuple):
  """The state of a layer between two columns."""

  cell_BC: Array  # float32
  hidden_BP: Array  # the layer's last output


class Turned(NamedTuple):
  """A `State` within the scan."""

  cell_CB: Array
  hidden_PB: Array


class Rules(NamedTuple):
  """The fields of `LSTM` that its columns are read by."""

  forget_bias: float
  cell_clip: float
  projection_clip: float


class Weights(NamedTuple):
  """The kernels that every column is multiplied by."""

  state_PGC: Array
  project_CP: Array | None  # None: there is no projection


class LSTM(nn.Module):
  """A layer that reads its columns from left to right."""

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
    declare = functools.partial(param, self)
    input_IGC = declare('input', axes, (inputs, 4, self.width), self.initializer)
    state_PGC = declare('state', axes, (out, 4, self.width), self.initializer)
    if noise is not None and self.weight_dropout:
      site = dropout_lib.site((*self.path, 'weight_dropout'))
      state_PGC = dropout_lib.shared_dropout(state_PGC, self.weight_dropout, noise, site)
    x_TBI = jnp.swapaxes(x_BTI, 0, 1).astype(self.dtype)  # less to turn than the gates
    gates_TBGC = jnp.einsum('TBI,IGC->TBGC', x_TBI, input_IGC.astype(self.dtype))
    for name in ('bias', 'state_bias')[: self.biases]:
      bias_GC = declare(name, (None, 'ffn'), (4, self.width), self.bias_initializer)
      gates_TBGC = gates_TBGC + bias_GC.astype(self.dtype)[None, None]
    project_CP = None
    if self.projection:
      shape = (self.width, self.projection)
      project_CP = declare('projection', ('ffn', 'embed'), shape, self.initializer)
      project_CP = project_CP.astype(self.dtype)
    rules = Rules(self.forget_bias, self.cell_clip, self.projection_clip)
    weights = Weights(state_PGC.astype(self.dtype), project_CP)
    run = lambda state, columns_T: columns(rules, weights, state, *columns_T)
    if real_BT is None:
      real_BT = jnp.ones(x_BTI.shape[:2], bool)
    state = State(state.cell_BC.astype(jnp.float32), state.hidden_BP.astype(self.dtype))
    columns_T = gates_TBGC, real_BT.astype(bool).T
    state, hidden_TBP = scan(run, state, columns_T, self.segment)
    return jnp.swapaxes(hidden_TBP, 0, 1), state

  @nn.nowrap
  def first(self, rows: int) -> State:
    """Returns the state before anything is read: zeros."""
    out = self.projection or self.width
    return State(jnp.zeros((rows, self.width)), jnp.zeros((rows, out), self.dtype))


def activated(rules: Rules, cell_CB: Array, gates_GCB: Array) -> tuple[Array, Array]:
  """Returns the new cell, float32, and what it gives, of gates in the order of GATES."""
  take, new, forget, give = gates_GCB.astype(jnp.float32)
  cell_CB = jax.nn.sigmoid(forget + rules.forget_bias) * cell_CB
  cell_CB = clipped(cell_CB + jax.nn.sigmoid(take) * jnp.tanh(new), rules.cell_clip)
  return cell_CB, (jax.nn.sigmoid(give) * jnp.tanh(cell_CB)).astype(gates_GCB.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def columns(
  rules: Rules, weights: Weights, state: State, gates_TBGC: Array, real_TB: Array
) -> tuple[State, Array]:
  """Reads columns, whose gates have what inputs and biases give: the state after them and
  hidden_TBP. The gradient of the weights is one product over all columns: one a column would read
  and write all of a kernel for each."""
  return _forward(rules, weights, state, gates_TBGC, real_TB)[0]


def _forward(rules: Rules, weights: Weights, state: State, gates_TBGC: Array, real_TB: Array):
  state_GCP = jnp.moveaxis(weights.state_PGC, 0, 2)  # once, not in every column

  def step(state: Turned, column: tuple[Array, Array]) -> tuple[Turned, Any]:
    gates_BGC, real_B = column
    product_GCB = jnp.einsum('GCP,PB->GCB', state_GCP, state.hidden_PB)
    gates_GCB = jnp.moveaxis(gates_BGC, 0, 2) + product_GCB
    cell_CB, hidden_PB = activated(rules, state.cell_CB, gates_GCB)
    if weights.project_CP is not None:
      hidden_PB = clipped(weights.project_CP.T @ hidden_PB, rules.projection_clip)
    both = zip(Turned(cell_CB, hidden_PB), state, strict=True)
    new = Turned(*(jnp.where(real_B[None], a, b) for a, b in both))
    return new, (new.hidden_PB.T, (state, gates_GCB))

  last, (hidden_TBP, kept) = jax.lax.scan(
    step, Turned(*(x.T for x in state)), (gates_TBGC, real_TB)
  )
  return (State(*(x.T for x in last)), hidden_TBP), (weights, kept, real_TB)


def _backward(rules: Rules, found: Any, gradient: tuple[State, Array]) -> Any:
  weights, (state_T, gates_TGCB), real_TB = found
  # One product a gate: XLA's CPU backend would turn the kernel of all in every column.
  state_PC = [weights.state_PGC[:, gate] for gate in range(4)]

  def step(later: Turned, column: Any) -> tuple[Turned, Any]:
    state, gates_GCB, real_B, hidden_BP = column
    later = later._replace(hidden_PB=later.hidden_PB + hidden_BP.T)
    own = Turned(*(jnp.where(real_B[None], x, 0) for x in later))
    (_, given_CB), back = jax.vjp(functools.partial(activated, rules), state.cell_CB, gates_GCB)
    given, product_PB = own.hidden_PB, None
    if weights.project_CP is not None:
      clip = lambda x_PB: clipped(x_PB, rules.projection_clip)
      (product_PB,) = jax.vjp(clip, weights.project_CP.T @ given_CB)[1](own.hidden_PB)
      given = weights.project_CP @ product_PB
    cell_CB, gates_GCB = back((own.cell_CB, given))
    products = (state_PC[gate] @ gates_GCB[gate] for gate in range(4))
    before = Turned(cell_CB, functools.reduce(jnp.add, products))
    both = zip(before, later, strict=True)
    passed = Turned(*(jnp.where(real_B[None], a, b) for a, b in both))
    return passed, (jnp.moveaxis(gates_GCB, 2, 0), given_CB, product_PB)

  last, hidden_TBP = gradient
  first, (wanted_TBGC, given_TCB, product_TPB) = jax.lax.scan(
    step, Turned(*(x.T for x in last)), (state_T, gates_TGCB, real_TB, hidden_TBP), reverse=True
  )
  state_PGC = jnp.einsum('TPB,TBGC->PGC', state_T.hidden_PB, wanted_TBGC)
  project_CP = None
  if weights.project_CP is not None:
    project_CP = jnp.einsum('TCB,TPB->CP', given_TCB, product_TPB)
  return Weights(state_PGC, project_CP), State(*(x.T for x in first)), wanted_TBGC, None


columns.defvjp(_forward, _backward)


def clipped(x: Array, most: float) -> Array:
  """Returns x within -most..most; 0: as it is."""
  return jnp.clip(x, -most, most) if most else x


def scan(run: Any, state: Any, columns_T: Any, segment: int) -> tuple[Any, Array]:
  """Runs (state, columns) -> (state, output) over axis 0 of some arrays. Between two states that
  are kept lie `segment` columns, which are computed again for the gradient."""
  length = len(jax.tree.leaves(columns_T)[0])
  if not segment or segment >= length:
    return run(state, columns_T)
  whole = length - length % segment
  part = lambda leaf: leaf[:whole].reshape(-1, segment, *leaf.shape[1:])
  inner = jax.checkpoint(run, prevent_cse=False)
  state, output = jax.lax.scan(inner, state, jax.tree.map(part, columns_T))
  output_T = output.reshape(-1, *output.shape[2:])
  if whole < length:
    state, odd_T = run(state, jax.tree.map(lambda leaf: leaf[whole:], columns_T))
    output_T = jnp.concatenate([output_T, odd_T])
  return state, output_T
