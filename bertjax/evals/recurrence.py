"""Scoring a stream with memory, and without it: cached segments, and windows computed anew.

Both give every token at most `length` keys, itself included, and the same weights:

  cached    segments of the stream, one after the other, with a memory of `length` places: each
            position attends to the last `length` of its layer, which were computed once
  windows   for each token that is predicted, one forward pass over the `length` tokens before it

Dai et al. 2019, section 3.2: the second is how models without memory were evaluated. The two agree
on the first `length` tokens of a text. Later the cached ones know more: what a layer remembers was
itself computed with a memory.

As an evaluator it scores the held-out text with memories of several lengths.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.config.field_types import Natural
from bertjax.errors import UserError
from bertjax.evals import loss
from bertjax.evals.held_out import rows as rows_lib
from bertjax.kernels.adaptive_softmax import AdaptiveScores
from bertjax.kernels.cross_entropy import Scores
from bertjax.kernels.relative_attention import xla_chunked
from bertjax.objectives import lm
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables

RTOL = {'float32': 1e-4, 'bfloat16': 2e-2}  # between two orders of the same sums


class Way(NamedTuple):
  """One way to score.

  Attributes:
    step: (variables, memory, batch) -> (float32 -log p [B, P], memory); compiled for each shape.
    memory: batch -> the memory before the first one.
  """

  step: Callable[[Variables, Any, Batch], tuple[Any, Any]]
  memory: Callable[[Batch], Any]


def cached(config: Any, length: int, segment: int, same_length: bool = True) -> Way:
  """Segments with a memory of `length` places; 0: each by itself.

  Args:
    config: the run's; `config.evals.held_out.model` is applied, but for its memory.
    length: places of memory; with same_length also the keys of each position.
    segment: positions of a batch.
    same_length: or each position sees its memory and what comes before it in the segment.

  Raises:
    UserError: the model takes no memory, or with same_length one shorter than the segment.
  """
  same_length = same_length and length > 0
  objective = _objective(config, segment, dict(mem_len=length, same_length=same_length))

  def step(variables, memory, batch):
    out = objective.predict(variables, memory, batch)
    return lm.score(out['word'], batch['target_BP'])[0], out['memory']

  return Way(jax.jit(step), objective.carry)


def windows(config: Any, length: int) -> Way:
  """The token after each window of `length`: its last position alone is in the last layer.

  All layers but the last are applied to what comes before that position; what they give is the
  memory of a batch of this one position, which projects keys and values of these layers again.
  """
  layers, fields = config.model.layers, dict(mem_len=0, same_length=False)
  below = _objective(config, length - 1, fields | dict(layers=max(layers - 1, 1)))
  last = _objective(config, 1, fields | dict(mem_len=length - 1))

  def step(variables, memory, batch):
    params = variables['params']
    stack = jax.tree.map(lambda x: x[: max(layers - 1, 1)], params['layers'])
    before = {name: batch[name][:, :-1] for name in ('token_BT', 'example_BT')}
    out = below.predict(dict(params=dict(params, layers=stack)), (), before, hidden=True)
    inputs_LBTD = jnp.concatenate([out['embedded_BTD'][None], out['hidden_LBTD'][: layers - 1]])
    known = last.carry(before)._replace(
      hidden_BLMD=jnp.moveaxis(inputs_LBTD, 0, 1), example_BM=before['example_BT']
    )
    out = last.predict(variables, known, {name: batch[name][:, -1:] for name in before})
    return lm.score(out['word'], batch['target_BP'])[0], memory

  return Way(jax.jit(step), lambda batch: ())


def dense_windows(config: Any, length: int) -> Way:
  """The token after each window of `length`: every position is in every layer and scores all."""
  objective = _objective(config, length, dict(mem_len=0, same_length=False))

  def step(variables, memory, batch):
    with xla_chunked.dense():
      out = objective.predict(variables, memory, batch)
    return lm.score(_last(out['word']), batch['target_BP'])[0], memory

  return Way(jax.jit(step), objective.carry)


def segment_batches(token_n: np.ndarray, rows: int, segment: int) -> Iterator[Batch]:
  """The stream in `rows` columns, as `data/plans/lm_columns.py` has them; the last batch is padded.

  Args:
    token_n: the stream.
    rows: of a batch.
    segment: positions of each.
  """
  size = len(token_n) // rows
  column_BN = np.asarray(token_n[: size * rows], np.int32).reshape(rows, size)
  before_BN, next_BN = column_BN[:, :-1], column_BN[:, 1:]
  padding = ((0, 0), (0, -next_BN.shape[1] % segment))
  token_BN, target_BN, example_BN = (
    np.pad(x_BN, padding) for x_BN in (before_BN, next_BN, np.ones_like(next_BN))
  )
  for begin in range(0, token_BN.shape[1], segment):
    part = slice(begin, begin + segment)
    yield dict(
      token_BT=token_BN[:, part],
      example_BT=example_BN[:, part],
      target_BP=target_BN[:, part],
      start_B=np.full(rows, begin == 0, np.int32),
    )


def window_batch(token_n: np.ndarray, place_B: np.ndarray, length: int) -> Batch:
  """The windows that end at these places of the stream; before its begin there is nothing."""
  at_BT = place_B[:, None] + np.arange(1 - length, 1)[None]
  return dict(
    token_BT=np.where(at_BT < 0, 0, token_n[np.maximum(at_BT, 0)]).astype(np.int32),
    example_BT=(at_BT >= 0).astype(np.int32),
    target_BP=token_n[place_B + 1][:, None].astype(np.int32),
    start_B=np.ones(len(place_B), np.int32),
  )


def segment_nll(way: Way, variables: Variables, batches: Iterator[Batch]) -> np.ndarray:
  """-log p of every target, float64 [B, N], the memory handed on from batch to batch."""
  memory, found = None, []
  for batch in batches:
    memory = way.memory(batch) if memory is None else memory
    nll_BT, memory = way.step(variables, memory, batch)
    found.append(np.asarray(nll_BT, np.float64)[:, batch['example_BT'][0] > 0])
  if not found:
    raise UserError('the stream has fewer than two tokens a row: take fewer rows')
  return np.concatenate(found, 1)


def compare(
  config: Any, variables: Variables, token_n: np.ndarray, length: int, segment: int, samples: int
) -> dict[str, float]:
  """The losses of both ways at some places of the first 2 * length tokens.

  Args:
    config: the run's.
    variables: the model's.
    token_n: the stream.
    length: keys of each position.
    segment: positions of a batch of the cached way.
    samples: places in each half.

  Returns:
    `agree`, the mean loss in nats where both must give the same, `cached` and `windows` behind it.

  Raises:
    UserError: a stream that is too short; or the total losses of the first half differ.
  """
  steps = -(-2 * length // segment)
  if len(token_n) <= steps * segment:
    raise UserError(
      f'to compare both ways at length {length} takes {steps * segment + 1} tokens, the stream has '
      f'{len(token_n)}: hold out more text, or leave this length out'
    )
  part_n = token_n[: steps * segment + 1]
  way = cached(config, length, segment)
  nll_N = segment_nll(way, variables, segment_batches(part_n, 1, segment))[0]
  place_2S = np.linspace((0, length), (length - 1, 2 * length - 1), samples, dtype=int, axis=1)
  way = windows(config, length)
  anew_2S = np.zeros(place_2S.shape)
  for half, sample in np.ndindex(*place_2S.shape):
    batch = window_batch(part_n, place_2S[half, sample : sample + 1], length)
    anew_2S[half, sample] = np.asarray(way.step(variables, (), batch)[0]).item()
  known_2S = nll_N[place_2S]
  total, anew = float(known_2S[0].sum()), float(anew_2S[0].sum())
  if abs(total - anew) > RTOL[config.model.dtype] * abs(anew):
    raise UserError(
      f'cached segments and windows must agree on the first {length} tokens, but {samples} of them '
      f'cost {total:.6f} and {anew:.6f} nats: memory is not what the tokens before were'
    )
  return dict(
    agree=total / samples, cached=float(known_2S[1].mean()), windows=float(anew_2S[1].mean())
  )


def by_memory(
  config: Any,
  variables: Variables,
  token_n: np.ndarray,
  segment: int,
  rows: int,
  segments: Sequence[int] = range(5),
) -> list[dict[str, float]]:
  """The loss of the whole stream with memories of so many segments; the same targets for each.

  Returns:
    Of each memory: memory (places), lm (nats) and perplexity or bits_per_character.
  """
  found = []
  for count in segments:
    way = cached(config, count * segment, segment, same_length=False)
    nll_BN = segment_nll(way, variables, segment_batches(token_n, rows, segment))
    nll = float(nll_BN.mean())
    found.append(dict(memory=count * segment, lm=nll, **lm.in_unit(nll, config.objective.unit)))
  return found


def _objective(config: Any, length: int, fields: dict[str, Any]) -> Any:
  changed = copy.deepcopy(config)
  changed.model.update(dict(config.evals.held_out.model) | fields)
  changed.length = length
  return lm.make(changed)


def _last(scores: Scores | AdaptiveScores) -> Scores | AdaptiveScores:
  """The scores of the last position alone."""
  if isinstance(scores, AdaptiveScores):
    tails = tuple(map(_last, scores.tails))
    return scores._replace(head=_last(scores.head), tails=tails)  # pyright: ignore
  return scores._replace(hidden_BPE=scores.hidden_BPE[:, -1:])


class Options(NamedTuple):
  """Which memories.

  Attributes:
    memories: their lengths, in tokens; 0 is none.
    rows_of: the set of `config.evals`, of type 'loss', whose rows are scored.
  """

  memories: tuple[Natural, ...]
  rows_of: str


def make(subject: Subject, options: Options) -> Evaluation:
  """The scores of the held-out rows with each memory, named memory_<tokens>/<score>."""
  base = rows_lib.options_of(subject, options.rows_of, 'config.evals: rows_of')
  each = {
    memory: loss.make(
      subject, base._replace(model=dict(base.model, mem_len=memory, same_length=False))
    )
    for memory in options.memories
  }

  def run(variables: Variables, step: int) -> Report:
    return Report(
      {
        f'memory_{memory}/{name}': value
        for memory, evaluation in each.items()
        for name, value in evaluation.run(variables, step).scores.items()
      }
    )

  names = (f'memory_{memory}/{name}' for memory, e in each.items() for name in e.names)
  return Evaluation(frozenset(names), run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.memories)
