"""Writes the hidden tokens of rows with a model of masked words: some at a time, in several passes.

Masked diffusion's sampler. In the random order it draws from MDLM's reverse process with as many
tokens a pass as LLaDA's (ML-GSAI/LLaDA, generate.py), most certain first is LLaDA's order; what is
written stays. Shapes are static. Draws are keyed by (seed, row, pass, place), on any mesh alike.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from bertjax.errors import UserError
from bertjax.models.layers.decoding import FAR, Sampling, kept
from bertjax.types import Array, Batch


class Unmasking(NamedTuple):
  """The order in which hidden tokens are written."""

  steps: int = 0  # passes over the text, each of which writes as many tokens; 0: one token a pass
  # 'confidence' writes the tokens of the highest probability first, 'random' any
  order: Literal['confidence', 'random'] = 'confidence'
  block: int = 0  # tokens that are written before all behind them; 0: there are no blocks


def check(how: Unmasking, new_tokens: int) -> None:
  """Refuses passes and blocks that so many tokens do not have."""
  for name, value in (('steps', how.steps), ('block', how.block)):
    if not 0 <= value <= new_tokens:
      raise UserError(
        f'{name}: expected from 1 to the {new_tokens} tokens that are written (--new_tokens), '
        f'or 0, got {value}'
      )
  if how.order not in ('confidence', 'random'):
    raise UserError(f"order: expected 'confidence' or 'random', got {how.order!r}")


def write(
  scored: Callable[[Array], Array],
  batch: Batch,
  new_tokens: int,
  how: Unmasking,
  sampling: Sampling,
) -> tuple[Array, Array]:
  """Writes the tokens at the slots of a batch, which show the mask token. Each pass writes
  new_tokens / steps of them, the first passes one more where that leaves a rest.

  Args:
    scored: token_BT -> float32 logits_BPV at the slots, FAR where a token is never written.
    batch: with token_BT, target_pos_BP, and row_B and seed_B, which key the draws.
    new_tokens: P.
    how, sampling: in which order, and by which rule each token is chosen.

  Returns:
    token_BP, and float32 score_B, the log p of each token where it was written, summed.
  """
  column_BP, passes = batch['target_pos_BP'], how.steps or new_tokens
  rows = jnp.arange(len(column_BP))[:, None]
  place_P = jnp.arange(new_tokens)
  block_P = place_P // (how.block or new_tokens)
  keys = jax.vmap(lambda seed, row: jax.random.fold_in(jax.random.key(seed), row))
  key_B = keys(batch['seed_B'], batch['row_B'])
  order_BP = jax.vmap(lambda key: jax.random.uniform(key, (new_tokens,)))(key_B)

  def choose(logits_BPV: Array, number: Array) -> Array:
    if not sampling.temperature:
      return jnp.argmax(logits_BPV, -1).astype(jnp.int32)
    draw = lambda key, logits_V: jax.random.categorical(key, logits_V)
    at = lambda key: jax.vmap(lambda place: jax.random.fold_in(key, place))(place_P)
    key_BP = jax.vmap(at)(jax.vmap(lambda key: jax.random.fold_in(key, number))(key_B))
    flat_nV = kept(logits_BPV.reshape(-1, logits_BPV.shape[-1]) / sampling.temperature, sampling)
    return jax.vmap(jax.vmap(draw))(key_BP, flat_nV.reshape(logits_BPV.shape)).astype(jnp.int32)

  def one_pass(number: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    token_BT, hidden_BP, score_B = state
    logits_BPV = scored(token_BT)
    new_BP = choose(logits_BPV, number)
    log_BPV = jax.nn.log_softmax(logits_BPV)
    logp_BP = jnp.take_along_axis(log_BPV, new_BP[..., None], -1)[..., 0]
    first_BP = -logp_BP if how.order == 'confidence' else order_BP
    block_BP = jnp.where(hidden_BP, block_P[None], new_tokens)  # what is written comes last
    rank_BP = jnp.argsort(jnp.lexsort((first_BP, block_BP), -1), -1)
    count = new_tokens // passes + (number < new_tokens % passes)
    now_BP = hidden_BP & (rank_BP < count)
    shown_BP = jnp.take_along_axis(token_BT, column_BP, 1)
    token_BT = token_BT.at[rows, column_BP].set(jnp.where(now_BP, new_BP, shown_BP))
    return token_BT, hidden_BP & ~now_BP, score_B + jnp.sum(jnp.where(now_BP, logp_BP, 0.0), 1)

  begun = batch['token_BT'], jnp.ones(column_BP.shape, bool), jnp.zeros(len(column_BP))
  token_BT, _, score_B = jax.lax.fori_loop(0, passes, one_pass, begun)
  return jnp.take_along_axis(token_BT, column_BP, 1), score_B


def only(logits_BPV: Array, words: int, never: tuple[int, ...]) -> Array:
  """Returns the logits with FAR for ids from `words` on, and for those that are `never` written."""
  id_V = jnp.arange(logits_BPV.shape[-1])
  out_V = (id_V >= words) | jnp.isin(id_V, jnp.array(never, jnp.int32))
  return jnp.where(out_V[None, None], FAR, logits_BPV)
