"""Layer-wise decay of the learning rate: the nearer to the input, the slower.

google-research/electra, model/optimization.py:_get_layer_lrs (Howard and Ruder 2018 call it
discriminative fine-tuning). Of n layers, layer i from 0 on has the rate * decay^(n + 1 - i), what
feeds them decay^(n + 2), and what reads them, the pooler and the heads, the whole of it.
"""

import re
from typing import Any

import jax

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.optim import param_rules

# Tables, their norms and projections, and what all layers of Transformer-XL and XLNet read alike.
INPUT = r'(.*/)?\w*embeddings/.*|\w+/projection/.*|words?|words/.*|mask|[uwz]'


def rules(decay: float, params: Any, axes: Any, what: str) -> param_rules.Rules:
  """Returns the multiplier of the learning rate of every parameter, as rules that cover them all,
  by the decay from one layer to the next one towards the input; () where that is 1. Raises
  UserError, which names the key `what`: no layer has parameters of its own, or layers share some:
  these have no depth."""
  if decay == 1:
    return ()
  leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
  stacks, shared = {}, []
  for (key, leaf), names in zip(leaves, treedef.flatten_up_to(axes), strict=True):
    path = sharding.leaf_path(key)
    parts = path.split('/')
    if param_rules.is_stack(names):
      stacks['/'.join(parts[: parts.index(param_rules.LAYERS) + 1])] = leaf.shape[0]
    elif 'shared' in parts:
      shared.append(path)
  if shared or not stacks:
    raise UserError(
      f'{what}={decay:g} is about the depth of a stack of layers, and here '
      f'{f"they share {param_rules.collapse(shared)}" if shared else "is none"}: set it to 1.0; '
      'single parameters have config.optimizer.lr_scale'
    )
  layers = (
    (f'{re.escape(stack)}/{layer}/.*', decay ** (count + 1 - layer))
    for stack, count in stacks.items()
    for layer in range(count)
  )
  return ((INPUT, decay ** (max(stacks.values()) + 2)), *layers, ('.*', 1.0))
