"""One training step as a pure function: gradients over microbatches, optimizer, metrics. No I/O."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertjax import sharding
from bertjax.checkpoint import finite
from bertjax.train import touched
from bertjax.types import Array, Batch, Context, Objective, Out, Term, Variables


class State(NamedTuple):
  """All that a run carries from step to step, and what a checkpoint holds."""

  step: Any  # int32 scalar, number of steps taken
  variables: Variables  # dict of collections; 'params' is trained
  opt_state: Any  # the optimizer's
  carry: Any  # phase name -> what its last batch handed on; B first in every leaf


Sums = dict[str, tuple[Array, Array]]  # name -> (total, weight), global


def split_rows(tree: Any, count: int) -> Any:
  """[B, ...] -> [count, B / count, ...] with row r in part r mod count, so that no row leaves its
  device."""

  def split(x):
    parts = x.reshape((x.shape[0] // count, count) + x.shape[1:])
    return jnp.swapaxes(parts, 0, 1)

  return jax.tree.map(split, tree)


def join_rows(tree: Any) -> Any:
  """Returns the inverse of `split_rows`."""
  return jax.tree.map(
    lambda x: jnp.swapaxes(x, 0, 1).reshape((x.shape[0] * x.shape[1],) + x.shape[2:]), tree
  )


def trained_loss(terms: dict[str, Term], weights: dict[str, Array]) -> Array:
  """sum of scale * total / (weight + plus) with global weights; 0 where there is no weight."""
  loss = jnp.float32(0.0)
  for name, term in terms.items():
    if term.scale:
      denominator = weights[name] + term.plus
      safe = jnp.where(weights[name] > 0, denominator, 1.0)
      loss += term.scale * jnp.where(weights[name] > 0, term.total / safe, 0.0)
  return loss


def with_rows(batch: Batch) -> Batch:
  """Adds the global row numbers, which key the draws, to a batch."""
  rows = jax.tree.leaves(batch)[0].shape[0]
  return dict(batch, row_B=jnp.arange(rows, dtype=jnp.int32))


Gradients = tuple[Any, Array, Sums, Out]


def reduce_once(
  objective: Objective,
  variables: Variables,
  carry: Any,
  batch: Batch,
  ctx: Context,
  count: int,
  dtype: str,
) -> Gradients:
  """`accumulate`, where replicas add up the gradients of their own rows and then exchange the sums
  in `dtype`, once in a step. Where there are no replicas (`sharding.replicas`), XLA reduces each
  gradient where it is computed, in the dtype it has there."""
  if sharding.replicas() == 1:
    return accumulate(objective, variables, carry, batch, ctx, count)
  everywhere = lambda tree: jax.lax.psum(tree, sharding.REPLICAS)

  def own(given, rows):
    variables, numbers = given
    carry, batch = rows
    grads, loss, sums, out = accumulate(
      objective, variables, carry, batch, ctx._replace(**numbers), count, everywhere
    )
    low = everywhere(jax.tree.map(lambda grad: grad.astype(dtype), grads))
    grads = jax.tree.map(lambda total, grad: total.astype(grad.dtype), low, grads)
    return (grads, *everywhere((loss, sums, out.updates))), out.carry

  numbers = dict(key=ctx.key, step=ctx.step, touched=ctx.touched)
  total, carry = sharding.by_replica(own)((variables, numbers), (carry, batch))
  *total, updates = total
  return *total, Out({}, carry, updates)


def accumulate(
  objective: Objective,
  variables: Variables,
  carry: Any,
  batch: Batch,
  ctx: Context,
  count: int,
  everywhere: Callable[[Any], Any] = lambda tree: tree,
) -> Gradients:
  """Returns the gradients of the global loss, summed over `count` microbatches; the loss; sums,
  name -> (total, weight); and an Out of the joined carry and the summed updates, not yet divided.

  The global weights do not depend on the parameters. With several microbatches they are known
  before the first gradient, from a pass that XLA strips to the sums of the batch's own weights.
  `everywhere` sums over all who have rows of the batch; what is returned is not summed by it.
  """
  frozen = {k: v for k, v in variables.items() if k != 'params'}
  parts, carries = split_rows(batch, count), split_rows(carry, count)

  def run(params, carry, part) -> Out:
    return objective.loss(dict(frozen, params=params), carry, part, ctx)

  def loss_fn(params, carry, part, weights=None):
    out = run(params, carry, part)
    sums = {k: (t.total, t.weight) for k, t in out.terms.items()}
    if weights is None:  # the batch is in one part
      weights = everywhere({k: jax.lax.stop_gradient(weight) for k, (_, weight) in sums.items()})
    return trained_loss(out.terms, weights), (sums, out.carry, out.updates)

  gradient, params = jax.value_and_grad(loss_fn, has_aux=True), variables['params']
  if count == 1:  # a one-trip loop would keep XLA from fusing the optimizer with the backward
    take = lambda tree: jax.tree.map(lambda x: x[0], tree)
    (loss, (sums, carry, updates)), grads = gradient(params, take(carries), take(parts))
    return grads, loss, sums, Out({}, carry, updates)

  abstract = jax.tree.map(jax.lax.stop_gradient, params)
  weight_of = jax.vmap(
    lambda carry, part: {k: t.weight for k, t in run(abstract, carry, part).terms.items()}
  )
  weights = everywhere({k: jnp.sum(w, 0) for k, w in weight_of(carries, parts).items()})

  def body(total, part_and_carry):
    part, carry = part_and_carry
    (loss, (sums, carry, updates)), grads = gradient(params, carry, part, weights)
    return jax.tree.map(jnp.add, total, (grads, loss, sums, updates)), carry

  shapes = jax.eval_shape(
    gradient, params, *jax.tree.map(lambda x: x[0], (carries, parts)), weights
  )
  (loss_shape, (sums_shape, _, updates_shape)), grads_shape = shapes
  zeros = jax.tree.map(
    lambda s: jnp.zeros(s.shape, s.dtype), (grads_shape, loss_shape, sums_shape, updates_shape)
  )
  (grads, loss, sums, updates), carry = jax.lax.scan(body, zeros, (parts, carries))
  return grads, loss, sums, Out({}, join_rows(carry), updates)


def updated(variables: Variables, updates: Any) -> Variables:
  """Returns the new values of the collections that have `updates`, sums over the whole batch."""

  def mean(old, total, weight):
    return jnp.where(weight > 0, total / weight, old).astype(old.dtype)

  return {name: jax.tree.map(mean, variables[name], *sums) for name, sums in updates.items()}


def passed_over(state: State) -> State:
  """Returns the state after a step that trains nothing: the step goes on, and with it the learning
  rate; all else stays, Adam's count of its updates too."""
  return state._replace(step=state.step + 1)


def make_train_step(
  objective: Objective,
  tx: optax.GradientTransformationExtraArgs,
  phase: str,
  microbatches: int,
  skip_nonfinite: bool = False,
  reduce_dtype: str = 'float32',
  norms: Callable[..., Any] | None = None,
  sparse: bool = False,
) -> Callable[[State, Batch, Any, Any], tuple[State, dict[str, Any]]]:
  """Builds the step function of a phase; jit it with shardings pinned: (state, batch, seed, rate)
  -> (state, metrics). The seed is that of the draws, uint32, the rate a float32, which `tx.update`
  takes; they are arguments so that runs with other seeds and schedules share what is compiled.
  Every draw of step s is keyed by (seed, s).

  metrics holds loss, grad_norm, lr and sums (name -> total and weight); with skip_nonfinite
  `skipped`, a bool: a step whose loss, gradients or update are not finite trains nothing; and
  `norms` of parameters, gradients and updates, where asked for, see `layer_norms.of`. Gradients of
  replicas are added up in reduce_dtype. `sparse`: `tx` leaves entries without a gradient as they
  are, and its state of them, so that it is given those rows alone that the batch touches, and they
  alone are judged to be finite.
  """

  def train_step(state: State, batch: Batch, seed: Any, rate: Any) -> tuple[State, dict[str, Any]]:
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    ctx = Context(key, state.step, train=True)
    rows = with_rows(batch)
    if sparse:
      ctx = ctx._replace(touched=touched.rows_of(objective, rows, ctx))
    whole, state = state, touched.taken(state, ctx.touched)
    grads, loss, sums, out = reduce_once(
      objective, state.variables, state.carry[phase], rows, ctx, microbatches, reduce_dtype
    )
    params = state.variables['params']
    updates, opt_state = tx.update(grads, state.opt_state, params, rate=rate)
    variables = dict(
      state.variables,
      params=optax.apply_updates(params, updates),
      **updated(state.variables, out.updates),
    )
    metrics: dict[str, Any] = dict(
      loss=loss, grad_norm=optax.tree.norm(grads), lr=jnp.asarray(rate), sums=sums
    )
    carry = dict(state.carry, **{phase: out.carry})
    new = State(state.step + 1, variables, opt_state, carry)
    if norms is not None:
      metrics['norms'] = norms(
        parameters=whole.variables['params'], gradients=grads, updates=updates
      )
    if skip_nonfinite:
      judged = jnp.stack([loss, metrics['grad_norm'], finite.size(variables['params'])])
      fine = jnp.isfinite(judged).all()
      metrics['skipped'] = ~fine
      new = jax.tree.map(lambda x, y: jnp.where(fine, x, y), new, passed_over(state))
    return touched.put_back(whole, new, ctx.touched), metrics

  return train_step


def make_eval_step(objective: Objective) -> Callable[[Variables, Any, Batch], tuple[Sums, Any]]:
  """Builds (variables, carry, batch) -> (sums, carry), without dropout; all batches share a key."""

  def eval_step(variables: Variables, carry: Any, batch: Batch) -> tuple[Sums, Any]:
    ctx = Context(jax.random.key(0), jnp.int32(0), train=False)
    out = objective.loss(variables, carry, with_rows(batch), ctx)
    return {k: (t.total, t.weight) for k, t in out.terms.items()}, out.carry

  return eval_step
