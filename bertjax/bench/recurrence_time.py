"""The parts of the recurrence bench: the two arms as calls, the sweep over rows, the plot."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bertjax.bench import own_step, timing
from bertjax.checkpoint import reading
from bertjax.data import ensure_store, layout
from bertjax.data.column_stream import ColumnStream
from bertjax.data.store.reader import open_store
from bertjax.errors import UserError
from bertjax.evals import recurrence
from bertjax.objectives import lm
from bertjax.train import setup
from bertjax.types import Ranges

CHARACTERS = 256  # vocabulary of random text

Call = Callable[[], Any]


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


def speed(
  config: Any, variables: Any, token_n: np.ndarray, length: int, segment: int, keys: int, calls: int
) -> dict[str, Any]:
  """Tokens per second of both ways at one attention length, and their ratio.

  Args:
    config: the run's.
    variables: the model's.
    token_n: any text.
    length: keys of each position.
    segment: positions of a cached batch.
    keys: most rows times keys of a batch.
    calls: timed calls of each way, after three that are not.
  """
  ways = dict(
    cached=recurrence.cached(config, length, segment), windows=recurrence.windows(config, length)
  )
  tokens = dict(cached=segment, windows=1)
  width = dict(cached=length + segment, windows=length)

  def batch(name: str, rows: int):
    if name == 'windows':
      return recurrence.window_batch(token_n, np.full(rows, length), length)
    text_n = np.resize(token_n, rows * (segment + 1))
    return next(recurrence.segment_batches(text_n, rows, segment))

  make = lambda name: lambda rows: timed_call(ways[name], variables, batch(name, rows))
  rates = {name: sweep(make(name), tokens[name], keys // width[name]) for name in ways}
  rows = {name: max(found, key=lambda r, found=found: found[r]) for name, found in rates.items()}
  seconds = timing.alternate({name: make(name)(rows[name]) for name in ways}, calls, 3)
  each = {name: float(np.median(seconds[name])) / (rows[name] * tokens[name]) for name in ways}
  ratio = each['windows'] / each['cached']
  return dict(
    length=length,
    segment=segment,
    ratio=round(ratio, 1),
    ratio_per_key=round(ratio / length, 3),
    **{
      name: dict(
        rows=rows[name],
        **timing.summary(seconds[name], rows[name] * tokens[name], 'tokens'),
        sweep=rates[name],
      )
      for name in ways
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
  """Draws ratio against length, with the line of 0.45 a key that is expected of it."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.subplots()
  lengths = [each['length'] for each in found]
  axes.loglog(lengths, [each['ratio'] for each in found], 'o-', label='measured')
  axes.loglog(lengths, [0.45 * length for length in lengths], '--', label='0.45 x length')
  axes.set(xlabel='attention length', ylabel='time per token, windows / cached')
  axes.legend()
  FigureCanvasAgg(figure).print_png(pathlib.Path(output))
