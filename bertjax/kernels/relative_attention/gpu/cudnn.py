"""Plain attention by cuDNN's flash attention, through `jax.nn.dot_product_attention`.

For rows of one example each, without relative terms and without dropout: what the library's
arguments can say. It is named, never chosen for `impl=None`. What it is given is proven through the
same call's XLA implementation on any machine; docs/gpu.md has its errors and times on a card.

What the library leaves in the places of padding is not part of its contract, so they are cleared
here, in its results and in its gradients. Its backward pass needs sums of its own that no remat
policy can name: where a layer's attention is kept (`remat=light`), the library runs forward twice.
"""

from typing import Any

import jax
import jax.numpy as jnp

from bertjax.kernels.relative_attention.operands import Mask, Operands, Relative
from bertjax.types import Array

LIBRARY: Any = 'cudnn'  # tests run the same call by 'xla', without a GPU


def refusal(x: Operands) -> str | None:
  """Why the library cannot say these operands, or None."""
  types, relative, dropout = {each.dtype.name for each in x[:3]}, x.relative, x.dropout
  if types != {'bfloat16'}:
    return f'expected q, k and v of bfloat16, got {", ".join(sorted(types))}'
  size, card = x.q_BTNH.shape[-1], _card()
  capability = float(card) if card[:1].isdigit() else 0.0
  if card and capability < 8.0:
    return f'expected an NVIDIA GPU of compute capability 8.0 or above, got {card}'
  most = 256 if capability >= 9.0 else 128
  if size % 8 or size > most:
    return f'expected a head size of at most {most} and a multiple of 8, got {size}'
  queries, keys = x.q_BTNH.shape[1], x.k_BSNH.shape[1]
  if queries % 2 or keys % 2:  # as if there were a bias: jax 0.10 asks this of every gradient
    return f'expected even numbers of queries and keys, got {queries} and {keys}'
  if relative is not None and _terms(relative):
    return f'expected no relative terms, got {", ".join(_terms(relative))}'
  if dropout is not None and dropout.rate:
    return f'expected no dropout of the probabilities, got {dropout.rate}'
  return _unsaid(x.mask)


def _unsaid(mask: Mask) -> str | None:
  """Returns why cuDNN cannot express a mask, as 'expected .., got ..'; None: it can."""
  if not mask.whole:
    return 'expected rows of one example each, and a mask that says so (Mask.whole)'
  if mask.order_q_BT is not None:
    return 'expected no orders but a causal one, got order_q_BT'
  if mask.sinks:
    return f'expected a window that hides every key beyond it, got {mask.sinks} sinks'
  if mask.window is not None and not mask.causal:
    return f'expected a window into the past alone (Mask.causal), got {mask.window} to both sides'
  queries, keys = mask.example_q_BT.shape[1], mask.example_k_BS.shape[1]
  if mask.causal and queries != keys:
    return f'expected no memory under a causal mask, got {queries} queries and {keys} keys'
  return None


def _terms(relative: Relative) -> list[str]:
  """Returns the terms of the score that are there, by name."""
  names = ('r_RNH', 'p_RNH', 'bias_NR', 'u_NH', 'w_NH', 'segment')
  return [name for name in names if getattr(relative, name) is not None]


def _card() -> str:
  """The compute capability of the first device, of AMD's a name such as gfx90a; '' of no GPU."""
  device = jax.devices()[0]
  return str(device.compute_capability) if device.platform == 'gpu' else ''


def call(x: Operands) -> Array:
  """Returns the library's call, for operands without `refusal`; by XLA of any one dtype."""
  mask = x.mask
  real_BT, real_BS = mask.example_q_BT > 0, mask.example_k_BS > 0
  queries_B, keys_B = (jnp.sum(x, 1, dtype=jnp.int32) for x in (real_BT, real_BS))
  y_BTNH = jax.nn.dot_product_attention(
    _only(x.q_BTNH, real_BT),
    _only(x.k_BSNH, real_BS),
    _only(x.v_BSNH, real_BS),
    scale=x.scale,
    is_causal=mask.causal,
    # No row is empty to the library: without queries its result is cleared like all padding, and
    # without keys it is that of one key, whose value is 0.
    query_seq_lengths=jnp.maximum(queries_B, 1),
    key_value_seq_lengths=jnp.maximum(keys_B, 1),
    local_window_size=None if mask.window is None else (mask.window - 1, 0),
    implementation=LIBRARY,
  )
  return _only(y_BTNH, real_BT)


def _only(x_BLNH: Array, real_BL: Array) -> Array:
  """Zeros in place of padding, there and in the gradient, whatever these hold."""
  return jnp.where(real_BL[:, :, None, None], x_BLNH, jnp.zeros((), x_BLNH.dtype))


def attend(x: Operands) -> Array:
  """See `relative_attention`; raises NotImplementedError with `refusal`, and RuntimeError, which is
  jax's, where cuDNN is not installed."""
  reason = refusal(x)
  if reason is not None:
    raise NotImplementedError(f"attention: cuDNN: {reason}; 'gpu' and 'xla' take these")
  return call(x)
