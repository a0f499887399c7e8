"""A phase at work: its compiled train and eval steps, and its batches."""

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax

from bertjax import sharding
from bertjax.data import loader
from bertjax.evals import loss as loss_eval
from bertjax.train import setup
from bertjax.train import step as step_lib
from bertjax.types import Batch, Variables


class Stepper:
  """Compiles each step once, with shardings pinned: a leaf that drifts would retrace."""

  def __init__(self, run: setup.Run, system: setup.System):
    self.system = system
    self._run = run
    self._stream: Iterator | None = None
    self._train: Any = None
    self._eval: Any = None

  def compile_train(self) -> None:
    """Compiles the train step; the state it takes is donated."""
    run, system, config = self._run, self.system, self.system.phase.config
    function = step_lib.make_train_step(
      system.objective,
      system.tx,
      system.schedule,
      system.phase.name,
      config.microbatches,
      config.seed,
    )
    shardings = jax.tree.map(lambda x: x.sharding, run.abstract)
    jitted = jax.jit(function, donate_argnums=0, out_shardings=(shardings, None))
    with jax.set_mesh(run.mesh), nn.logical_axis_rules(run.rules):
      self._train = jitted.lower(run.abstract, self._abstract_batch(config.batch_size)).compile()

  @property
  def compiled(self) -> bool:
    """Whether `train` is ready."""
    return self._train is not None

  def enter(self, state: step_lib.State) -> step_lib.State:
    """The state before the phase's first step."""
    if self.system.objective.enter is None:
      return state
    shardings = jax.tree.map(lambda x: x.sharding, state.variables)
    enter = jax.jit(self.system.objective.enter, out_shardings=shardings)
    return state._replace(variables=enter(state.variables))

  def train(self, state: step_lib.State, batch: Batch) -> tuple[step_lib.State, dict[str, Any]]:
    """One optimizer step on a host batch (this host's rows)."""
    return self._train(state, self.put(batch))

  def next_batch(self, index: int) -> tuple[Batch, dict[str, int]]:
    """This host's rows of the phase's batch `index`, which must follow the last one asked for."""
    config = self.system.phase.config
    if self._stream is None:
      hosts = (jax.process_index(), jax.process_count())
      # A stream is read in order, by one thread.
      threads = 0 if config.data.reader == 'seqio' else config.data.threads
      self._stream = loader.train_batches(
        self.system.examples, config.batch_size, index, hosts, threads
      )
    got, batch, counts = next(self._stream)
    assert got == index, f'batches come in order: expected {index}, got {got}'
    return batch, counts

  def put(self, batch: Batch) -> dict[str, jax.Array]:
    """A host's rows as global arrays."""
    return sharding.put_batch(batch, self._run.mesh)

  def eval_step(self, variables: Variables, carry: Any, batch: Any):
    """(variables, carry, device batch) -> (sums, carry), compiled at its first use."""
    if self._eval is None:
      jitted = jax.jit(step_lib.make_eval_step(self.system.evaluation))
      with jax.set_mesh(self._run.mesh), nn.logical_axis_rules(self._run.rules):
        self._eval = jitted.lower(variables, carry, batch).compile()
    return self._eval(variables, carry, batch)

  def put_eval(self, batch: Batch) -> dict[str, jax.Array]:
    """A global evaluation batch, of which this host sends its rows."""
    return self.put({k: self._local_rows(v) for k, v in batch.items()})

  def eval_carry(self) -> Any:
    """The carry before the first evaluation batch."""
    carry = self.system.evaluation.carry(self.system.eval_template)
    spec = jax.sharding.NamedSharding(self._run.mesh, sharding.batch_spec())
    return jax.tree.map(lambda x: jax.device_put(x, spec), carry)

  def evaluate(self, variables: Variables) -> dict[str, float]:
    """`eval/<term>` over the held-out rows; empty where there are none."""
    if self.system.held_out is None:
      return {}
    config = self.system.phase.config.eval
    batches = loader.eval_batches(self.system.held_out, config.batch_size, config.examples)
    scores = loss_eval.evaluate(
      self.eval_step,
      variables,
      self.eval_carry(),
      batches,
      self.put_eval,
      self._run.store.counts,
      self.system.evaluation.finish,
    )
    return {f'eval/{name}': value for name, value in scores.items()}

  def _local_rows(self, x):
    each = x.shape[0] // jax.process_count()
    return x[jax.process_index() * each :][:each]

  def _abstract_batch(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    spec = jax.sharding.NamedSharding(self._run.mesh, sharding.batch_spec())
    return {
      k: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype, sharding=spec)
      for k, v in self.system.template.items()
    }
