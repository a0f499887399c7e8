"""Learning-rate schedules: each the exact shape of the program that it is named after.

A shape maps an int32 step, counted from 0 at the first update, to a float32 learning rate. `peak`
is the learning rate, every `*_steps` a number of updates. Beyond `total_steps` (T) the last value
holds. Shapes that look alike differ by peak * W/T, W being `warmup_steps`, which parity tests see.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from bertjax import options
from bertjax.errors import UserError, choose
from bertjax.field_types import Count, Natural, NonNegative, Positive, Share
from bertjax.types import Array

WHAT = 'config.optimizer.schedule'


class Common(NamedTuple):
  """The fields of `config.optimizer.schedule` that every shape has, besides its name.

  Attributes:
    start: the step of the run from which the schedule counts its own (phases).
  """

  start: Natural = 0


def _warm(step: Array, warmup_steps: Natural) -> Array:
  """0 at step 0, 1 at step `warmup_steps`."""
  return step / max(warmup_steps, 1)


def _left(step: Array, first: int, last: int) -> Array:
  """1 at step `first`, 0 from step `last` on; integers are subtracted, so it is exact near 0."""
  return jnp.maximum(last - step, 0) / max(last - first, 1)


def bert_linear(
  step: Array,
  *,
  peak: NonNegative,
  warmup_steps: Natural,
  total_steps: Count,
  power: Positive = 1.0,
) -> Array:
  """peak * step/W, then peak * (1 - step/T)^power: falls by peak * W/T where the two meet.
  google-research/bert, optimization.py:create_optimizer; ALBERT and ERNIE 1.0 do the same."""
  decayed = _left(step, 0, total_steps) ** power
  return peak * jnp.where(step < warmup_steps, _warm(step, warmup_steps), decayed)


def sqrt_poly(
  step: Array, *, peak: NonNegative, warmup_steps: Natural, total_steps: Count
) -> Array:
  """peak * step/W, then peak * sqrt(1 - step/T). NVIDIA DeepLearningExamples, BERT
  schedulers.py:PolyWarmUpScheduler with degree 0.5 (LAMB)."""
  return bert_linear(step, peak=peak, warmup_steps=warmup_steps, total_steps=total_steps, power=0.5)


def product_linear(
  step: Array,
  *,
  peak: NonNegative,
  warmup_steps: Natural,
  total_steps: Count,
  power: Positive = 1.0,
) -> Array:
  """peak * (1 - step/T)^power * min(1, step/W): the largest value is peak * (1 - W/T), at W.
  google-research/electra, model/optimization.py:create_optimizer; GPT-1 fine-tuning is the same."""
  warm = jnp.where(step < warmup_steps, _warm(step, warmup_steps), 1.0)
  return peak * _left(step, 0, total_steps) ** power * warm


def linear(
  step: Array,
  *,
  peak: NonNegative,
  warmup_steps: Natural,
  total_steps: Count,
  end_ratio: Share = 0.0,
  power: Positive = 1.0,
) -> Array:
  """peak * step/W, then down to peak * end_ratio at T over the T - W steps counted from W. fairseq
  polynomial_decay_schedule.py (RoBERTa), transformers get_linear_schedule_with_warmup; XLNet's
  model_utils.py:get_train_op with end_ratio = min_lr_ratio."""
  decayed = end_ratio + (1 - end_ratio) * _left(step, warmup_steps, total_steps) ** power
  return peak * jnp.where(step < warmup_steps, _warm(step, warmup_steps), decayed)


def cosine(
  step: Array,
  *,
  peak: NonNegative,
  warmup_steps: Natural,
  total_steps: Count,
  end_ratio: Share = 0.0,
) -> Array:
  """peak * step/W, then half a cosine to peak * end_ratio over the T - W steps counted from W.
  transformer-xl, tf/train.py; its TPU trainer has end_ratio .01, its GPU trainer .004."""
  half = 0.5 * (1 - jnp.cos(jnp.pi * _left(step, warmup_steps, total_steps)))
  decayed = end_ratio + (1 - end_ratio) * half
  return peak * jnp.where(step < warmup_steps, _warm(step, warmup_steps), decayed)


def cosine_absolute(
  step: Array, *, peak: NonNegative, warmup_steps: Natural, total_steps: Count
) -> Array:
  """peak * step/W, then peak * (1 + cos(pi step/T)) / 2: the cosine is not shifted by the warm-up.
  transformer-xl, pytorch/train.py."""
  half = 0.5 * (1 - jnp.cos(jnp.pi * _left(step, 0, total_steps)))
  return peak * jnp.where(step < warmup_steps, _warm(step, warmup_steps), half)


def inverse_sqrt(
  step: Array, *, peak: NonNegative, warmup_steps: Natural, initial: NonNegative = 1e-7
) -> Array:
  """From `initial` to peak over W steps, then peak * sqrt(W/step). XLM,
  src/optim.py:AdamInverseSqrtWithWarmup."""
  rise = initial + (peak - initial) * _warm(step, warmup_steps)
  return jnp.where(step < warmup_steps, rise, rsqrt(step, peak=peak, warmup_steps=warmup_steps))


def rsqrt(step: Array, *, peak: NonNegative, warmup_steps: Natural) -> Array:
  """peak until step W, then peak * sqrt(W/step). T5's 1/sqrt(max(step, 10^4)) is peak .01 and W
  10^4 (t5 learning_rate_schedules.py)."""
  first = max(warmup_steps, 1)
  return peak * jnp.sqrt(first / jnp.maximum(step, first))


def warmup_stable_decay(
  step: Array,
  *,
  peak: NonNegative,
  warmup_steps: Natural,
  decay_steps: Natural = 0,
  total_steps: Count,
  end_ratio: Share = 0.0,
) -> Array:
  """peak * step/W, then peak, then in the last D steps down to peak * end_ratio by 1 - sqrt(s/D).

  D is `decay_steps`; 0: the peak holds to the end. Hägele et al. 2024; ModernBERT, whose decay is a
  run of its own (src/scheduler.py, OneMinusSqrtScheduler; its WarmupStableDecayScheduler would fall
  in a line).
  """
  left = jnp.clip(total_steps - step, 0, decay_steps) / decay_steps if decay_steps else 1.0
  one_minus_sqrt = left / (1 + jnp.sqrt(1 - left))  # 1 - sqrt(1 - left), exact near 0
  decayed = end_ratio + (1 - end_ratio) * one_minus_sqrt
  return peak * jnp.where(step < warmup_steps, _warm(step, warmup_steps), decayed)


def slanted_triangular(
  step: Array, *, peak: NonNegative, total_steps: Count, ratio: Positive = 32.0, cut: Count = 10
) -> Array:
  """peak / ratio to peak over C = T // cut steps, then in a line back to peak / ratio at T.
  ULMFiT: fastai 0.7, sgdr.py:CircularLR.calc_lr. Equation 3 of the paper (Howard and Ruder 2018)
  divides the way down by C * (cut - 1) for T - C, so unless cut divides T its last rates are below
  zero."""
  first = total_steps // cut
  share = jnp.where(step <= first, _warm(step, first), _left(step, first, total_steps))
  return peak * (1 + share * (ratio - 1)) / ratio


def constant(step: Array, *, peak: NonNegative) -> Array:
  """peak at every step."""
  return jnp.full_like(step, peak, jnp.float32)


SHAPES = {
  shape.__name__: shape
  for shape in (
    bert_linear, sqrt_poly, product_linear, linear, cosine, cosine_absolute, inverse_sqrt, rsqrt,
    slanted_triangular, warmup_stable_decay, constant,
  )
}  # fmt: skip


def fields_of(given: Mapping[str, Any]) -> dict[str, options.Field]:
  """Returns the fields of a `config.optimizer.schedule`: its shape's, those of `Common`, and the
  name. Raises UserError: no name, or none of SHAPES."""
  if 'name' not in given:
    raise UserError(f'{WHAT} lacks name: expected one of {", ".join(sorted(SHAPES))}')
  own = options.fields_of(SHAPES[choose(given['name'], SHAPES, f'{WHAT}.name')])
  return own | options.fields_of(Common) | {'name': options.Field(str, True, '')}


def make(config: Any) -> Callable[[Any], Array]:
  """Returns the schedule of a `config.optimizer.schedule`, one of SHAPES with its keyword
  arguments: step (int, or an int32 scalar, traced or not) -> float32 scalar. Raises UserError: an
  unknown name or field, a lacking field, a warm-up and a decay that are longer than the
  schedule."""
  given = dict(config.items())
  fields = options.check_fields(fields_of(given), given, f'{WHAT} ({given.get("name")})')
  shape = SHAPES[fields.pop('name')]
  start = fields.pop('start')
  parts = [key for key in ('warmup_steps', 'decay_steps') if key in fields]
  total = fields.get('total_steps')
  if total is not None and sum(fields[key] for key in parts) > total:
    raise UserError(
      f'{WHAT}: expected {" + ".join(parts)} <= total_steps, got '
      f'{" + ".join(str(fields[key]) for key in parts)} and {total}; lower them or train longer'
    )

  def schedule(step: Any) -> Array:
    since = jnp.maximum(jnp.asarray(step, jnp.int32) - start, 0)
    return shape(since, **fields).astype(jnp.float32)

  return schedule
