"""The rows that are held out for a set of `config.evals`, and the objective that scores them."""

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax.data_contracts import HeldOutRows
from bertjax.errors import UserError, choose
from bertjax.evals.held_out.labelled import check_batch
from bertjax.examples import examples as examples_lib
from bertjax.examples import fit, loader
from bertjax.field_types import NONE, Count, Natural, Seed
from bertjax.metrics.progress import passing
from bertjax.options import override
from bertjax.store.reader import Store, open_beside
from bertjax.types import Batch, Context, Evaluation, Objective, Report, Subject, Variables

NOTHING = Evaluation(frozenset(), lambda variables, step: Report({}))  # where nothing is held out


class Options(NamedTuple):
  """The held-out rows of an evaluation, with their masks and changes to the model.

  Attributes:
    examples: rows in all, taken evenly from the held-out text; 0: every one.
    batch_size: rows of a batch.
    seed: seed of the masks, which are the same at every evaluation.
    length: tokens per row; 0: config.length.
    store: store of another text to judge on; '': what the run holds out.
    data: overrides of `config.data`: other masks than in training.
    model: overrides of `config.model` that leave the parameters as they are: a longer memory.
  """

  examples: Natural = 1024
  batch_size: Count = 64
  seed: Seed = 17
  length: Natural = 0
  store: str = ''
  data: Mapping[str, Any] = NONE
  model: Mapping[str, Any] = NONE


class HeldOut(NamedTuple):
  """Held-out rows, ready to be scored."""

  rows: HeldOutRows  # where they come from
  template: Batch  # a host batch of zeros in their shapes
  objective: Objective  # scores them
  # (variables, carry, device batch) -> (sums, carry)
  step: Callable[[Variables, Any, Batch], tuple[Any, Any]]
  # batch_size, examples: of the options
  batch_size: int
  examples: int
  put: Callable[[Batch], Any]  # global host batch -> global arrays

  def batches(self) -> Iterator[Batch]:
    """Host batches of the rows, each row once; the last one is padded with weight 0."""
    batches = loader.eval_batches(self.rows, self.batch_size, self.examples)
    rows = min(self.examples or self.rows.rows, self.rows.rows)
    return passing('Held-out batches', batches, -(-rows // self.batch_size))

  def carry(self) -> Any:
    """Returns the carry before the first batch."""
    return self.put(self.objective.carry(self.template))

  def first(self, rows: int) -> Iterator[tuple[Batch, int]]:
    """Batches of the first rows, and how many rows of each are among them; behind those are the
    rows that follow, and the first ones again."""
    for start in range(0, rows, self.batch_size):
      row_n = np.arange(start, start + self.batch_size) % self.rows.rows
      batch = self.rows.batch(row_n, shuffle=False)
      kept = {k: v for k, v in batch.items() if k != 'dropped_B'}
      yield kept, min(self.batch_size, rows - start)


def main_set(subject: Subject) -> tuple[Subject, Options]:
  """Returns the subject and the options of `config.evals.held_out`, whose rows an evaluation
  without rows of its own scores. Raises UserError if there is no such set of type 'loss'."""
  sets = {k: v for k, v in subject.config.evals.items() if v.type == 'loss'}
  if 'held_out' not in sets:
    raise UserError(
      f"{subject.key} scores the rows of config.evals.held_out: expected that set, of type 'loss', "
      f'got {", ".join(sets) or "none"}; name the set so'
    )
  options = Options(**{field: sets['held_out'][field] for field in Options._fields})
  return subject._replace(key='config.evals.held_out'), options


def hold_out(subject: Subject, options: Options) -> HeldOut | None:
  """Returns the rows of these options; None where the run has none. Sets with equal options share
  them.

  Raises UserError: overrides of fields that are not there or that change the parameters, a batch
  that the devices do not divide, rows longer than the position table, or overrides for a stream.
  """
  plain = lambda x: dict(x) if isinstance(x, Mapping) else x
  key = json.dumps([plain(x) for x in options], default=str)
  if key not in subject.shared:
    subject.shared[key] = _hold_out(subject, options)
  return subject.shared[key]


def _hold_out(subject: Subject, options: Options) -> HeldOut | None:
  check_batch(subject, options.batch_size)
  rows = _rows(subject, options)
  row = subject.template if rows is None else rows.batch(np.zeros(1, np.int64), shuffle=False)
  template = {
    k: np.zeros((options.batch_size, *v.shape[1:]), v.dtype)
    for k, v in row.items()
    if k != 'dropped_B'
  }
  objective = _objective(subject, options, template)
  if rows is None:
    return None
  step = subject.eval_step(objective)
  return HeldOut(rows, template, objective, step, options.batch_size, options.examples, subject.put)


def _rows(subject: Subject, options: Options) -> HeldOutRows | None:
  config, length = subject.config, options.length or subject.config.length
  if config.data.reader == 'seqio':
    changed = [*options.data, *(key for key in ('length', 'store') if getattr(options, key))]
    if changed:
      raise UserError(
        f'config.evals changes {", ".join(changed)} of the held-out rows, but a stream has its '
        "rows as they are: leave it as it is, or set config.data.reader='store'"
      )
    return subject.stream
  source = subject.held_out
  if options.store:
    source = _other_text(subject, options.store)
  if source is None:
    return None
  config = copy.deepcopy(config)
  override(config.data, options.data, 'config.evals: data')
  fit.check(config)
  # Word frequencies come from the training text, not the held-out sample.
  held_out = dataclasses.replace(source, counts=subject.store.counts)
  return examples_lib.make_examples(
    examples_lib.read_by(held_out, config.model), held_out_data(config.data), length,
    options.seed, subject.fallback, options.batch_size, examples_lib.tables_of(config.model),
  )  # fmt: skip


def _other_text(subject: Subject, store: str) -> Store:
  try:
    return open_beside(subject.store, store)
  except UserError as error:
    key = f'{subject.key}.store'
    raise UserError(
      f'{key}: {error}. Or judge on what the run itself holds out: --{key}= (to resume, with '
      f'--override={key.removeprefix("config.")})'
    ) from error


def _objective(subject: Subject, options: Options, template: Batch) -> Objective:
  changed = copy.deepcopy(subject.config)
  for name, value in options.model.items():
    choose(name, changed.model, 'config.evals: model')
    changed.model[name] = value
  changed.length = options.length or changed.length
  try:
    objective = subject.make(changed)
  except UserError as error:
    if not options.model:
      raise
    raise UserError(
      f'with what config.evals changes, model={dict(options.model)}: {error}'
    ) from error
  shape = lambda tree: jax.tree.map(lambda x: x.shape, tree)
  if shape(subject.shapes(objective, template)) != shape(subject.variables):
    raise UserError(
      f'config.evals: model={dict(options.model)} changes the shapes of parameters, which '
      'evaluation takes from training: override only what leaves them'
    )
  return objective


def score_names(subject: Subject, held_out: HeldOut) -> frozenset[str]:
  """Returns the names of the scores for these rows; nothing is compiled."""
  objective = held_out.objective

  def terms(variables, carry, batch):
    ctx = Context(jax.random.key(0), jax.numpy.int32(0), train=False)
    return objective.loss(variables, carry, batch, ctx).terms

  batch = dict(held_out.template, row_B=np.arange(held_out.batch_size, dtype=np.int32))
  carry = jax.eval_shape(objective.carry, held_out.template)
  found = jax.eval_shape(terms, subject.variables, carry, batch)
  return frozenset(objective.finish({k: (np.ones(t.total.shape), 1.0) for k, t in found.items()}))


def held_out_data(data: Any) -> Any:
  """`config.data` for evaluation: every example once, its masks for good, all that is hidden
  predicted."""
  changed = data.copy_and_resolve_references()
  for part, field, value in (
    (changed.plan, 'dupe_factor', 1), (changed.plan, 'drawn', 0), (changed.mask, 'static', True),
    (changed.mask, 'predicted', 0),
  ):  # fmt: skip
    if field in part:
      part[field] = value
  return changed
