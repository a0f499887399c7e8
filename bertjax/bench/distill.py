"""python -m bertjax.bench distill: a step that learns from a teacher, beside what it has to do.

  python -m bertjax.bench distill --config=configs/distill/kd.py:pkd --batch_size=16 --length=64

Made-up rows with a class each. `step` is the train step of the student and its teacher, `student`
that of fine-tuning the same student on the labels alone, `teacher` a forward pass of the teacher;
they are called in turn. `ratio` is the first over the sum of the others, and `flops` are those of a
step. The teacher is a model as the student is, with --teacher_layers.
"""

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from ml_collections import ConfigDict, config_flags

from bertjax import models
from bertjax.bench.parts import own_step, timing
from bertjax.objectives.classify import LABEL
from bertjax.types import Batch

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file of configs/distill/kd.py.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 16, 'Rows per step.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 64, 'Tokens per row.', lower_bound=8)
_TEACHER_LAYERS = flags.DEFINE_integer('teacher_layers', 12, 'Of the teacher.', lower_bound=1)
_CALLS = flags.DEFINE_integer('calls', 20, 'Timed calls of each side.', lower_bound=1)
_WARMUP = flags.DEFINE_integer('warmup', 3, 'Discarded calls of each side.', lower_bound=3)
flags.mark_flag_as_required('config')


def main() -> None:
  """Times the three and prints one JSON line."""
  config = _sized(_CONFIG.value)
  batch = _rows(config)
  alone = copy.deepcopy(config)
  alone.objective = ConfigDict(dict(name='classify'))
  arms = dict(
    step=own_step.make_step(config, batch),
    student=own_step.make_step(alone, batch),
    teacher=_forward(config, batch),
  )
  seconds = timing.alternate(arms, _CALLS.value, _WARMUP.value)
  step, student, teacher = (float(np.median(s)) for s in seconds.values())
  result: dict[str, Any] = dict(
    bench='distill', config=config.name, batch_size=config.batch_size, length=config.length,
    layers=config.model.layers, teacher_layers=_TEACHER_LAYERS.value, width=config.model.width,
    **{name: timing.summary(s, config.batch_size, 'rows') for name, s in seconds.items()},
    flops={name: own_step.flops(c, batch) for name, c in dict(step=config, student=alone).items()},
    ratio=round(step / (student + teacher), 4),
  )  # fmt: skip
  result |= timing.environment() | dict(device=jax.devices()[0].device_kind)
  json.dump(result, sys.stdout)
  sys.stdout.write('\n')


def _sized(config: Any) -> Any:
  """The recipe with two classes and a teacher."""
  config.model.labels = ((LABEL, 2),)
  config = own_step.sized(config, _BATCH_SIZE.value, _LENGTH.value)
  teacher = copy.deepcopy(config.model)
  teacher.layers = _TEACHER_LAYERS.value
  with config.unlocked():
    config.objective.teacher.model = teacher
  return config


def _rows(config: Any) -> Batch:
  """Random tokens without padding, as `data/labelled/common/rows.py` makes them."""
  rows, length = config.batch_size, config.length
  rng = np.random.default_rng(config.seed)
  whole = lambda value: np.full((rows, length), value, np.int32)
  return dict(
    token_BT=rng.integers(config.model.vocab_size, size=(rows, length), dtype=np.int32),
    example_BT=whole(1), type_BT=whole(0),
    position_BT=np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
    first_BG=np.zeros((rows, 1), np.int32), example_weight_BG=np.ones((rows, 1), np.float32),
    label_BG=rng.integers(2, size=(rows, 1), dtype=np.int32), row_B=np.arange(rows, dtype=np.int32),
  )  # fmt: skip


def _forward(config: Any, batch: Batch) -> Callable[[], None]:
  """What the teacher says of a batch, as a call."""
  teacher, hidden = models.build(config.objective.teacher.model), config.objective.states > 0
  device_batch = jax.tree.map(jnp.asarray, batch)
  variables = jax.jit(lambda: own_step.initial_variables(teacher, device_batch, config.seed))()

  def said(variables: Any, batch: Batch) -> Any:
    out = teacher.apply(variables, batch, None, hidden)
    return out['label_BGC'], out.get('hidden_LBTD')

  forward = jax.jit(said)
  return lambda: jax.block_until_ready(forward(variables, device_batch))
