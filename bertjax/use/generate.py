"""Texts that a model writes behind prompts, or for texts that it reads.

Prompts are sorted into batches of few shapes: rows and lengths come in buckets, so that few
programs are compiled. Padding stands before a short prompt and is not seen: each text is what its
prompt gives alone, whatever stands beside it, on any mesh. Draws are keyed by the seed, the number
of the text and the place.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.models.layers.contracts import PairModel, WritingModel
from bertjax.types import Array, Batch, Variables
from bertjax.use import batches, decoding
from bertjax.use.decoding import Beams, Sampling, Written
from bertjax.use.texts import listed

AT_ONCE = 64  # rows of a batch at most


class Text(NamedTuple):
  """A text that was written."""

  text: str  # without its prompt
  tokens: list[str]  # its tokens as the vocabulary spells them, the end included
  score: float  # log-likelihood of the tokens, or with beams as `Beams.alpha` says


def texts(
  model: Any,
  prompts: Sequence[str],
  new_tokens: int,
  how: Sampling | Beams,
  seed: int,
  ends: bool,
  first: int,
) -> list[Text]:
  """`Model.generate`, whose arguments and errors these are; `how` chooses the tokens."""
  _check(model, new_tokens, how, seed)
  rows = _rows(model, listed(prompts, first), new_tokens, first)
  end = model.vocabulary.special.get('sep') if ends else None
  found: list[Any] = [None] * len(rows)
  length_n = np.array([len(ids) for ids in rows], np.int64)
  ways = model.runner.devices.ways
  function = functools.partial(_written, model.net.model, model.vocabulary.size, how)
  function = functools.partial(function, new_tokens, -1 if end is None else end)
  key = ('generate', how, new_tokens, end)
  for cut in batches.cuts(length_n, ways, None, AT_ONCE * max(int(length_n.max(initial=1)), 1)):
    batch = _batch(model, rows, cut)
    batch |= dict(row_B=batch['row_B'] + first - 1, seed_B=np.full(cut.count, seed, np.int32))
    written = jax.device_get(model.runner.call(key, function, batch))
    for place, index in enumerate(cut.index_n):
      found[index] = _text(model, written, place, end)
  return found


def _check(model: Any, new_tokens: int, how: Sampling | Beams, seed: int) -> None:
  if not isinstance(model.net.model, WritingModel):
    raise UserError(
      f'{model.source}, of config.model.name={model.net.name!r}, writes no text: expected a model '
      'that reads from left to right or has a decoder, as of configs/gpt.py and configs/t5.py'
    )
  if new_tokens < 1:
    raise UserError(f'new_tokens: expected 1 at least, got {new_tokens}')
  if not 0 <= seed < 1 << 31:
    raise UserError(f'seed: expected from 0 to 2^31 - 1, got {seed}')
  size = model.vocabulary.size
  if isinstance(how, Beams) and not 1 <= how.count <= size // 2:
    raise UserError(
      f'beams: expected from 1 to half of the {size} words of the vocabulary, got {how.count}'
    )
  if isinstance(how, Sampling):
    if not 0 <= how.temperature < np.inf or not 0 < how.top_p <= 1 or how.top_k < 0:
      raise UserError(
        'expected temperature >= 0, 0 < top_p <= 1 and top_k >= 0, got '
        f'{how.temperature}, {how.top_p} and {how.top_k}'
      )
    if not how.temperature and (how.top_k or how.top_p < 1):
      raise UserError('top_k and top_p say what is drawn from: set temperature, 1.0 for instance')


def _rows(model: Any, prompts: Sequence[str], new_tokens: int, first: int) -> list[Any]:
  """Returns the ids of the prompts: at least one each."""
  special, pair = model.vocabulary.special, isinstance(model.net.model, PairModel)
  end = special.get('sep')
  rows = [np.asarray(ids, np.int32) for ids in model.vocabulary.encode_batch(list(prompts))]
  if pair:
    rows = [np.append(ids, [end] if end is not None else []).astype(np.int32) for ids in rows]
  for number, ids in enumerate(rows, first):
    if not len(ids) and end is None:
      raise UserError(f'prompt {number} is empty, and the vocabulary has no token to begin with')
    room = model.net.room
    if room is not None and len(ids) + (0 if pair else new_tokens) > room:
      raise UserError(
        f'prompt {number} has {len(ids)} tokens and {new_tokens} more are asked for, '
        f'{model.source} takes {room} in all: shorten it, or ask for fewer (--new_tokens)'
      )
  return [ids if len(ids) else np.array([end], np.int32) for ids in rows]


def _batch(model: Any, rows: Sequence[Any], cut: batches.Cut) -> dict[str, np.ndarray]:
  """Lays prompts out with their padding in front; of pairs, behind."""
  pair = isinstance(model.net.model, PairModel)
  shape = cut.count, cut.length
  token_BT, example_BT = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
  row_B = np.zeros(cut.count, np.int32)
  for place in range(cut.count):  # rows that are too many repeat the first
    index = cut.index_n[place if place < len(cut.index_n) else 0]
    own = slice(0, len(rows[index])) if pair else slice(cut.length - len(rows[index]), None)
    token_BT[place, own], example_BT[place, own], row_B[place] = rows[index], 1, index
  return dict(token_BT=token_BT, example_BT=example_BT, row_B=row_B)


def _written(
  module: Any, words: int, how: Sampling | Beams, new_tokens: int, end: int,
  variables: Variables, batch: Batch,
) -> Written:  # fmt: skip
  """Runs the model; compiled once for each shape."""

  def known(logits_BV: Array) -> Array:
    return jnp.where(jnp.arange(logits_BV.shape[1])[None] < words, logits_BV, decoding.FAR)

  def step(token_B: Array, text: Any) -> tuple[Array, Any]:
    logits_BV, text = module.apply(variables, token_B, text, method='step')
    return known(logits_BV), text

  logits_BV, text = module.apply(variables, batch, new_tokens, method='start')
  if isinstance(how, Beams):
    return decoding.search(known(logits_BV), text, step, new_tokens, end, how)
  keys = jax.vmap(lambda seed, row: jax.random.fold_in(jax.random.key(seed), row))
  key_B = keys(batch['seed_B'], batch['row_B'])
  return decoding.write(known(logits_BV), text, step, new_tokens, end, how, key_B)


def _text(model: Any, written: Written, place: int, end: int | None) -> Text:
  ids = written.token_BKN[place, 0].tolist()
  if end is not None and end in ids:
    ids = ids[: ids.index(end) + 1]
  body = [i for i in ids if i != end]
  spell = model.vocabulary.pieces
  return Text(
    model.vocabulary.decode(body), [spell[i] for i in ids], float(written.score_BK[place, 0])
  )
