"""The other side of a conversion: a run's workdir, read and written.

A converted model is a workdir with one checkpoint, of step 0 and without optimizer state: what
takes a run, `predict`, `embed`, `init_from`, takes it too.
"""

import importlib
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from bertjax import json_files
from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.checkpoint import finite, manifest, reading, resume
from bertjax.config import sections, timeline
from bertjax.errors import UserError, choose
from bertjax.machine import mirror, remote
from bertjax.models.layers import heads
from bertjax.models.layers.concat_pool import STATISTICS
from bertjax.objectives.combine import task_heads
from bertjax.sources import foreign
from bertjax.types import FIT
from bertjax.vocab.vocabulary import Vocabulary, read_vocabulary


class Run(NamedTuple):
  """A run that is read."""

  workdir: pathlib.Path
  checkpoint: pathlib.Path  # directory of the one that is taken
  # resolved, with the model of the last step's phase; of one of several tasks as a run on it alone
  # would have it
  config: Any
  vocabulary: Vocabulary | None
  # of a run on several of which none was chosen: then the config has no heads and no task, and the
  # parameters those of all
  tasks: tuple[str, ...] = ()
  task: str = ''  # that was chosen
  beside: tuple[Any, ...] = ()  # `config.model` of each phase, where all are trained throughout

  @property
  def step(self) -> int:
    """Steps taken at the checkpoint."""
    return int(self.checkpoint.name)

  @property
  def meta(self) -> dict[str, Any]:
    """The metadata that was saved beside the state."""
    return manifest.read(self.checkpoint)['meta']

  @property
  def imported_classes(self) -> dict[str, tuple[str, ...]]:
    """Head -> the names that a model from elsewhere had for its classes; its config has no task."""
    return {head: tuple(names) for head, names in self.meta.get('classes', {}).items()}

  @property
  def scores(self) -> dict[str, float]:
    """Scores of the evaluation after that step; {} without one."""
    return manifest.read_scores(self.checkpoint) or {}

  def params(self) -> Any:
    """Returns the parameters of the model, as arrays of one device; of several processes each has
    them as NumPy arrays."""
    found = reading.read_variables(self.checkpoint)['params']
    if jax.process_count() == 1:
      found = jax.device_put(found, jax.devices()[0], may_alias=True)
    found = {name: tree for name, tree in found.items() if name != FIT}
    return task_heads.of_task(found, self.task) if self.task else found

  def statistics(self) -> Any:
    """Returns the running statistics of its heads' norms, NumPy arrays; {} where it has none."""
    return reading.read_variables(self.checkpoint).get(STATISTICS, {})


def open_run(workdir: pathlib.Path | str, step: int | str | None = None, task: str = '') -> Run:
  """Finds config, checkpoint and vocabulary of a workdir, or of one of its checkpoints. `step`: of
  the checkpoint, 'best' by `config.best`, None the newest intact one; `task`: of a run on several,
  whose head is meant. UserError: no run, checkpoint or task of that name, or none intact."""
  if foreign.is_source(str(workdir)):
    raise UserError(
      f'the model: expected the workdir of a run, got {workdir}; python -m bertjax.convert '
      '--from=FORMAT --input=PATH --output=RUN makes one of it'
    )
  hub = str(workdir).startswith(foreign.HUB)
  if hub or not remote.is_remote(workdir) and not pathlib.Path(workdir).exists():
    raise foreign.nothing_at(str(workdir), 'the model')
  workdir, fetch = mirror.opened(workdir)
  if (workdir / manifest.NAME).is_file():
    own = workdir.name
    if not own.isdecimal() or (step is not None and str(step) != own):
      raise UserError(
        f'{workdir} is a checkpoint, and step={step} was asked for: expected a checkpoint under '
        'the name that the run gave it, its step, and no other one; or the workdir of the run'
      )
    step, workdir = int(own), workdir.parent.parent
  config: Any = resume.stored_config(workdir)
  checkpoint = reading.choose(workdir, step, config.best, fetch)
  vocabulary = vocabulary_of(workdir, config)
  line = timeline.make(config)
  names = tuple(phase.name for phase in line.drawn)
  if task:
    if not names:
      raise UserError(f'--task={task}: {workdir} has one task alone, if any: leave it out')
    choose(task, names, f'--task of {workdir}')
    config = line.drawn[names.index(task)].config
    return Run(workdir, checkpoint, config, vocabulary, task=task)
  config.model = model_at(config, int(checkpoint.name))
  if names:  # the config of its encoder
    model, none = config.model, heads.fields(False, ())
    model.update({key: none[key] for key in ('labels', 'token_labels', 'answers') if key in model})
    config.data.task = ConfigDict()
  beside = tuple(part.config.model for part in line.parts) if line.side_by_side else ()
  return Run(workdir, checkpoint, config, vocabulary, names, beside=beside)


def model_at(config: Any, step: int) -> ConfigDict:
  """`config.model` as it was in the last of so many steps: phases that follow each other may change
  it, as ModernBERT's last ones do theta."""
  phases = timeline.make(config)
  if phases.side_by_side:
    return config.model
  last, _ = phases.at(min(max(step, 1), phases.total) - 1)
  return phases.phases[last].config.model


def languages_of(workdir: pathlib.Path, config: Any) -> tuple[str, ...]:
  """Returns the languages of a run in the order of their ids: the config's, or its store's where
  that is at hand; () where nothing says them."""
  return tuple(config.data.languages or store_of(workdir, config).get('languages') or ())


def store_of(workdir: pathlib.Path, config: Any) -> dict[str, Any]:
  """Returns the store.json of a run's store; {} where that is not at hand."""
  meta = pathlib.Path(config.data.store or workdir / 'store', 'store.json')
  return json_files.read(meta) if meta.is_file() else {}


def vocabulary_of(workdir: pathlib.Path, config: Any) -> Vocabulary | None:
  """Returns the vocabulary of a run: its own copy, or that of the store it was trained on."""
  for directory in (
    workdir / resume.VOCAB,
    pathlib.Path(config.data.store or workdir / 'store', resume.VOCAB),
  ):
    if directory.is_dir() and any(directory.iterdir()):
      return read_vocabulary(directory)
  return None


def recipe_of(name: str) -> Any:
  """Returns the config of a family's recipe at its default size."""
  config = importlib.import_module(f'configs.{name}').get_config(None)
  sections.complete(config)
  return config.copy_and_resolve_references()


def write_run(
  output: pathlib.Path,
  config: ConfigDict,
  params: Mapping[str, Any],
  vocabulary: Vocabulary | None,
  meta: Mapping[str, Any],
) -> None:
  """Writes a workdir, an empty directory, with one checkpoint of step 0: the whole config with the
  model of the parameters, its vocabulary, and `meta`. UserError: parameters are not finite."""
  # Without a copy, where the memory of an array allows it.
  put = lambda x: jax.device_put(x, jax.devices()[0], may_alias=True)
  state = dict(variables=dict(params=jax.tree.map(put, dict(params))))
  finite.require(state, 'the model', ': nothing is written, take another one')
  saver = checkpoints_lib.Checkpoints(output / 'checkpoints', 1, config.best)
  try:
    sha256 = vocabulary.sha256 if vocabulary else None
    saver.save(0, state, dict(meta, vocabulary=sha256), wait=True)
  finally:
    saver.close()
  resume.keep_vocabulary(output, vocabulary)
  resume.claim_workdir(output, config, {})
