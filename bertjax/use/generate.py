"""Texts that a model writes behind prompts, or for texts that it reads.

Prompts are sorted into batches of few shapes: rows and lengths come in buckets, so that few
programs are compiled. Padding stands before a short prompt and is not seen: each text is what its
prompt gives alone, whatever stands beside it, on any mesh. Draws are keyed by the seed, the number
of the text and the place.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax.errors import UserError, amount
from bertjax.models.layers import decoding
from bertjax.models.layers.contracts import PairModel
from bertjax.models.layers.decoding import Beams, Sampling
from bertjax.text import sentences
from bertjax.use import batches
from bertjax.use.texts import listed
from bertjax.vocab.vocabulary import Vocabulary

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
  end = end_of(model) if ends else None
  found: list[Any] = [None] * len(rows)
  length_n = np.array([len(ids) for ids in rows], np.int64)
  ways = model.runner.devices.ways
  function = functools.partial(decoding.written, model.net.writer, model.vocabulary.size, how)
  function = functools.partial(function, new_tokens, -1 if end is None else end)
  key = ('generate', how, new_tokens, end)
  for cut in batches.cuts(length_n, ways, None, AT_ONCE * max(int(length_n.max(initial=1)), 1)):
    batch = _batch(model, rows, cut, first) | dict(seed_B=np.full(cut.count, seed, np.int32))
    written = jax.device_get(model.writing_runner.call(key, function, batch))
    token_BN, score_B = written.token_BKN[:, 0], written.score_BK[:, 0]
    for place, index in enumerate(cut.index_n):
      prompt = () if isinstance(model.net.writer, PairModel) else rows[index]
      found[index] = text(model.vocabulary, prompt, token_BN[place], end, score_B[place])
  return found


def _check(model: Any, new_tokens: int, how: Sampling | Beams, seed: int) -> None:
  if model.net.writer is None or not model.net.can('word'):
    raise UserError(
      f'{model.source}, of config.model.name={model.net.name!r}, writes no text: expected one that '
      'writes from a cache, as of configs/gpt.py, transformer_xl.py, t5.py, bart.py, and '
      "xlm.py where it or one of its phases has config.model.attend='causal', or one with a head "
      'for masked words, as of configs/diffusion.py'
    )
  check_numbers(new_tokens, how, seed, model.vocabulary.size)


def check_numbers(new_tokens: int, how: Sampling | Beams, seed: int, words: int) -> None:
  """Refuses numbers that make no sense for texts of so many words."""
  if new_tokens < 1:
    raise UserError(f'new_tokens: expected 1 at least, got {new_tokens}')
  if not 0 <= seed < 1 << 31:
    raise UserError(f'seed: expected from 0 to 2^31 - 1, got {seed}')
  decoding.check(how, words)


def end_of(model: Any) -> int | None:
  """Returns the id that ends a text, or None."""
  special = model.vocabulary.special
  return special.get('sep') if special.get('sep') is not None else special.get('eos')


def _rows(model: Any, prompts: Sequence[str], new_tokens: int, first: int) -> list[Any]:
  """Returns the ids of the prompts: at least one each."""
  pair, end = isinstance(model.net.writer, PairModel), end_of(model)
  # BART and MASS learn from texts with masks; examples of a task are read as they are.
  masks = pair and model.net.writer.framed and not (model.task or model.tasks)
  if masks and model.vocabulary.special['mask'] is not None:
    blank = sentences.encode_blanks(prompts, model.vocabulary, sentences.Frame())
    rows = [sentence.id_n for sentence in blank]
  else:
    rows = model.vocabulary.encode_unended(list(prompts))
  if pair:
    frame = _frame(model)
    rows = [np.array([*frame.before, *ids, *frame.after], np.int32) for ids in rows]
  for number, ids in enumerate(rows, first):
    if not len(ids) and end is None:
      raise UserError(f'prompt {number} is empty, and the vocabulary has no token to begin with')
    room = model.net.room
    columns = max(len(ids), new_tokens + 2) if pair else len(ids) + new_tokens
    if room is not None and columns > room:
      raise UserError(
        f'prompt {number} has {amount(len(ids), "tokens")} and {new_tokens} more are asked for, '
        f'{model.source} takes {room} {"of each text" if pair else "in all"}: shorten it, or ask '
        'for fewer (--new_tokens)'
      )
  return [ids if len(ids) else np.array([end], np.int32) for ids in rows]


def _batch(model: Any, rows: Sequence[Any], cut: batches.Cut, first: int) -> dict[str, np.ndarray]:
  """Lays prompts out with their padding in front; of pairs, behind. Rows that are too many repeat
  those of the cut."""
  pair = isinstance(model.net.writer, PairModel)
  shape = cut.count, cut.length
  token_BT, example_BT = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
  index_B = np.resize(cut.index_n, cut.count)
  for place, index in enumerate(index_B):
    own = slice(0, len(rows[index])) if pair else slice(cut.length - len(rows[index]), None)
    token_BT[place, own], example_BT[place, own] = rows[index], 1
  begun = dict(out_token_BU=np.tile(_frame(model).start, (cut.count, 1))) if pair else {}
  begun |= model.runner.tables(token_BT)
  row_B = (index_B + first - 1).astype(np.int32)
  return dict(token_BT=token_BT, example_BT=example_BT, row_B=row_B, **begun)


def _frame(model: Any) -> sentences.PairFrame:
  return sentences.pair_frame(model.net.writer.framed, model.vocabulary.special)


def text(
  vocabulary: Vocabulary, prompt: Iterable[int], ids: Iterable[int], end: int | None, score: float
) -> Text:
  """Returns the text of ids up to their end, with the space between it and the prompt where there
  is one. Raises UserError: a score that is no number."""
  if np.isnan(score):
    raise UserError(batches.NAN)
  ids, spell = decoding.until(ids, -1 if end is None else end), vocabulary.pieces
  before = [i for i in prompt if i != end]  # an empty prompt is the end alone
  whole = vocabulary.decode([*before, *(i for i in ids if i != end)])
  return Text(whole[len(vocabulary.decode(before)) :], [spell[i] for i in ids], float(score))
