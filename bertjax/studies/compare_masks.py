"""Compares several kinds of masks on one text, on a page.

  python -m bertjax.studies.compare_masks --config=configs/spanbert.py:tiny --workdir=runs/masks \
      --page=docs/masking.md --seeds=3 --config.data.store=STORE --config.total_steps=6000

Every arm sees the same text in the same order for as many steps, from the same initial weights;
only what is masked differs. All are judged by one measure that none but the spans was trained on:
the held-out loss at masked tokens of random spans, the same ones for all. Runs go to
WORKDIR/ARM-SEED and are not repeated when they are there.
"""

import pathlib
import statistics
import sys
from typing import Any, NamedTuple

from absl import flags, logging
from ml_collections import config_flags

from bertjax.config import command_line
from bertjax.errors import UserError, choose, door
from bertjax.metrics import curves
from bertjax.storage import remote

METRIC, UNIGRAM = 'eval/mlm_masked', 'eval/unigram_entropy'


class Arm(NamedTuple):
  """One way to mask.

  Attributes:
    label: in the page.
    mask: changes of `config.data.mask` of SpanBERT.
    boundary: with the boundary objective.
    paper: SQuAD 2.0 F1 in Joshi et al. 2019, with pairs and NSP; '' where there is no such row.
  """

  label: str
  mask: dict[str, Any]
  boundary: bool = False
  paper: str = ''


ARMS = dict(
  tokens=Arm('random tokens', dict(rule='tokens'), paper='83.8'),
  words=Arm('whole words', dict(max_words=1), paper='84.3'),
  entities=Arm('entities', dict(max_words=1, entity_prob=0.5), paper='84.8'),
  spans=Arm('random spans', {}, paper='85.4'),
  boundary=Arm('random spans and boundary', {}, boundary=True),
)

_CONFIG = config_flags.DEFINE_config_file('config', None, 'configs/spanbert.py:SIZE.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the runs.')
_PAGE = flags.DEFINE_string('page', None, 'Markdown to write, with a .png of its name beside it.')
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Runs of each arm.', lower_bound=1)
_ARMS = flags.DEFINE_list('arms', list(ARMS), f'Of {", ".join(ARMS)}.')
flags.mark_flags_as_required(['config', 'workdir', 'page'])


def arm_config(config: Any, arm: Arm, seed: int) -> Any:
  """The run of an arm: SpanBERT's with these masks, judged on random spans."""
  config = config.copy_and_resolve_references()
  with config.unlocked():
    # Spans as in the config that was given, all of them shown as [MASK].
    asked = dict(config.data.mask, mask_share=1.0, random_share=0.0)
    config.evals.held_out.data = dict(mask=asked)
    config.data.mask.update(arm.mask)
    if arm.boundary:
      config.objective.gradient_scale = 1.0  # as the other arms
    else:
      config.model.name, config.objective = 'bert', dict(name='mlm', plus=0.0)
      del config.model.boundary_positions, config.model.boundary_width
  config.seed = seed
  config.name = f'{config.name}-{arm.label.replace(" ", "-")}-{seed}'
  return config


def train_arms(config: Any, workdir: pathlib.Path, arms: list[str], seeds: int) -> None:
  """Trains what is not there yet, seed by seed.

  Raises:
    UserError: an unknown arm, a config that is not SpanBERT's, or a store without the units that
      an arm needs.
  """
  for name in arms:
    choose(name, ARMS, '--arms')
  if config.objective.name != 'span_boundary':
    raise UserError(f'--config must be of configs/spanbert.py, got {config.name!r}')
  from bertjax.data import ensure_store
  from bertjax.data.store.reader import open_store
  from bertjax.train import loop as train_loop  # slow to import

  workdir.mkdir(parents=True, exist_ok=True)
  config.data.store = str(ensure_store.ensure_store(config.data, config.seed, str(workdir)))
  if any('entity_prob' in ARMS[name].mask for name in arms):
    open_store(config.data.store).check_units()
  for seed in range(seeds):
    for name in arms:
      run = workdir / f'{name}-{seed}'
      if not _finished(run, config.total_steps):
        train_loop.run(arm_config(config, ARMS[name], seed), str(run))


def _finished(run: pathlib.Path, steps: int) -> bool:
  if not (run / 'metrics.jsonl').exists():
    return False
  return steps in curves.series(curves.read(run), METRIC)[0]


def losses(
  workdir: pathlib.Path, arms: list[str], seeds: int
) -> dict[str, list[dict[float, float]]]:
  """arm -> for each seed the held-out loss on random spans by step."""
  runs = {name: [workdir / f'{name}-{seed}' for seed in range(seeds)] for name in arms}
  read = lambda run: dict(zip(*curves.series(curves.read(run), METRIC), strict=True))
  return {name: [read(run) for run in paths] for name, paths in runs.items()}


def unigram(workdir: pathlib.Path, arm: str) -> float:
  """The loss of the training unigram on the same targets."""
  return curves.series(curves.read(workdir / f'{arm}-0'), UNIGRAM)[1][-1]


def table(found: dict[str, list[dict[float, float]]]) -> list[str]:
  """The lines of a Markdown table of the last losses, and of each arm's gap to the first one.

  The gap is a mean over seeds of differences within a seed, with the least and the largest.
  """
  last = {name: [by_step[max(by_step)] for by_step in runs] for name, runs in found.items()}
  first = next(iter(last))
  lines = [
    f'| masked in training | loss on random spans | least | largest | against {ARMS[first].label} '
    '| least | largest | SQuAD 2.0 F1 in the paper |',
    '|---|--:|--:|--:|--:|--:|--:|--:|',
  ]
  for name, values in last.items():
    gap = [ours - theirs for ours, theirs in zip(values, last[first], strict=True)]
    cells = [f'{f(values):.4f}' for f in (statistics.mean, min, max)]
    cells += [f'{f(gap):+.4f}' for f in (statistics.mean, min, max)] if name != first else [''] * 3
    lines.append(f'| {ARMS[name].label} | {" | ".join(cells)} | {ARMS[name].paper} |')
  return lines


def plot(found: dict[str, list[dict[float, float]]], level: float, output: pathlib.Path) -> None:
  """Draws each arm's mean over the seeds by step, within the range of the seeds."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
  from matplotlib.figure import Figure

  figure = Figure(figsize=(8, 5), layout='constrained')
  axis = figure.subplots()
  for color, (name, runs) in zip(curves.COLORS, found.items(), strict=False):
    steps = sorted(set.intersection(*(set(by_step) for by_step in runs)))
    values = [[by_step[step] for by_step in runs] for step in steps]
    axis.plot(steps, [statistics.mean(v) for v in values], color=color, label=ARMS[name].label)
    low, high = [min(v) for v in values], [max(v) for v in values]
    axis.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
  axis.axhline(level, color='gray', linestyle='--', linewidth=1.2, label='unigram')
  axis.set_xlabel('step')
  axis.set_ylabel('nats per token')
  axis.set_title('held-out loss on masked random spans', loc='left')
  axis.grid(alpha=0.25)
  axis.spines[['top', 'right']].set_visible(False)
  axis.legend(frameon=False)
  FigureCanvasAgg(figure).print_png(str(output))


def page(config: Any, found: dict[str, list[dict[float, float]]], level: float, image: str) -> str:
  """The page as Markdown."""
  m, seeds = config.model, len(next(iter(found.values())))
  return '\n'.join(
    [
      '# What should be masked?',
      '',
      'The arms of the comparison in SpanBERT (Joshi et al. 2019), on the same text at equal '
      'steps, judged by the held-out loss at masked tokens of random spans, in nats.',
      '',
      f'{m.layers} layers of width {m.width}, {config.total_steps} steps of {config.batch_size} '
      f'rows of up to {config.length} tokens, {seeds} seeds. The unigram of the training text has '
      f'{level:.4f} on the same targets.',
      '',
      *table(found),
      '',
      f'![held-out loss on masked random spans]({image})',
      '',
      'Written by `python -m bertjax.studies.compare_masks`:',
      '',
      '    ' + ' '.join(sys.argv[1:]),
      '',
    ]
  )


def main() -> None:
  """Trains the arms and writes the page and its picture."""
  remote.require_local(_WORKDIR.value, '--workdir')
  config, workdir = _CONFIG.value.copy_and_resolve_references(), pathlib.Path(str(_WORKDIR.value))
  arms, seeds, output = list(_ARMS.value or ()), _SEEDS.value, pathlib.Path(str(_PAGE.value))
  logging.set_verbosity(logging.WARNING)
  train_arms(config, workdir, arms, seeds)
  found, level = losses(workdir, arms, seeds), unigram(workdir, arms[0])
  image = output.with_suffix('.png')
  plot(found, level, image)
  output.write_text(page(config, found, level, image.name), encoding='utf-8')
  sys.stdout.write('\n'.join(table(found)) + f'\n{output}\n')


if __name__ == '__main__':
  with door('bertjax.studies.compare_masks'):
    command_line.run(main, 'bertjax.studies.compare_masks')
