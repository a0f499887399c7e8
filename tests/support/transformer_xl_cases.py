"""A Transformer-XL of the original's sizes, and a run over the segments of a golden file."""

from typing import Any

import cases
import jax
import jax.numpy as jnp
import numpy as np
from original_goldens import HIDDEN, NLL, Golden, near, near_gradients

from bertjax.objectives import lm
from bertjax.train.step import with_rows
from bertjax.types import Context


def config(golden: Golden, **model):
  """The recipe of the test size with the file's sizes; `model` overrides `config.model`."""
  c, given = cases.config('transformer_xl'), golden.given
  c.model.update(model)
  c.model.update(dict(mem_len=given['mem_len'], clamp_len=max(given['clamp_len'], 0)))
  c.model.same_length, c.length = given['same_length'], given['tgt_len']
  return c


def compare(c, params: Any, gradients: dict[int, Any], golden: Golden) -> None:
  """Every segment's nll, the memory after the second, and the gradients of the first and last.

  Args:
    c: of `config`.
    params: ours.
    gradients: by number of the segment, counted from 1, in the layout of our parameters.
    golden: the file.
  """
  objective, found = lm.make(c), golden.found
  ctx = Context(jax.random.key(0), np.int32(0), train=False)

  @jax.jit
  def step(params, carry, batch):
    def mean_nll(params):
      out = objective.loss(dict(params=params), carry, with_rows(batch), ctx)
      return out.terms['lm'].total / out.terms['lm'].weight, out.carry

    scores = objective.predict(dict(params=params), carry, batch)['logits_BPV']
    (_, carry), grads = jax.value_and_grad(mean_nll, has_aux=True)(params)
    return jax.nn.log_softmax(scores), carry, grads

  params, carry, seen = jax.tree.map(jnp.asarray, params), None, set()
  for number, (token_TB, target_TB) in enumerate(
    zip(found['input_STB'], found['target_STB'], strict=True), 1
  ):
    batch = dict(
      token_BT=token_TB.T, example_BT=np.ones(token_TB.T.shape, np.int32),
      target_BP=target_TB.T, weight_BP=np.ones(token_TB.T.shape, np.float32),
      start_B=np.full(token_TB.shape[1], number == 1, np.int32),
    )  # fmt: skip
    carry = objective.carry(batch) if carry is None else carry
    log_p_BPV, carry, grads = step(params, carry, batch)
    nll_BP = -np.take_along_axis(np.asarray(log_p_BPV), target_TB.T[..., None], 2)[..., 0]
    near(nll_BP.T, found['nll_STB'][number - 1], NLL, f'nll of segment {number}')
    if number == 2 and 'memory_after_segment_2' in found:
      # Theirs keeps the output of the last layer too, which nothing reads.
      ours_LMBD = np.asarray(carry.hidden_BLMD).transpose(1, 2, 0, 3)
      near(ours_LMBD, found['memory_after_segment_2'][:-1], HIDDEN, 'the memory')
    if number in gradients:
      near_gradients(grads, gradients[number], f'segment {number}')
      seen.add(number)
  assert seen == gradients.keys()
