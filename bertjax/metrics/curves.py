"""Draws the curves of one run or several: python -m bertjax.metrics.curves RUN [RUN ...]

Reads RUN/metrics.jsonl only: training loss, held-out loss on [MASK] positions against the unigram,
learning rate, speed.
"""

import argparse
import logging
import pathlib
from collections.abc import Sequence
from typing import Any

from bertjax.errors import UserError, door, nearest, writing
from bertjax.machine import remote
from bertjax.metrics import lines

COLORS = ('#2a6fbb', '#d1495b', '#3a9d5d', '#8e5ea2', '#e08e2b', '#5c6770')

TITLES = ('training loss', 'held-out loss on [MASK] positions', 'learning rate', 'speed')
UNITS = ('nats', 'nats per token', '', 'real tokens per second')


def read(workdir: pathlib.Path | str) -> list[dict[str, float]]:
  """Returns the lines of a run's metrics.jsonl. Raises UserError if the file is missing or empty,
  or a line of it is torn."""
  rows = lines.of_run(workdir)
  if not rows:
    raise UserError(f'expected a run with metrics.jsonl, got {workdir}: nothing is logged there')
  return rows


def series(rows: Sequence[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
  """Steps and values of a metric, where it was logged."""
  found = [(row['step'], row[name]) for row in rows if name in row]
  return [step for step, _ in found], [value for _, value in found]


def plot(
  workdirs: Sequence[pathlib.Path | str], output: pathlib.Path | str | None = None
) -> pathlib.Path:
  """Draws runs over each other, named after their directories, to a picture: by default curves.png
  in the run, or here if there are several or it is elsewhere. UserError: a run without metrics."""
  # It keeps its list of fonts in the home directory, or says at length that it may not.
  logging.getLogger('matplotlib').setLevel(logging.ERROR)
  from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import: not at start-up
  from matplotlib.figure import Figure

  here = len(workdirs) > 1 or remote.is_remote(workdirs[0])
  home = pathlib.Path() if here else pathlib.Path(workdirs[0])
  output = pathlib.Path(output or home / 'curves.png')
  names = [remote.path(w).resolve().name for w in workdirs]
  if len(set(names)) < len(names):
    names = [str(w) for w in workdirs]
  runs = {name: read(w) for name, w in zip(names, workdirs, strict=True)}
  figure = Figure(figsize=(11, 7), layout='constrained')
  axes = figure.subplots(2, 2, sharex=True)
  for index, (name, rows) in enumerate(runs.items()):
    _draw(axes.flat, rows, name, COLORS[index % len(COLORS)])
  for axis, title, unit in zip(axes.flat, TITLES, UNITS, strict=True):
    axis.set_title(title, fontsize=11, loc='left')
    axis.set_ylabel(unit, fontsize=9)
    axis.grid(alpha=0.25)
    axis.spines[['top', 'right']].set_visible(False)
    axis.tick_params(labelsize=9, labelbottom=True)
    axis.ticklabel_format(axis='y', scilimits=(-3, 5), useMathText=True)
  for axis in axes[0]:
    axis.legend(frameon=False, fontsize=9)
  for axis in axes[1]:
    axis.set_xlabel('step', fontsize=9)
    axis.set_ylim(bottom=0)
  with writing('the curves', output):
    FigureCanvasAgg(figure).print_png(str(output))
  return output


def _draw(axes: Any, rows: Sequence[dict[str, float]], name: str, color: str) -> None:
  loss, held_out, lr, speed = axes
  steps, values = series(rows, 'loss')
  loss.plot(steps, values, color=color, alpha=0.25, linewidth=1)
  loss.plot(steps, _smooth(values), color=color, linewidth=1.8, label=name)
  steps, values = series(rows, 'eval/mlm_masked')
  held_out.plot(steps, values, color=color, marker='o', markersize=4, linewidth=1.8, label=name)
  steps, values = series(rows, 'eval/unigram_entropy')
  held_out.plot(steps, values, color=color, linestyle='--', linewidth=1.2, label='its unigram')
  lr.plot(*series(rows, 'lr'), color=color, linewidth=1.8)
  speed.plot(*series(rows, 'tokens_per_second'), color=color, linewidth=1.4)


def _smooth(values: Sequence[float]) -> list[float]:
  """Mean over a window around each value, a tenth of the curve wide; it lags behind nothing."""
  half = len(values) // 20
  windows = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
  return [sum(window) / len(window) for window in windows]


def main() -> None:
  """Parses the command line."""
  parser = argparse.ArgumentParser(prog='python -m bertjax.metrics.curves', description=__doc__)
  parser.add_argument('runs', nargs='+', metavar='RUN', help='workdirs')
  parser.add_argument('--output', help='default: RUN/curves.png, ./curves.png for several runs')
  arguments, others = parser.parse_known_args()
  if others:
    name = others[0].partition('=')[0].lstrip('-')
    hint = nearest(name, ['output']) or ': see --help'
    raise UserError(f'there is no flag --{name}{hint}')
  print(plot(arguments.runs, arguments.output))


if __name__ == '__main__':
  with door('bertjax.metrics.curves'):
    main()
