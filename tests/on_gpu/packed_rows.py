"""python -m tests.on_gpu.packed_rows [times]: may cuDNN attend to several documents of a row?

cuDNN takes documents as offsets, through a private argument of jax. Each case is compared with the
definition in float64 (torch, a document at a time); then one document's queries, keys, values and
tangents are drawn anew, and every other document's outputs and gradients must stay the same to the
bit. With dropout, whose draws are the library's own, forward and backward must mean the same draws:
the output is linear in v, so <tangent, y> = <dv, v>. Prints a JSON line a case.

The offsets are those of the documents' first tokens alone, -1 in places that a row does not need;
with the end of a row as one more offset, or 0 for -1, results are wrong without a word. Set
XLA_FLAGS=--xla_gpu_enable_command_buffer= : with command buffers XLA of jax 0.11.2 aborts.

With `times`: forward and backward of cuDNN and of our kernel on the same documents, medians of
alternated runs, with and without dropout.
"""

import functools
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax._src.cudnn import fused_attention_stablehlo as library

from bertjax.kernels import dropout as dropout_lib
from bertjax.kernels.relative_attention import Dropout, Mask, relative_attention
from bertjax.tools.bench.parts import timing

# Lengths of the documents of each row; what is left of a row is padding.
CASES: dict[str, tuple[int, list[list[int]]]] = {
  'one each': (512, [[512], [512]]),
  'one each, padding': (512, [[400], [17]]),
  'three': (512, [[170, 171, 171], [100, 300, 112]]),
  'uneven counts': (512, [[512], [8, 300, 4, 100, 100]]),
  'padding behind': (512, [[100, 33], [17, 200, 40, 3]]),
  'thirty': (512, [[17] * 30, [16] * 32]),
  'of one token': (64, [[1] * 64, [1, 62, 1]]),
  'odd row': (509, [[170, 171, 168], [509]]),
  'short odd row': (77, [[40, 37], [1, 70]]),
  'empty row': (512, [[100, 412], []]),
  'long': (4096, [[1500, 1500, 1096], [4096]]),
}


def offsets(lengths: list[list[int]], unused: int) -> tuple[np.ndarray, np.ndarray]:
  """First tokens [B, G + 1] and lengths [B, G], `unused` in places that a row does not need."""
  most = max(1, *map(len, lengths))
  start = np.full((len(lengths), most + 1), unused, np.int32)
  size = np.full((len(lengths), most), unused, np.int32)
  for row, documents in enumerate(lengths):
    start[row, : len(documents)] = np.cumsum([0, *documents])[:-1]
    size[row, : len(documents)] = documents
  return start, size


def forward_backward(lengths: list[list[int]], rate: float, unused: int, causal: bool = False):
  """The library's call as a jitted function of (q, k, v, tangent)."""
  start, size = offsets(lengths, unused)
  kind = library.MaskType.PADDING_CAUSAL if causal else library.MaskType.PADDING

  def attend(q, k, v):
    return library.dot_product_attention(
      q, k, v, q_seqlen=jnp.array(size), kv_seqlen=jnp.array(size), q_offsets=jnp.array(start),
      kv_offsets=jnp.array(start), scale=q.shape[-1] ** -0.5, mask_type=kind, dropout_rate=rate,
    )  # fmt: skip

  def run(q, k, v, tangent):
    y, pull = jax.vjp(attend, q, k, v)
    return dict(zip('yqkv', (y, *pull(tangent)), strict=True))

  return jax.jit(run)


def oracle(arrays: list[Any], lengths: list[list[int]], causal: bool) -> dict[str, Any]:
  """Output and gradients, a document at a time, float64; zeros in padding."""
  q, k, v, tangent = (torch.tensor(np.float64(a), device='cuda') for a in arrays)
  out = {name: torch.zeros_like(q) for name in 'yqkv'}
  for row, documents in enumerate(lengths):
    for first, last in zip(np.cumsum([0, *documents]), np.cumsum(documents), strict=False):
      part = [a[row, first:last].clone().requires_grad_() for a in (q, k, v)]
      score = torch.einsum('tnh,snh->nts', part[0], part[1]) * q.shape[-1] ** -0.5
      if causal:
        score += torch.full(score.shape[1:], -torch.inf, device='cuda').triu(1)
      y = torch.einsum('nts,snh->tnh', score.softmax(-1), part[2])
      y.backward(tangent[row, first:last])
      for name, a in zip('yqkv', (y.detach(), *(x.grad for x in part)), strict=True):
        assert a is not None
        out[name][row, first:last] = a
  return {name: a.cpu().numpy() for name, a in out.items()}


def draw(rows: int, length: int, heads: int, size: int, seed: int) -> list[jax.Array]:
  keys = jax.random.split(jax.random.key(seed), 4)
  return [jax.random.normal(key, (rows, length, heads, size), jnp.bfloat16) for key in keys]


def errors(got: dict, want: dict, real: np.ndarray) -> dict[str, float]:
  """The largest error of real positions over the largest value, by array."""
  out = {}
  for name in want:
    difference = np.abs(np.float64(got[name]) - want[name])[real].max()
    out[name] = float(f'{difference / np.abs(want[name]).max():.3g}')
  return out


def leaks(run, arrays: list, lengths: list[list[int]], length: int) -> list[str]:
  """The arrays in which another document than the perturbed one changed."""
  before = run(*arrays)
  row = max(range(len(lengths)), key=lambda r: len(lengths[r]))
  first = sum(lengths[row][: len(lengths[row]) // 2])
  last = first + lengths[row][len(lengths[row]) // 2]
  other = draw(len(lengths), length, *arrays[0].shape[2:], seed=9)
  mixed = [a.at[row, first:last].set(b[row, first:last]) for a, b in zip(arrays, other)]  # noqa: B905
  after = run(*mixed)
  others = np.arange(length)[None] < np.array([sum(d) for d in lengths])[:, None]
  others[row, first:last] = False
  bits = lambda a: np.asarray(a).view(np.uint16)[others]
  changed = [name for name in before if not np.array_equal(bits(before[name]), bits(after[name]))]
  moved = np.asarray(after['y'][row, first:last] != before['y'][row, first:last]).any()
  return changed if moved else ['nothing moved']


SIZES = (  # rows, length, heads, head size
  (128, 128, 12, 64), (32, 512, 12, 64), (32, 512, 16, 64), (16, 1024, 12, 64), (4, 4096, 16, 64),
  (32, 512, 8, 128),
)  # fmt: skip
KERNEL_ROUND = 10  # calls of a timed round


def ours(documents: int, rows: int, length: int, rate: float, **fields: Any):
  """Our kernel's forward and backward, of rows that hold equal documents."""
  example = jnp.broadcast_to(jnp.arange(length) * documents // length + 1, (rows, length))
  noise = dropout_lib.Noise(jnp.uint32(1), jnp.arange(rows, dtype=jnp.uint32))
  dropout = Dropout(rate, noise, dropout_lib.site(('a',))) if rate else None
  mask = Mask(example, example, whole=documents == 1, **fields)

  def run(q, k, v, tangent):
    attend = lambda q, k, v: relative_attention(q, k, v, mask, None, dropout, 'gpu')
    y, pull = jax.vjp(attend, q, k, v)
    return y, pull(tangent)

  return jax.jit(run)


def full(rate: float, causal: bool = False):
  """cuDNN's forward and backward of full rows."""
  kind = library.MaskType.CAUSAL if causal else library.MaskType.NO_MASK

  def run(q, k, v, tangent):
    scale = q.shape[-1] ** -0.5
    attend = functools.partial(
      library.dot_product_attention, scale=scale, dropout_rate=rate, mask_type=kind
    )
    y, pull = jax.vjp(attend, q, k, v)
    return y, pull(tangent)

  return jax.jit(run)


def times() -> None:
  """Prints a line for each size and number of documents: milliseconds of each arm."""
  for rows, length, heads, size in SIZES:
    arrays = draw(rows, length, heads, size, seed=2)
    for documents in (1, 3, 8):
      ends = [length * n // documents for n in range(documents + 1)]
      lengths = [list(map(int, np.diff(ends)))] * rows
      made: dict[str, Any] = {}
      for rate in (0.0, 0.1):
        made[f'ours {rate}'] = ours(documents, rows, length, rate)
        made[f'cudnn offsets {rate}'] = forward_backward(lengths, rate, -1)
        if documents == 1:
          made[f'cudnn {rate}'] = full(rate)
      if documents == 1:
        made |= {'ours causal': ours(1, rows, length, 0.0, causal=True)}
        made |= {'cudnn causal': full(0.0, causal=True)}
        made |= {'ours window 129': ours(1, rows, length, 0.0, window=129)}
      arms: dict[str, Any] = {}
      line: dict[str, Any] = dict(rows=rows, length=length, heads=heads, size=size)
      line['documents'] = documents
      for name, run in made.items():
        try:
          jax.block_until_ready(run(*arrays))
        except Exception as error:  # of many types; a refusal is part of the table
          line[name] = f'{type(error).__name__}: {str(error)[:80]}'
          continue

        def several(run=run, arrays=arrays):
          for _ in range(KERNEL_ROUND):
            out = run(*arrays)
          jax.block_until_ready(out)

        arms[name] = several
      for name, seconds in timing.alternate(arms, 7, 2).items():
        line[name] = round(float(np.median(seconds)) / KERNEL_ROUND * 1e3, 4)
      print(json.dumps(line), flush=True)


def main() -> None:
  """Prints a line for each case, head size and way to say that a place is unused."""
  print(json.dumps(dict(jax=jax.__version__, device=jax.devices()[0].device_kind)))
  if sys.argv[1:] == ['times']:
    return times()
  for name, (length, lengths) in CASES.items():
    real = np.arange(length)[None] < np.array([sum(d) for d in lengths])[:, None]
    for size in (64,):
      arrays = draw(len(lengths), length, 4, size, seed=1)
      for causal, rate, unused in (
        (False, 0.0, -1), (False, 0.0, 0), (True, 0.0, -1), (False, 0.1, -1),
      ):  # fmt: skip
        line: dict[str, Any] = dict(case=name, size=size, causal=causal, rate=rate, unused=unused)
        try:
          run = forward_backward(lengths, rate, unused, causal)
          got = {n: np.asarray(a) for n, a in run(*arrays).items()}
          again = {n: np.asarray(a) for n, a in run(*arrays).items()}
          line |= dict(same_twice=all(a.tobytes() == again[n].tobytes() for n, a in got.items()))
          if rate:
            y, dv, tangent, v = (
              np.asarray(a, np.float64) for a in (got['y'], got['v'], arrays[3], arrays[2])
            )
            left, right = (tangent * y)[real].sum(), (dv * v)[real].sum()
            line |= dict(linear=[round(float(left), 3), round(float(right), 3)])
            size_of = np.abs(tangent * y)[real].sum()
            line |= dict(linear_error=float(f'{abs(left - right) / size_of:.3g}'))
          else:
            line |= dict(errors=errors(got, oracle(arrays, lengths, causal), real))
            line |= dict(leaks=leaks(run, arrays, lengths, length))
          padding = {n: a.astype(np.float64)[~real] for n, a in got.items()}
          line |= dict(padding_holds=[n for n, a in padding.items() if a.any()])
        except Exception as error:  # of many types; a refusal is part of the table
          line |= dict(refused=f'{type(error).__name__}: {str(error)[:200]}')
        print(json.dumps(line), flush=True)


if __name__ == '__main__':
  main()
