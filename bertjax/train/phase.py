"""A phase of a run: its objective, its batches, its compiled train step, and what judges it."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import flax.linen as nn
import jax
import numpy as np
import optax

from bertjax import sharding
from bertjax.config.timeline import Combined
from bertjax.data_contracts import PREFIX
from bertjax.examples import loader, readers
from bertjax.objectives import combine
from bertjax.optim import optimizer
from bertjax.train import layer_norms
from bertjax.train import step as step_lib
from bertjax.train.evaluation import EvalSet
from bertjax.types import Batch, Objective, Subject


@dataclasses.dataclass(eq=False)
class Phase:
  """One phase, ready to be compiled; `setup.make_run` makes them."""

  name: str
  subject: Subject  # its config, objective, shapes and stores
  batches: loader.Batches | loader.Together  # of the rows to train on
  # tx, schedule: the optimizer
  tx: optax.GradientTransformationExtraArgs
  schedule: Callable
  devices: sharding.Devices  # of the run
  axes: Any  # tree like the parameters with a tuple of logical axis names at every leaf
  evals: tuple[EvalSet, ...]  # what judges the model while this phase runs
  rules: str  # which rules of the optimizer decide which parameters, as a table for people
  parts: tuple['Phase', ...] = ()  # those that it trains as one, see `together`; () of any other
  _stream: Iterator | None = None
  _train: dict[Any, Any] = dataclasses.field(default_factory=dict)  # by `_shapes`
  _abstract: Any = None

  @property
  def config(self) -> Any:
    """The run's config with the overrides of the phase, references resolved."""
    return self.subject.config

  @property
  def objective(self) -> Objective:
    """The training system."""
    return self.subject.objective

  @property
  def examples(self) -> Any:
    """The rows to train on, of a phase without parts."""
    return self.batches.examples  # pyright: ignore

  @property
  def template(self) -> Batch:
    """A host batch of zeros in the shapes of the phase."""
    return self.subject.template

  def initial_variables(self, seed: int) -> Any:
    """Returns the variables before the first step, unboxed; a pure function of the seed."""
    zeros = {k: np.zeros((1, *v.shape[1:]), v.dtype) for k, v in self.template.items()}
    return nn.meta.unbox(self.objective.init(jax.random.key(seed), zeros))

  def takes(self, batch: Batch) -> bool:
    """Returns whether the step is compiled for the row lengths of this batch."""
    return _shapes(batch) in self._train

  def compile(self, abstract: step_lib.State, batch: Batch | None = None) -> None:
    """Compiles the train step, once for rows as long as those of the batch, None: the template,
    with shardings pinned: a leaf that drifts would retrace. The state that a step takes is
    donated. From then on `train` takes batches of any row length."""
    self._abstract = abstract
    self._step_for(self.template if batch is None else batch)

  def _step_for(self, batch: Batch) -> Callable:
    """Returns the step for rows as long as these, compiled at its first use: labelled rows have
    several lengths."""
    key = _shapes(batch)
    if key not in self._train:
      watched = bool(self.config.skip_nonfinite or self.config.spike)
      function = self._step_function(watched)
      shardings = jax.tree.map(lambda x: x.sharding, self._abstract)
      rows = jax.sharding.NamedSharding(self.devices.mesh, sharding.batch_spec())
      abstract = {}
      for name, x in batch.items():
        like = self.template[name]  # of all hosts' rows
        shape = len(like), *x.shape[1:]
        abstract[name] = jax.ShapeDtypeStruct(shape, like.dtype, sharding=rows)
      rate = jax.ShapeDtypeStruct((), np.float32, sharding=self._abstract.step.sharding)
      self._train[key] = self.devices.compile(
        function,
        (self._abstract, abstract, np.uint32(self.config.seed), rate),
        donate_argnums=0,
        out_shardings=(shardings, None),
      )
    return self._train[key]

  def norms(self, state: step_lib.State, batch: Batch) -> layer_norms.Norms:
    """Returns the norms of parameters, gradients and updates in the step that `train` would take,
    by a program of its own."""
    function = self._step_function(True)
    arguments = self._arguments(state, batch)
    return self.devices.compile(lambda *given: function(*given)[1]['norms'], arguments)(*arguments)

  @functools.cached_property
  def _rate(self) -> Callable:
    """The learning rate at a step, made where the step is: nobody waits for its number."""
    return jax.jit(self.schedule)

  def _arguments(self, state: step_lib.State, batch: Batch) -> tuple[Any, ...]:
    """Returns the arguments of the step: state, batch on the devices, seed, learning rate."""
    batch = sharding.put_batch(batch, self.devices.mesh)
    return state, batch, np.uint32(self.config.seed), self._rate(state.step)

  def _step_function(self, watched: bool) -> Callable:
    return step_lib.make_train_step(
      self.objective,
      self.tx,
      self.name,
      self.config.microbatches,
      self.config.skip_nonfinite > 0,
      self.config.reduce_dtype,
      layer_norms.of(self.axes) if watched else None,
      optimizer.sparse(self.config.optimizer),
    )

  def leave_out(self, state: step_lib.State) -> step_lib.State:
    """Returns the state after a step whose batch is left out."""
    shardings = jax.tree.map(lambda x: x.sharding, state)
    return jax.jit(step_lib.passed_over, donate_argnums=0, out_shardings=shardings)(state)

  def enter(self, state: step_lib.State) -> step_lib.State:
    """Returns the state before the phase's first step."""
    if self.objective.enter is None:
      return state
    shardings = jax.tree.map(lambda x: x.sharding, state.variables)
    enter = jax.jit(self.objective.enter, out_shardings=shardings)
    return state._replace(variables=enter(state.variables))

  def train(self, state: step_lib.State, batch: Batch) -> tuple[step_lib.State, dict[str, Any]]:
    """One optimizer step on a host batch (this host's rows)."""
    return self._step_for(batch)(*self._arguments(state, batch))

  def next_batch(self, index: int) -> tuple[Batch, dict[str, int]]:
    """This host's rows of the phase's batch `index`, which must follow the last one asked for."""
    if self._stream is None:
      hosts = (jax.process_index(), jax.process_count())
      data = self.config.data
      threads = data.threads if readers.of(data).repeats else 0
      self._stream = loader.stream(self.batches, index, hosts, threads)
    got, batch, counts = next(self._stream)
    assert got == index, f'batches come in order: expected {index}, got {got}'
    return batch, counts

  def batch_sha256(self, index: int, hosts: int = 1) -> list[str]:
    """sha256 of the rows of the global batch `index` that each of so many hosts is fed."""
    batch, _ = self.batches.at(index)
    parts = [{k: np.split(v, hosts)[i] for k, v in batch.items()} for i in range(hosts)]
    return [self.sha256(index, part) for part in parts]

  def sha256(self, index: int, rows: Batch) -> str:
    """sha256 of rows of batch `index`, as of a run on the part alone that is drawn."""
    drawn = self.batches.place(index).name
    return loader.batch_sha256(combine.part(rows, drawn) if drawn else rows)

  def place(self, index: int) -> loader.Place:
    """Returns the rows of batch `index`, with the name of the phase, or of the part that is
    drawn."""
    found = self.batches.place(index)
    return found._replace(name=found.name or self.name)


def together(name: str, parts: Sequence[Phase], given: Combined) -> Phase:
  """Returns the phase that trains others as one, over the same variables and with one optimizer;
  they are judged apart."""
  first, steps = parts[0], None
  if given.draws:
    counted = zip(given.draws.examples, parts, strict=True)
    examples = tuple(number or part.examples.rows for number, part in counted)
    steps = given.draws._replace(examples=examples).steps
  rows = {part.name: part.config.batch_size for part in parts}
  objective = combine.together({p.name: p.objective for p in parts}, given.factors, rows)
  template = combine.join({p.name: p.template for p in parts})
  return dataclasses.replace(
    first,
    name=name,
    subject=first.subject._replace(objective=objective, template=template),
    batches=loader.Together({p.name: cast(loader.Batches, p.batches) for p in parts}, steps),
    evals=(),
    parts=tuple(parts),
    _train={},
  )


def columns(batch: Batch) -> dict[str, int]:
  """Returns the columns of each array that has those of a text."""
  return {k: v.shape[1] for k, v in batch.items() if k.rpartition('_B')[2][:1] in PREFIX}


def _shapes(batch: Batch) -> tuple[Any, ...]:
  """Key of a compiled step: the shapes behind the rows, of columns and of what is predicted."""
  return tuple((name, x.shape[1:]) for name, x in batch.items())
