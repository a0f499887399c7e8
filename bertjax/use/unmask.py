"""Texts that a model of masked words writes behind prompts: `layers/unmasking.py` on batches.

A row is [CLS] prompt [MASK] .. [MASK] [SEP], with as many masks as tokens are asked for; padding
stands behind it. Batches come in few shapes, and each text is what its prompt gives alone.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bertjax.errors import UserError
from bertjax.models.layers import unmasking
from bertjax.models.layers.decoding import Sampling
from bertjax.models.layers.heads import all_scores
from bertjax.models.layers.unmasking import Unmasking
from bertjax.text.sentences import Row, as_batch, blanks_in
from bertjax.types import Array, Batch, Variables
from bertjax.use import batches
from bertjax.use.generate import AT_ONCE, Text, check_numbers, end_of, text
from bertjax.use.texts import listed

SLOTS = 4096  # hidden tokens of a batch at most, each of which has logits of the whole vocabulary


def texts(
  model: Any, prompts: Sequence[str], new_tokens: int, how: Unmasking, sampling: Sampling,
  seed: int, ends: bool, first: int,
) -> list[Text]:  # fmt: skip
  """`Model.generate` of a model of masked words, whose arguments and errors these are."""
  special, net = model.vocabulary.special, model.net
  if (mask := special.get('mask')) is None:
    raise UserError(
      f'{model.source} writes in the place of mask tokens, which its vocabulary has none of: '
      'expected another vocabulary, or a model that writes from a cache (configs/gpt.py)'
    )
  check_numbers(new_tokens, sampling, seed, model.vocabulary.size)
  unmasking.check(how, new_tokens)
  prompts, blanks = listed(prompts, first), blanks_in(model.vocabulary)
  for number, prompt in enumerate(prompts, first):
    if any(blank in prompt for blank in blanks):
      raise UserError(
        f'prompt {number} has a blank, and tokens are written behind prompts: expected none of '
        f'{", ".join(sorted(blanks))}; python -m bertjax.predict or Model.fill fills blanks'
      )
  rows = _rows(model, prompts, new_tokens, mask, first)
  end = end_of(model) if ends else None
  never = tuple(sorted({i for r, i in special.items() if i not in (None, end) and r != 'unk'}))

  def written(variables: Variables, batch: Batch) -> tuple[Array, Array]:
    def scored(token_BT: Array) -> Array:
      scores = net.words(variables, dict(batch, token_BT=token_BT))
      return unmasking.only(all_scores(scores), model.vocabulary.size, never)

    return unmasking.write(scored, batch, new_tokens, how, sampling)

  found: list[Any] = [None] * len(rows)
  length_n = np.array([len(row.id_n) for row in rows], np.int64)
  most = min(AT_ONCE, max(SLOTS // new_tokens, 1)) * int(length_n.max(initial=1))
  key = ('unmask', how, sampling, new_tokens, never)
  for cut in batches.cuts(length_n, model.runner.devices.ways, net.room, most):
    batch = _batch(model, rows, cut, new_tokens, first)
    token_BP, score_B = jax.device_get(
      model.runner.call(key, written, batch | dict(seed_B=np.full(cut.count, seed, np.int32)))
    )
    for place, index in enumerate(cut.index_n):
      prompt = rows[index].id_n[len(net.frame.before) : rows[index].columns[0]]
      found[index] = text(model.vocabulary, prompt, token_BP[place], end, score_B[place])
  return found


def _rows(model: Any, prompts: Sequence[str], new_tokens: int, mask: int, first: int) -> list[Row]:
  frame, room, rows = model.net.frame, model.net.room, []
  for number, ids in enumerate(model.vocabulary.encode_unended(prompts), first):
    begin = len(frame.before) + len(ids)
    columns = begin + new_tokens + len(frame.after)
    if room is not None and columns > room:
      raise UserError(
        f'prompt {number} has {begin} tokens and {new_tokens} more are asked for, {model.source} '
        f'takes {room} in all, with {len(frame.after)} behind: shorten it, or ask for fewer '
        '(--new_tokens)'
      )
    id_n = np.array([*frame.before, *ids, *[mask] * new_tokens, *frame.after], np.int32)
    rows.append(Row(id_n, range(begin, begin + new_tokens)))
  return rows


def _batch(
  model: Any, rows: Sequence[Row], cut: batches.Cut, new_tokens: int, first: int
) -> dict[str, np.ndarray]:
  """Lays the rows of a cut out; rows that are too many repeat those of the cut."""
  index_B = np.resize(cut.index_n, cut.count)
  chosen = [rows[index] for index in index_B]
  batch = as_batch(chosen, cut.count, cut.length, new_tokens, model.net.frame)
  batch |= model.runner.tables(batch['token_BT'])
  return batch | dict(row_B=(index_B + first - 1).astype(np.int32))
