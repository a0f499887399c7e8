"""python -m tests.on_gpu.exactness [SHAPES [IMPLS [DTYPES]]]: attention on this card, exact or not.

Compares forward and backward with the definition in float64, on every shape of `arg_specs.py` at
its full size, bfloat16 and float32. The definition is made by torch, a row at a time: the position
term by gathering each pair's row of the table, gradients by autograd. It shares no code with what
it judges but the hash that draws dropout (tests/kernels/dropout_test.py). Prints a JSON line a
case: the largest error of each array over its largest value. The arguments
are names apart by commas; without them it is all of each.
"""

import functools
import itertools
import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import IMPLEMENTATIONS, relative_attention
from bertjax.kernels.relative_attention.arg_specs import SHAPES, Operands, Shape
from bertjax.tools.bench.parts import passes

DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
NAMES = ('r_RNH', 'bias_NR', 'u_NH', 'w_NH')  # float fields of Relative


def _wide(x: Any, grad: bool = False) -> torch.Tensor:
  """A jax array as float64 on the card."""
  return torch.tensor(np.asarray(x, np.float64), device=DEVICE, requires_grad=grad)


def _whole(x: Any) -> torch.Tensor:
  return torch.tensor(np.asarray(x).astype(np.int64), device=DEVICE)


def _seen(shape: Shape, x: Operands, row: int) -> torch.Tensor:
  """Visible pairs of a row, bool [T, S], from the mask's four rules."""
  mask: Any = x.mask
  distance = shape.memory + torch.arange(shape.queries)[:, None] - torch.arange(shape.keys)[None]
  distance = distance.to(DEVICE)
  example_q, example_k = (_whole(ids[row]) for ids in (mask.example_q_BT, mask.example_k_BS))
  seen = (example_q[:, None] == example_k[None]) & (example_q[:, None] > 0)
  if mask.causal or shape.table == 'past':
    seen &= distance >= 0
  if mask.order_q_BT is not None:
    ahead = _whole(mask.order_q_BT[row])[:, None] > _whole(mask.order_k_BS[row])[None]
    seen &= ahead | (distance == 0) if mask.see_self else ahead
  if mask.window is not None:
    near = distance.abs() < mask.window
    if mask.global_q_BT is not None:
      near |= _whole(mask.global_q_BT[row]).bool()[:, None]
      near |= _whole(mask.global_k_BS[row]).bool()[None]
    seen &= near
  return seen


def _dropped(shape: Shape, x: Operands, row: int) -> torch.Tensor | float:
  """1 / (1 - rate) where dropout keeps a probability of the row and 0 elsewhere, [N, T, S]."""
  if x.dropout is None:
    return 1.0
  noise = dropout_lib.Noise(x.dropout.noise.seed, x.dropout.noise.row_B[row : row + 1])
  bits = dropout_lib.random_bits(noise, x.dropout.site, (1, shape.heads, shape.queries, shape.keys))
  keep = np.asarray(bits[0]) >= np.uint32(round(shape.rate * 2**32))
  return torch.tensor(keep, device=DEVICE) / (1 - shape.rate)


def oracle(shape: Shape, x: Any, tangent_BTNH: Any) -> dict[str, np.ndarray]:
  """The output and the gradient of every float operand, by name, float64."""
  relative: Any = x.relative
  shared: dict[str, Any] = {}
  if relative is not None:
    shared = {n: _wide(a, True) for n in NAMES if (a := getattr(relative, n)) is not None}
    if relative.segment is not None:
      shared |= dict(z=_wide(relative.segment.z_NH, True))
      shared |= dict(e=_wide(relative.segment.embedding_2NH, True))
  scale = shape.size**-0.5 if shape.scale is None else shape.scale
  distance = shape.memory + torch.arange(shape.queries)[:, None] - torch.arange(shape.keys)[None]
  out: dict[str, list[Any]] = dict(y=[], q=[], k=[], v=[])
  for row in range(shape.rows):
    q, k, v = (_wide(a[row], True) for a in (x.q_BTNH, x.k_BSNH, x.v_BSNH))
    plus = lambda name, q=q: q + shared[name] if name in shared else q
    score = torch.einsum('tnh,snh->nts', plus('u_NH'), k)
    if relative is not None and shape.table:
      sign = 1 if relative.direction_B is None else int(relative.direction_B[row])
      index = (relative.far - sign * distance).clamp(0, relative.rows - 1).to(DEVICE)
      if 'r_RNH' in shared:
        band = torch.einsum('tnh,rnh->ntr', plus('w_NH'), shared['r_RNH'])
        score = score + torch.gather(band, 2, index.expand(shape.heads, -1, -1))
    if 'z' in shared:
      either = torch.einsum('tnh,gnh->gnt', plus('z'), shared['e'])[..., None]
      segment: Any = x.relative.segment
      here, there = (_whole(s[row]) for s in (segment.segment_q_BT, segment.segment_k_BS))
      other = here[:, None] != there[None]
      score = score + torch.where(other, either[1], either[0])
    score = score * scale
    if 'bias_NR' in shared:
      score = score + shared['bias_NR'][:, index]
    seen = _seen(shape, x, row)
    power = torch.where(seen, torch.exp(score - score.detach().amax(-1, keepdim=True)), 0.0)
    total = power.sum(-1, keepdim=True)
    probability = power / torch.where(total > 0, total, 1.0) * _dropped(shape, x, row)
    y = torch.einsum('nts,snh->tnh', probability, v)
    y.backward(_wide(tangent_BTNH[row]))
    for name, a in dict(y=y.detach(), q=q.grad, k=k.grad, v=v.grad).items():
      out[name].append(a)
  arrays: dict[str, Any] = {name: torch.stack(rows) for name, rows in out.items()}
  arrays |= {name: a.grad for name, a in shared.items()}
  found = {name: a.cpu().numpy() for name, a in arrays.items()}
  torch.cuda.empty_cache()
  return found


def _named(x: Operands, y: Any, gradients: list[Any]) -> dict[str, Any]:
  """Names what `passes.forward_backward` returns, as the oracle does."""
  tree = (x.q_BTNH, x.k_BSNH, x.v_BSNH, x.relative)
  paths = jax.tree_util.tree_flatten_with_path(tree)[0]
  short = dict(z_NH='z', embedding_2NH='e')
  names = []
  for path, leaf in paths:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
      last = path[-1]
      name = 'qkv'[last.idx] if hasattr(last, 'idx') else last.name
      names.append(short.get(name, name))
  return dict(y=y) | dict(zip(names, gradients, strict=True))


def _error(got: Any, want: np.ndarray) -> float:
  difference = np.abs(np.asarray(got, np.float64) - want).max() / max(np.abs(want).max(), 1e-30)
  return float(f'{difference:.3g}')


def main() -> None:
  """Prints a line for each shape, dtype and implementation."""
  every = list(SHAPES), [i for i in IMPLEMENTATIONS if i != 'tpu'], ['bfloat16', 'float32']
  given = [x.split(',') for x in sys.argv[1:]]
  shapes, impls, dtypes = (*given, *every[len(given) :])
  for name, dtype in itertools.product(shapes, dtypes):
    shape = SHAPES[name]
    build = lambda shape=shape, dtype=dtype: passes.arguments(shape, jnp.dtype(dtype))
    x, tangent = jax.jit(build)()
    want = oracle(shape, x, tangent)
    for impl in impls:
      line: dict[str, Any] = dict(shape=name, dtype=dtype, impl=impl)
      start = time.time()
      attention = functools.partial(relative_attention, impl=impl)
      try:
        y, gradients = jax.jit(passes.forward_backward(attention))(x, tangent)
        got = _named(x, y, gradients)
        line |= dict(errors={n: _error(got[n], want[n]) for n in want})
      except Exception as error:  # of many types; a refusal is part of the table
        line |= dict(refused=f'{type(error).__name__}: {str(error)[:150]}')
      print(json.dumps(line | dict(seconds=round(time.time() - start, 1))), flush=True)


if __name__ == '__main__':
  main()
