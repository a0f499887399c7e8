"""The small pieces every model is made of: parameters with axes, dense, norm, dropout."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bertjax.errors import UserError
from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels import target
from bertjax.kernels.dropout import Noise
from bertjax.types import Array

Init = Callable[..., Any]
METADATA = ('name', 'family', 'size')  # keys of `config.model` that are none of the module's fields

# The names of ACTIVATIONS, norms and INITS, and the dtypes to compute in, as types of
# `config.model`.
Activation = Literal['gelu_tanh', 'gelu_erf', 'relu', 'silu']
NormKind = Literal['layer_norm', 'rms_norm']
Initializer = Literal['truncated_normal', 'normal', 'torch']
Dtype = Literal['float32', 'bfloat16']


def _gelu_tanh_share(x: Array) -> tuple[Array, Array]:
  """Returns the share of x that GELU passes on, by tanh, and its derivative."""
  inner, slope = 0.7978845608 * (x + 0.044715 * x**3), 0.7978845608 * (1 + 0.134145 * x**2)
  share = 1 / (1 + jnp.exp(-2 * inner))
  return share, share * (1 - share) * 2 * slope


def _gelu_erf_share(x: Array) -> tuple[Array, Array]:
  """Returns the share of x that GELU passes on, the normal distribution, and its density."""
  return (1 + jax.lax.erf(x / math.sqrt(2))) / 2, jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _gelu(approximate: bool) -> Callable[[Array], Array]:
  """GELU (Hendrycks and Gimpel 2016), in bfloat16 computed in float32 within one pass.

  The derivative keeps x alone and is written in terms that the forward pass does not compute, so
  that XLA fuses each into its neighbours rather than keep a common term in memory: 1.4 times fewer
  bytes for the feed-forward network of a layer on a GPU. Float32 has autodiff's derivative."""
  plain = functools.partial(jax.nn.gelu, approximate=approximate)
  share = _gelu_tanh_share if approximate else _gelu_erf_share

  @jax.custom_vjp
  def narrow(x: Array) -> Array:
    return plain(x.astype(jnp.float32)).astype(x.dtype)

  def backward(x: Array, dy: Array) -> tuple[Array]:
    wide = x.astype(jnp.float32)
    passed, slope = share(wide)
    return ((dy.astype(jnp.float32) * (passed + wide * slope)).astype(x.dtype),)

  narrow.defvjp(lambda x: (narrow(x), x), backward)
  return lambda x: plain(x) if x.dtype == jnp.float32 else narrow(x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
  'gelu_tanh': _gelu(True),  # original BERT, ALBERT
  'gelu_erf': _gelu(False),  # RoBERTa, ELECTRA, transformers
  'relu': jax.nn.relu,
  'silu': jax.nn.silu,  # of SwiGLU
}


@dataclasses.dataclass(frozen=True)
class TorchInit:
  """Tables normal with this std; kernels and biases uniform within 1/sqrt(inputs), as torch's
  Linear has them."""

  std: float

  def __call__(self, key: Array, shape: Sequence[int], dtype: Any) -> Array:
    return jax.nn.initializers.normal(self.std)(key, shape, dtype)


@dataclasses.dataclass(frozen=True)
class FanIn:
  """Kernels with a variance of gain^2 / inputs, of normal draws cut at 2 sigma (t5x)."""

  gain: float = 1.0

  def __call__(self, key: Array, shape: Sequence[int], dtype: Any) -> Array:
    return jax.nn.initializers.normal(self.gain)(key, shape, dtype)


def uniform(limit: float) -> Init:
  """Returns the initializer that draws uniformly from -limit to limit."""
  return lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, -limit, limit)


def zeroed(init: Init, row: int | None) -> Init:
  """Returns the initializer of a table whose `row` starts at zero; None: no row does."""

  def table(key: Array, shape: Sequence[int], dtype: Any) -> Array:
    drawn_VE = init(key, shape, dtype)
    return drawn_VE if row is None else drawn_VE.at[row].set(0)

  return table


def affine_inits(initializer: Init, inputs: int) -> tuple[Init, Init]:
  """Returns the initializers of the kernel and the bias of an affine map of that many inputs."""
  if isinstance(initializer, FanIn):
    std = initializer.gain / math.sqrt(inputs) / 0.87962566103423978  # what the cut takes
    return jax.nn.initializers.truncated_normal(std), jax.nn.initializers.zeros
  if not isinstance(initializer, TorchInit):
    return initializer, jax.nn.initializers.zeros
  init = uniform(1 / math.sqrt(inputs))
  return init, init


INITS: dict[str, Callable[[float], Init]] = {
  # Cut at 2 sigma and not compensated (empirical std 0.88 of the argument), as in the TensorFlow
  # original.
  'truncated_normal': jax.nn.initializers.truncated_normal,
  'normal': jax.nn.initializers.normal,  # fairseq and transformers
  'torch': TorchInit,  # XLM
}


def param(module: nn.Module, name: str, axes: Sequence[str | None], shape, init: Init) -> Array:
  """Declares a float32 parameter with its logical axes: the one place where parameters are born."""
  if module.has_variable('params', name):  # flax traces `init` again to compare the shapes
    init = jax.nn.initializers.zeros
  boxed: Any = nn.with_logical_partitioning(init, tuple(axes))
  return module.param(name, boxed, shape, jnp.float32)


class Dense(nn.Module):
  """Affine map of the last `inputs` axes of x onto `shape`, e.g. (N, H) for queries, computed as
  one 2-D matrix product in `dtype`; `axes` are the logical names of (input axes..., output
  axes...)."""

  shape: tuple[int, ...]
  axes: tuple[str, ...]
  initializer: Init
  inputs: int = 1
  dtype: Any = jnp.float32
  bias: bool = True

  @nn.compact
  def __call__(self, x: Array) -> Array:
    contracted = x.shape[x.ndim - self.inputs :]
    rows = math.prod(contracted)
    kernel_init, bias_init = affine_inits(self.initializer, rows)
    kernel = param(self, 'kernel', self.axes, contracted + self.shape, kernel_init)
    batch = x.shape[: x.ndim - self.inputs]
    x_2d = x.astype(self.dtype).reshape(-1, rows)
    kernel_2d = kernel.astype(self.dtype).reshape(rows, -1)
    if target.platform() == 'tpu':
      # Else the kernel's gradient is computed in the kernel's shape, for which that compiler turns
      # what it multiplies, arrays of all tokens.
      kernel_2d = jax.lax.optimization_barrier(kernel_2d)
    y_2d = x_2d @ kernel_2d
    if self.bias:
      bias = param(self, 'bias', self.axes[self.inputs :], self.shape, bias_init)
      y_2d = y_2d + bias.astype(self.dtype).reshape(1, -1)
    return checkpoint_name(y_2d, 'product').reshape(batch + self.shape)


class Norm(nn.Module):
  """Normalisation over the last axis, statistics in float32."""

  eps: float
  dtype: Any = jnp.float32
  scale_std: float = 0.0  # the scale starts at normal draws around 1 (Transformer-XL)
  # 'layer_norm' (Ba et al. 2016); 'rms_norm' takes no mean off (Zhang and Sennrich 2019).
  kind: NormKind = 'layer_norm'
  bias: bool = True

  @nn.compact
  def __call__(self, x: Array) -> Array:
    shape, ones = (x.shape[-1],), (1,) * (x.ndim - 1)
    scale_init = jax.nn.initializers.ones
    if std := self.scale_std:
      scale_init = lambda key, shape, dtype: 1 + std * jax.random.normal(key, shape, dtype)
    scale = param(self, 'scale', ('norm',), shape, scale_init)
    x = x.astype(jnp.float32)
    if self.kind == 'layer_norm':
      x = x - jnp.mean(x, -1, keepdims=True)
    normed = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + self.eps)
    normed = normed * scale.reshape(ones + shape)
    if self.bias:
      bias = param(self, 'bias', ('norm',), shape, jax.nn.initializers.zeros)
      normed = normed + bias.reshape(ones + shape)
    return normed.astype(self.dtype)


class Dropout(nn.Module):
  """Counter-hash dropout whose site is the module's path and the scanned layer's index."""

  rate: float
  shared: bool = False  # x is a table that all rows share

  @nn.compact
  def __call__(self, x: Array, noise: Noise | None, layer: Array | int = 0) -> Array:
    drop = dropout_lib.shared_dropout if self.shared else dropout_lib.dropout
    return drop(x, self.rate, noise, dropout_lib.site(self.path, layer))


def options_of(model: type[nn.Module]) -> type:
  """Returns a model's own fields as a class: `Factory.options` of a model whose fields are
  `config.model`. A flax module has the fields `parent` and `name` besides, which no config sets."""
  named = dict(__doc__=model.__doc__, module=model)  # which says what each means
  fields = [(f.name, f.type, dataclasses.field(default=f.default)) for f in _own_fields(model)]
  return dataclasses.make_dataclass(model.__name__, fields, namespace=named, kw_only=True)


def given_fields(model: type[nn.Module], config: Any) -> dict[str, Any]:
  """Returns a model's fields from its `config.model`, with the defaults of those that it leaves
  out. Raises UserError: heads without a size of their own that do not divide the width."""
  given = {k: v for k, v in dict(config).items() if k not in METADATA}
  defaults = {f.name: f.default for f in _own_fields(model) if f.default is not dataclasses.MISSING}
  fields = defaults | given
  width, heads = fields.get('width', 0), fields.get('heads', 1)
  if width % heads and 'head_size' not in fields:
    raise UserError(f'model.width must be a multiple of model.heads, got {width} and {heads}')
  return fields


def _own_fields(model: type[nn.Module]) -> list[dataclasses.Field]:
  return [field for field in dataclasses.fields(model) if field.name not in ('parent', 'name')]


def padded_rows(size: int) -> int:
  """Rows of a table of `size` ids: the next multiple of 128, which meshes and TPU tiles divide."""
  return -(-size // 128) * 128


def word_table(module: nn.Module, name: str, size: int, width: int, init: Init) -> Array:
  """Declares the table of `size` ids, float32 [padded_rows(size), width]. The rows that pad it
  start at zero and stay there, since nothing reads them and no probability falls to them: a norm
  over the table, as of LAMB's trust ratio, is that of the vocabulary alone."""

  def padded(key, shape, dtype):
    return init(key, shape, dtype).at[size:].set(0)

  return param(module, name, ('vocab', 'embed'), (padded_rows(size), width), padded)


def small_table(
  module: nn.Module, name: str, axis: str, shape: tuple[int, int], init: Init
) -> Array:
  """Declares a table of vectors [X, E] of positions, types or the like. It is gathered before it is
  looked up in: it is smaller than the vectors of a batch."""
  return nn.with_logical_constraint(param(module, name, (axis, 'embed'), shape, init), (None, None))
