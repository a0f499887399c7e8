"""Policies that choose what of a layer the backward pass keeps and what it computes again.

Matrix products and attention are marked where they are computed (`checkpoint_name`); the policies
choose among the marks. The rest of a layer is cheap beside them: activations, norms, dropout, sums.
"""

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax

# none: what XLA's derivative asks for. light: products and attention are kept, the rest is computed
# again. dots: attention is computed again too. full: the layer's input alone is kept.
Remat = Literal['none', 'light', 'dots', 'full']
Mark = Literal['product', 'attention']

KEPT: dict[str, tuple[Mark, ...]] = dict(light=('product', 'attention'), dots=('product',), full=())


def function(run: Callable[..., Any], remat: str, unrolled: bool) -> Callable[..., Any]:
  """Returns a function whose derivative keeps what the policy says. In the body of a loop forward
  and backward are apart; unrolled, the compiler is kept from merging what is computed again."""
  if remat == 'none':
    return run
  return jax.checkpoint(run, prevent_cse=unrolled, policy=_policy(remat))


def module(layer: type[nn.Module], remat: str, unrolled: bool) -> type[nn.Module]:
  """Returns a module whose derivative keeps what the policy says, see `function`."""
  if remat == 'none':
    return layer
  return nn.remat(layer, prevent_cse=unrolled, policy=_policy(remat))


def _policy(remat: str) -> Any:
  return jax.checkpoint_policies.save_only_these_names(*KEPT[remat])
