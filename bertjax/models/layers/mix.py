"""The layers of a frozen model as one (Peters et al. 2018, equation 1; allenai/bilm-tf,
bilm/elmo.py:weight_layers)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertjax.kernels import mesh
from bertjax.models.layers.basic import param
from bertjax.types import Array


def mixed(module: nn.Module, layers_LBTD: Array) -> Array:
  """Returns the mean of some layers with learned weights, times a learned factor, [B, T, D];
  declares weights and factor in the module that calls it."""
  weight_L = param(module, 'mix', (None,), (len(layers_LBTD),), nn.initializers.zeros)
  factor = param(module, 'factor', (), (), nn.initializers.ones)
  return factor * jnp.einsum('l,lbtd->btd', jax.nn.softmax(weight_L), layers_LBTD)


def normalized(layers_LBTD: Array, real_BT: Array) -> Array:
  """Returns each layer with the mean 0 and the variance 1, taken over the real tokens of the whole
  batch, on all devices: rows know of each other."""
  real_1BT1 = real_BT[None, ..., None]
  size = mesh.over_rows(jnp.sum(real_BT)) * layers_LBTD.shape[-1]
  total = lambda x_LBTD: jnp.sum(x_LBTD * real_1BT1, (1, 2, 3), keepdims=True)
  mean = lambda x_LBTD: mesh.over_rows(total(x_LBTD)) / size
  x_LBTD = layers_LBTD - mean(layers_LBTD)
  return x_LBTD * jax.lax.rsqrt(mean(x_LBTD**2) + 1e-12)
