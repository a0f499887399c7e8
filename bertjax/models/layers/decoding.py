"""Chooses the tokens of a text that a model writes: the likeliest, drawn ones, or beams.

Everything here sees a model as `Step`: the last token of each row and a cache -> the logits of the
next one and the new cache. Shapes are static, so each function compiles once for a number of rows
and of new tokens. Draws are keyed by (seed, row, place): they are the same on every mesh.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.models.layers.contracts import WritingModel
from bertjax.types import Array, Batch, Variables

Cache = Any  # arrays with the rows first
Step = Callable[[Array, Cache], tuple[Array, Cache]]

FAR = -1e7  # a logit or log-probability that is never chosen; -inf minus itself is no number


class Sampling(NamedTuple):
  """The rule by which a token is drawn."""

  temperature: float = 0.0  # of the softmax; 0 takes the likeliest token
  top_k: int = 0  # draws from the k likeliest and those as likely as the last of them; 0: from all
  # draws from the nucleus, the likeliest tokens with that much probability together; 1: all
  top_p: float = 1.0
  # whether the token that crosses top_p belongs to the nucleus (transformers) or not (OpenAI's
  # GPT-2); the likeliest always does
  crossing: bool = True


class Beams(NamedTuple):
  """The rule by which beams are kept."""

  count: int = 4  # K, beams of a row
  # a text of n tokens scores log p / ((5 + n) / 6)^alpha; with `rule` transformers log p / n^alpha
  alpha: float = 0.6
  # 't5x' ends a beam whose end is among the 2K best continuations and stops where no live beam can
  # win; 'transformers' ends it among the K best only
  rule: Literal['t5x', 'transformers'] = 't5x'
  # of transformers, `early_stopping`: stop when K beams have ended, or 'never' before none can win
  # at its greatest length
  early: bool | Literal['never'] = False


class Written(NamedTuple):
  """New tokens, best first where there are several texts of a row."""

  token_BKN: Array  # int32; 0 behind the end
  score_BK: Array  # float32: log p of the text, or as `Beams.alpha` says


def written(
  model: WritingModel, words: int, how: Sampling | Beams, new_tokens: int, end: int,
  variables: Variables, batch: Batch,
) -> Written:  # fmt: skip
  """Writes a text for each row of a batch with a model.

  Args:
    model: that writes.
    words: V, the ids below which all are words; the table may have more rows.
    how: tokens are chosen.
    new_tokens, end: as of `write`.
    variables: of the model, as its `for_writing` gives them.
    batch: as of `WritingModel.start`; where tokens are drawn also row_B, the number of each text,
      and seed_B, the seed.
  """

  def known(logits_BV: Array) -> Array:
    return jnp.where(jnp.arange(logits_BV.shape[1])[None] < words, logits_BV, FAR)

  def step(token_B: Array, text: Any) -> tuple[Array, Any]:
    logits_BV, text = model.apply(variables, token_B, text, method='step')  # pyright: ignore
    return known(logits_BV), text

  logits_BV, text = model.apply(variables, batch, new_tokens, method='start')  # pyright: ignore
  if isinstance(how, Beams):
    return search(known(logits_BV), text, step, new_tokens, end, how)
  key_B = None
  if how.temperature:
    keys = jax.vmap(lambda seed, row: jax.random.fold_in(jax.random.key(seed), row))
    key_B = keys(batch['seed_B'], batch['row_B'])
  return write(known(logits_BV), text, step, new_tokens, end, how, key_B)


def check(how: Sampling | Beams, words: int) -> None:
  """Refuses numbers that make no sense with so many words."""
  if isinstance(how, Beams) and not 1 <= how.count <= words // 2:
    raise UserError(
      f'beams: expected from 1 to half of the {words} words of the vocabulary, got {how.count}'
    )
  if isinstance(how, Sampling):
    if not 0 <= how.temperature < np.inf or not 0 < how.top_p <= 1 or how.top_k < 0:
      raise UserError(
        'expected temperature >= 0, 0 < top_p <= 1 and top_k >= 0, got '
        f'{how.temperature}, {how.top_p} and {how.top_k}'
      )
    if not how.temperature and (how.top_k or how.top_p < 1):
      raise UserError('top_k and top_p say what is drawn from: set temperature, 1.0 for instance')


def until(ids: Iterable[Any], end: int) -> list[int]:
  """Returns the tokens of a text up to its end, and that; all where there is none."""
  ids = [int(i) for i in ids]
  return ids[: ids.index(end) + 1] if end in ids else ids


def kept(logits_BV: Array, sampling: Sampling) -> Array:
  """Returns the logits with FAR for tokens outside of top_k and top_p, in this order."""
  if sampling.top_k:
    least_B1 = jax.lax.top_k(logits_BV, min(sampling.top_k, logits_BV.shape[-1]))[0][:, -1:]
    logits_BV = jnp.where(logits_BV < least_B1, FAR, logits_BV)
  if sampling.top_p < 1.0:
    order_BV = jnp.flip(jnp.argsort(logits_BV, -1), -1)
    sorted_BV = jnp.take_along_axis(logits_BV, order_BV, -1)
    share_BV = jax.nn.softmax(sorted_BV, -1)
    mass_BV = jnp.cumsum(share_BV, -1)
    inside_BV = (mass_BV - share_BV if sampling.crossing else mass_BV) <= sampling.top_p
    count_B1 = jnp.maximum(jnp.sum(inside_BV, -1, keepdims=True), 1)
    if sampling.crossing:
      outside_BV = jnp.argsort(order_BV, -1) >= count_B1
    else:  # with those as likely as the last one
      outside_BV = logits_BV < jnp.take_along_axis(sorted_BV, count_B1 - 1, -1)
    logits_BV = jnp.where(outside_BV, FAR, logits_BV)
  return logits_BV


def write(
  logits_BV: Array,
  cache: Cache,
  step: Step,
  new_tokens: int,
  end: int,
  sampling: Sampling,
  key_B: Array | None,
) -> Written:
  """Writes a text of at most `new_tokens` for each row, token by token, from the logits of the
  first one and the cache behind the prompt; `end` is the id that ends a text, -1: none does; key_B
  is of the draws, None where none are made."""
  rows = logits_BV.shape[0]

  def choose(logits_BV: Array, place: Array) -> Array:
    if not sampling.temperature:
      return jnp.argmax(logits_BV, -1).astype(jnp.int32)
    draw = lambda key, logits_V: jax.random.categorical(jax.random.fold_in(key, place), logits_V)
    cooled_BV = kept(logits_BV / sampling.temperature, sampling)
    return jax.vmap(draw)(key_B, cooled_BV).astype(jnp.int32)

  def added(place: Array, token_BN: Array, score_B: Array, ended_B: Array, logits_BV: Array):
    token_B = jnp.where(ended_B, 0, choose(logits_BV, place))
    logp_B = jnp.take_along_axis(jax.nn.log_softmax(logits_BV), token_B[:, None], -1)[:, 0]
    score_B, ended_B = score_B + jnp.where(ended_B, 0, logp_B), ended_B | (token_B == end)
    return place + 1, token_BN.at[:, place].set(token_B), score_B, ended_B

  def body(state: Any) -> Any:  # the model is not asked for what follows the last token
    (place, token_BN, *_), cache = state
    logits_BV, cache = step(token_BN[:, place - 1], cache)
    return added(*state[0], logits_BV=logits_BV), cache

  going = lambda state: (state[0][0] < new_tokens) & ~jnp.all(state[0][3])
  none = jnp.int32(0), jnp.zeros((rows, new_tokens), jnp.int32), jnp.zeros(rows)
  first = added(*none, jnp.zeros(rows, bool), logits_BV)
  (_, token_BN, score_B, _), _ = jax.lax.while_loop(going, body, (first, cache))
  return Written(token_BN[:, None], score_B[:, None])


class _Search(NamedTuple):
  """The state of a search: live beams and ended ones, best first."""

  place: Array
  live_BKN: Array
  live_BK: Array  # log p
  ended_BKN: Array
  ended_BK: Array  # scores
  is_ended_BK: Array
  open_B: Array  # a live beam may still win
  from_n: Array  # the row of the cache that each live beam goes on from, [B * K]


def search(
  logits_BV: Array, cache: Cache, step: Step, new_tokens: int, end: int, beams: Beams
) -> Written:
  """Writes the K best texts of each row that a beam search finds. Arguments as `write`. Where no
  text of a row has ended, the live ones are returned with their log p."""
  rows, count = logits_BV.shape[0], beams.count
  token_BKN = jnp.zeros((rows, count, new_tokens), jnp.int32)
  none_BK = jnp.full((rows, count), FAR)
  state = _Search(
    jnp.int32(0), token_BKN, none_BK.at[:, 0].set(0.0), token_BKN, none_BK,
    jnp.zeros((rows, count), bool), jnp.ones(rows, bool), jnp.arange(rows * count),
  )  # fmt: skip

  def body(carry: tuple[_Search, Cache]) -> tuple[_Search, Cache]:
    state, cache = carry
    token_n = state.live_BKN[:, :, state.place - 1].reshape(-1)
    logits_nV, cache = step(token_n, jax.tree.map(lambda x: x[state.from_n], cache))
    return _chosen(state, logits_nV.reshape(rows, count, -1), new_tokens, end, beams), cache

  going = lambda carry: (carry[0].place < new_tokens) & jnp.any(carry[0].open_B)
  all_BKV = jnp.broadcast_to(logits_BV[:, None], (rows, count, logits_BV.shape[-1]))
  first = _chosen(state, all_BKV, new_tokens, end, beams)
  wide = jax.tree.map(lambda x: jnp.repeat(x, count, 0), cache)
  state, _ = jax.lax.while_loop(going, body, (first, wide))
  any_B1 = jnp.any(state.is_ended_BK, 1, keepdims=True)
  token_BKN = jnp.where(any_B1[..., None], state.ended_BKN, state.live_BKN)
  return Written(token_BKN, jnp.where(any_B1, state.ended_BK, state.live_BK))


def _chosen(state: _Search, logits_BKV: Array, new_tokens: int, end: int, beams: Beams) -> _Search:
  """Takes a token more: the 2K best continuations, of which some end and K go on."""
  count, words = beams.count, logits_BKV.shape[-1]
  theirs, length = beams.rule == 'transformers', state.place + 1
  logp_BKV = jax.nn.log_softmax(logits_BKV) + state.live_BK[..., None]
  logp_BC, at_BC = jax.lax.top_k(logp_BKV.reshape(len(logp_BKV), -1), 2 * count)
  beam_BC, token_BC = at_BC // words, at_BC % words
  token_BCN = _rows(state.live_BKN, beam_BC).at[:, :, state.place].set(token_BC)
  stops_BC = token_BC == end
  if theirs:
    stops_BC |= length == new_tokens
  ends_BC = stops_BC & ((jnp.arange(2 * count) < count) | (not theirs))[None]
  score_BC = jnp.where(ends_BC, logp_BC / _brevity(beams, length), FAR)
  if theirs:
    full_B = jnp.all(state.is_ended_BK, 1) & (beams.early is True)
    score_BC = jnp.where((state.open_B & ~full_B)[:, None], score_BC, FAR)
  both = lambda ended, new: jnp.concatenate([ended, new], 1)
  ended_BK, best_BK = jax.lax.top_k(both(state.ended_BK, score_BC), count)
  ended_BKN = _rows(both(state.ended_BKN, token_BCN), best_BK)
  is_ended_BK = _rows(both(state.is_ended_BK, ends_BC), best_BK)
  live_BK, next_BK = jax.lax.top_k(jnp.where(stops_BC, FAR, logp_BC), count)
  reach = new_tokens if beams.early == 'never' and beams.alpha > 0 else length
  best_B = live_BK[:, 0] / _brevity(beams, reach if theirs else new_tokens + 1)
  worst_BK = jnp.where(is_ended_BK, jnp.min(ended_BK, 1, keepdims=True), FAR)
  open_B = jnp.any(best_B[:, None] > worst_BK, 1) & (state.open_B | (not theirs))
  if beams.early is True:
    open_B &= ~jnp.all(is_ended_BK, 1)
  if not theirs:  # it stops for all rows together
    open_B |= jnp.any(open_B)
  beam_BK = _rows(beam_BC, next_BK)
  from_n = (jnp.arange(len(beam_BK))[:, None] * count + beam_BK).reshape(-1)
  live_BKN = _rows(token_BCN, next_BK)
  return _Search(length, live_BKN, live_BK, ended_BKN, ended_BK, is_ended_BK, open_B, from_n)


def _brevity(beams: Beams, length: Array | int) -> Array:
  """Returns the divisor of log p for a text of so many tokens, its end included."""
  if beams.rule == 'transformers':
    return jnp.float32(length) ** beams.alpha
  return ((5.0 + jnp.float32(length)) / 6.0) ** beams.alpha


def _rows(x: Array, index_BK: Array) -> Array:
  """Returns the entries of axis 1 at these indices."""
  return jax.vmap(lambda x, index: x[index])(x, index_BK)
