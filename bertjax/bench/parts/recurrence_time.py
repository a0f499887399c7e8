"""The parts of the recurrence bench: its arms as calls, the sweep over rows, the plot."""

import copy
import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax.bench.parts import own_step, timing
from bertjax.checkpoint import reading
from bertjax.data import ensure_store, layout
from bertjax.data.column_stream import ColumnStream
from bertjax.data.store.reader import open_store
from bertjax.data.types import Ranges
from bertjax.errors import UserError
from bertjax.evals import recurrence
from bertjax.objectives import lm
from bertjax.train import setup

CHARACTERS = 256  # vocabulary of random text

Call = Callable[[], Any]


class Arm(NamedTuple):
  """What is timed.

  Attributes:
    way: how it scores.
    variables: of its model.
    tokens: that a row of a call predicts.
    keys: columns of a row, memory included.
  """

  way: recurrence.Way
  variables: Any
  tokens: int
  keys: int


def timed_call(way: recurrence.Way, variables: Any, batch: Any) -> Call:
  """A call that scores the batch with a memory that is full and waits for it."""
  memory = way.memory(batch)
  if memory:
    memory = memory._replace(example_BM=np.ones_like(memory.example_BM))
  batch = jax.device_put(dict(batch, start_B=np.zeros_like(batch['start_B'])))
  memory = jax.device_put(memory)
  return lambda: jax.block_until_ready(way.step(variables, memory, batch))


def sweep(make: Callable[[int], Call], tokens: int, limit: int) -> dict[int, float]:
  """Tokens per second by rows, 1, 2, 4 .. `limit`, until two in turn are no faster than the best.

  Args:
    make: rows -> a call.
    tokens: that a row of a call predicts.
    limit: the most rows.
  """
  rates: dict[int, float] = {}
  rows, slower = 1, 0
  while rows <= max(limit, 1) and slower < 2:
    seconds = timing.alternate(dict(arm=make(rows)), calls=3, warmup=1)['arm']
    rate = rows * tokens / float(np.median(seconds))
    slower = slower + 1 if rate <= max(rates.values(), default=0.0) else 0
    rates[rows] = round(rate, 2)
    rows *= 2
  return rates


def arms(config: Any, variables: Any, length: int, segment: int) -> dict[str, Arm]:
  """The ways to score at one attention length, by name.

  cached    segments with memory
  windows   the same weights, a window for each token, see `recurrence.windows`
  dense     the same, and every position of a window in every layer, with the scores of all
  absolute  dense, of a model of this size that adds learned positions in each layer, untrained:
            what the paper compares with (Al-Rfou et al. 2018)

  Args:
    config: the run's.
    variables: the model's.
    length: keys of each position.
    segment: positions of a cached batch.
  """
  other = copy.deepcopy(config)
  other.length = length
  other.model.update(attention='deeper', learned_positions=length, mem_len=0, same_length=False)
  batch = recurrence.window_batch(np.zeros(length + 2, np.int64), np.array([length]), length)
  learned = own_step.initial_variables(lm.make(other), batch, config.seed)
  return dict(
    cached=Arm(recurrence.cached(config, length, segment), variables, segment, length + segment),
    windows=Arm(recurrence.windows(config, length), variables, 1, length),
    dense=Arm(recurrence.dense_windows(config, length), variables, 1, length),
    absolute=Arm(recurrence.dense_windows(other, length), learned, 1, length),
  )


def speed(
  config: Any, variables: Any, token_n: np.ndarray, length: int, segment: int, keys: int, calls: int
) -> dict[str, Any]:
  """Tokens per second of all arms at one attention length, and their time over the cached one's.

  Args:
    config: the run's.
    variables: the model's.
    token_n: any text.
    length: keys of each position.
    segment: positions of a cached batch.
    keys: most rows times keys of a batch.
    calls: timed calls of each arm, after three that are not.
  """
  each = arms(config, variables, length, segment)

  def call(arm: Arm, rows: int) -> Call:
    if arm.tokens == 1:
      batch = recurrence.window_batch(token_n, np.full(rows, length), length)
    else:
      text_n = np.resize(token_n, rows * (segment + 1))
      batch = next(recurrence.segment_batches(text_n, rows, segment))
    return timed_call(arm.way, arm.variables, batch)

  rates = {
    name: sweep(functools.partial(call, arm), arm.tokens, keys // arm.keys)
    for name, arm in each.items()
  }
  rows = {name: max(found, key=lambda r, found=found: found[r]) for name, found in rates.items()}
  seconds = timing.alternate({name: call(arm, rows[name]) for name, arm in each.items()}, calls, 3)
  tokens = {name: rows[name] * arm.tokens for name, arm in each.items()}
  time = {name: float(np.median(seconds[name])) / tokens[name] for name in each}
  ratio = {name: round(time[name] / time['cached'], 1) for name in each if name != 'cached'}
  return dict(
    length=length,
    segment=segment,
    ratio=ratio,
    **{
      name: dict(
        rows=rows[name],
        **timing.summary(seconds[name], tokens[name], 'tokens'),
        sweep=rates[name],
      )
      for name in each
    },
  )


def held_out_text(run: Any, config: Any) -> np.ndarray:
  """The held-out documents of a run as one stream, in the order of the corpus."""
  path = run.store.path / 'heldout'
  if not path.exists():
    raise UserError(f'the store {run.store.path} holds nothing out: prepare one that does')
  store = open_store(path)
  name = config.data.plan.ends
  stream = ColumnStream(store, 1, store.special[name] if name else None, 0)
  size_E = np.array([stream.size])
  start_r, length_r, end_s = stream.ranges(stream.order(None), np.array([0]), size_E)
  ranges = Ranges(start_r, length_r, end_s, np.full(len(end_s), stream.ends), size_E)
  return layout.tokens(ranges, store)[0]


def subject(config: Any, workdir: str | None, size: int) -> tuple[Any, Any, np.ndarray]:
  """The config with its vocabulary, the weights, and the text.

  Args:
    config: of the flag.
    workdir: of a run, or None.
    size: of random text.
  """
  if workdir:
    path = ensure_store.ensure_store(config.data, config.seed, workdir)
    run = setup.make_run(config, path, fallback=str(pathlib.Path(workdir, 'plans')))
    return (
      run.phases[0].config,
      reading.read_variables(reading.newest(workdir)),
      held_out_text(run, config),
    )
  config = config.copy_and_resolve_references()
  config.model.vocab_size = config.model.vocab_size or CHARACTERS
  token_n = np.random.default_rng(config.seed).integers(0, config.model.vocab_size, size)
  batch = next(recurrence.segment_batches(token_n, 1, config.length))
  return config, own_step.initial_variables(lm.make(config), batch, config.seed), token_n


def plot(found: list[dict[str, Any]], output: str) -> None:
  """Draws the ratios of all arms against length."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.subplots()
  lengths = [each['length'] for each in found]
  for name in found[0]['ratio']:
    axes.loglog(lengths, [each['ratio'][name] for each in found], 'o-', label=name)
  axes.set(xlabel='attention length', ylabel='time per token over that of cached segments')
  axes.legend()
  FigureCanvasAgg(figure).print_png(pathlib.Path(output))
