"""Judges trained arms alike: by a task that each is fine-tuned on, a linear probe on its texts,
minimal pairs, and whether a sentence is nearest to the one behind it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.comparison import arms
from bertjax.comparison.arms import Arm
from bertjax.comparison.runs import PEAK, Run
from bertjax.config import command_line
from bertjax.errors import UserError
from bertjax.evals import linear_probe
from bertjax.examples.labelled import classify
from bertjax.examples.labelled.common import from_config, records
from bertjax.launch import grid
from bertjax.machine import checksums, durable
from bertjax.text import sentence_split
from bertjax.text.corpus import open_files
from bertjax.tools.bench.parts import own_step
from bertjax.train import resolve
from bertjax.use import vectors
from bertjax.use.model import Model

PAIR = ('sentence_good', 'sentence_bad')  # columns of BLiMP (Warstadt et al. 2020)
NAME = 'scores.json'
TUNED = 'tuned,peak='  # and the rate: in a run's directory, what is fine-tuned from it
NEIGHBOURS = 1000  # pairs of sentences at most
WORDS = 5  # of such a sentence at least


class Tasks(NamedTuple):
  """The tasks of a comparison."""

  file: str = ''  # config of the task, of configs/finetune; '': none
  point: Mapping[str, str] = {}  # keys that it changes
  config: Any = None
  peaks: Sequence[str] = ()  # learning rates of fine-tuning
  pairs: Sequence[tuple[str, str]] = ()  # a good and a bad sentence each
  neighbours: Sequence[tuple[str, str]] = ()  # a sentence and the one behind it

  @property
  def probed(self) -> bool:
    """True if a linear classifier can be fitted: to one class of each text."""
    task = self.config.data.task if self.file else None
    return bool(task and task.name == 'classify' and task.classes and not task.several)

  def flags(self, arm: Arm) -> list[str]:
    """Returns flags by which an arm is probed while it is trained, if its objective can be."""
    config = arm.config.copy_and_resolve_references()
    objective = own_step.objective_of(own_step.sized(config, config.batch_size, config.length))
    if not self.probed or 'linear_probe' not in objective.evals:
      return []
    data = self.config.data
    fields = {key: data.task[key] for key in ('text', 'label', 'classes', 'header')}
    fields |= dict(train=data.train, dev=data.dev, examples=self.examples)
    return [f'--config.evals.linear_probe.{key}={value}' for key, value in fields.items()]

  @property
  def texts(self) -> dict[str, str]:
    """The sha256 of what was read, by a name for people: part of what all runs have in common."""
    own = {
      f'--finetune, data.{key}': self.config.data[key] for key in ('train', 'dev') if self.file
    }
    read = {'--pairs': self.pairs, '--heldout': self.neighbours}
    found = {name: records.sha256(path) for name, path in own.items()}
    found |= {name: checksums.digest(value) for name, value in read.items() if value}
    return {f'sha256 of {name}': sha256[:12] for name, sha256 in found.items()}

  @property
  def judges(self) -> dict[str, Callable[[Model, 'Tasks'], dict[str, Any]]]:
    """The functions that score a model, by name: those that there are texts for."""
    found = dict(minimal_pairs=_minimal_pairs) if self.pairs else {}
    found |= dict(probe=_probe) if self.probed else {}
    return found | (dict(neighbours=_nearest) if self.neighbours else {})

  @property
  def examples(self) -> int:
    """Number of examples that a linear classifier is fitted to."""
    return self.config.data.examples or linear_probe.Options().examples

  def tuning(self, run: Run) -> list[Run]:
    """Returns the runs that fine-tune a finished one, by its seed, one for each rate."""
    found = []
    for peak in self.peaks:
      own = {**self.point, PEAK: peak, 'init_from': str(run.directory), 'seed': str(run.seed)}
      flags = [f'--config={self.file}', *(f'--config.{key}={value}' for key, value in own.items())]
      name, home = f'{run.name}, fine-tuned with peak={peak}', run.directory / f'{TUNED}{peak}'
      found.append(Run(name, home, flags, run.seed, run.arm))
    return found


def make(
  file: str, changes: Sequence[str], pairs: str, heldout: str = '', rates: Sequence[float] = (1.0,)
) -> Tasks:
  """Reads the files of --finetune, --pairs and --heldout, where that names files; `rates` are
  factors of the peak rate of fine-tuning. Raises UserError: no such file, columns or classes, or a
  config that cannot be."""
  both = lambda row: (records.string(row, PAIR[0]), records.string(row, PAIR[1]))
  found = [both(row) for row in records.read(pairs, PAIR)] if pairs else []
  if pairs and not found:
    raise UserError(f'--pairs={pairs} has no pairs: expected lines with {" and ".join(PAIR)}')
  beside = _neighbours(heldout) if heldout else []
  if not file:
    return Tasks(pairs=found, neighbours=beside)
  point = arms.keys(changes, '--finetune_set')
  config = grid.changed_by(command_line.load(file), point, '--finetune_set')
  config = resolve.counted(resolve.resolve(config)).config
  data = config.data
  for key in ('train', 'dev'):
    try:
      rows = from_config.read_records(config, data[key], f'config.data.{key}', 0)
      if data.task.name == 'classify':
        classify.labels(rows, from_config.task_of(data.task)[1])
    except UserError as error:
      raise UserError(
        f'--finetune={file}: {error}. Its keys are given by --finetune_set, as in '
        '--finetune_set=data.task.text=sentence'
      ) from error
  peaks = [f'{config.optimizer.schedule.peak * rate:.6g}' for rate in rates]
  return Tasks(file, point, config, peaks, found, beside)


def _neighbours(heldout: str) -> list[tuple[str, str]]:
  """Returns sentences of a text, each with the one behind it in its line and none of them twice,
  evenly from all of the text."""
  found: list[tuple[str, str]] = []
  for batch in open_files(heldout).texts():
    lines = (line for text in batch for line in text.decode().split('\n'))
    for line in lines:
      said = sentence_split.split_sentences(line)
      both = zip(said[::2], said[1::2], strict=False)
      found += [pair for pair in both if min(len(each.split()) for each in pair) >= WORDS]
  return [found[i] for i in np.linspace(0, len(found) - 1, min(len(found), NEIGHBOURS), dtype=int)]


def is_scored(run: Run) -> bool:
  """Returns True if a run has its scores."""
  return (run.directory / NAME).exists()


def score(run: Run, tasks: Tasks) -> int:
  """Writes RUN/scores.json: what a finished run says of minimal pairs, its linear probe and the
  neighbours that it finds by layer; of what its kind cannot do the reason. Returns 1 where the run
  cannot be opened, with a line that says why, else 0."""
  try:
    model = Model.load(run.directory)
  except UserError as error:
    print(f'no scores of {run.name}: {error}', flush=True)
    return 1
  found, refused = {}, {}
  for name, judge in tasks.judges.items():
    try:
      found |= judge(model, tasks)
    except UserError as error:
      refused[name] = str(error)
  durable.write_json(run.directory / NAME, dict(scores=found, refused=refused))
  return 0


def _minimal_pairs(model: Model, tasks: Tasks) -> dict[str, Any]:
  good, bad = (model.score([pair[i] for pair in tasks.pairs]) for i in (0, 1))
  return judged([(a.log_likelihood, b.log_likelihood) for a, b in zip(good, bad, strict=True)])


def judged(likelihoods: Sequence[tuple[float, float]]) -> dict[str, float]:
  """Returns the share of pairs whose good sentence is likelier; a tie is wrong, and counted."""
  difference_n = np.subtract(*np.array(likelihoods, np.float64).T)
  return dict(
    minimal_pairs=float(np.mean(difference_n > 0)),
    minimal_pairs_ties=float(np.mean(difference_n == 0)),
  )


def _probe(model: Model, tasks: Tasks) -> dict[str, Any]:
  """Accuracy of a linear classifier on the mean vectors of each layer."""
  data, sides = tasks.config.data, []
  layers = _layers(model)
  for key, most in (('train', tasks.examples), ('dev', 0)):
    rows = from_config.read_records(tasks.config, data[key], f'config.data.{key}', most)
    texts = [' '.join(records.string(row, name) for name in data.task.text) for row in rows]
    labels = [data.task.classes.index(records.string(row, data.task.label)) for row in rows]
    sides.append((model.embed(texts, 'mean', layers, cut=True), np.array(labels)))
  (train, train_n), (dev, dev_n) = sides
  fits = [linear_probe.fitted(train[:, i], train_n, dev[:, i]) for i in range(len(layers))]
  return dict(probe=[float(np.mean(found_n == dev_n)) for found_n in fits])


def _nearest(model: Model, tasks: Tasks) -> dict[str, Any]:
  """Share of sentences that are nearest to the one behind them, by the mean vectors of a layer.
  UserError: there is one pair, where any vectors are right."""
  if len(tasks.neighbours) < 2:
    raise UserError(
      f'--heldout has one pair of sentences of {WORDS} words and more: expected others, among '
      'which it is to be found'
    )
  layers, sides = _layers(model), zip(*tasks.neighbours, strict=True)
  first, behind = (model.embed(each, 'mean', layers, cut=True) for each in sides)
  return dict(neighbours=[retrieved(first[:, i], behind[:, i]) for i in range(len(layers))])


def retrieved(first_nD: np.ndarray, behind_nD: np.ndarray) -> float:
  """Returns the share of rows that are nearer to the same row of the other array, by the cosine,
  than to any other row; a tie is wrong."""
  cosine_nn = vectors.normalized(first_nD) @ vectors.normalized(behind_nD).T
  own_n = np.diag(cosine_nn).copy()
  np.fill_diagonal(cosine_nn, -np.inf)
  return float(np.mean(own_n > cosine_nn.max(1)))


def _layers(model: Model) -> list[int]:
  return [*range(1, model.net.layers + 1)]
