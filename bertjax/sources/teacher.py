"""The teacher of a run that distils: `config.objective.teacher`, a model that is never trained.

Its parameters are the collection TEACHER of the variables. Checkpoints do not hold it: it is read
from its source whenever a run begins or goes on, and the sha256 of its parameters, which
config.json keeps, tells whether it is the same.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bertjax import dotted, models, sharding
from bertjax.errors import UserError
from bertjax.objectives.combine import task_heads
from bertjax.sources import head_classes, init_from, subtrees
from bertjax.types import TEACHER
from bertjax.vocab.vocabulary import Vocabulary, check_rows

KEY = 'config.objective.teacher.source'


def brought(
  config: Any, known: Mapping[str, Any]
) -> tuple[dict[str, Any], init_from.Source, list[str]]:
  """Opens the teacher of a run; returns (`model`, its fields of `config.model`, and `sha256` of its
  parameters; the teacher; lines for people). `known` is the first of them as the run began, {}
  before. UserError: none is named or there, not the one that the run began with, other classes, or
  heads of several tasks."""
  source = _source(config)
  params = source.params()
  found: dict[str, Any] = dict(model=dict(source.model), sha256=digest(params))
  if known and known['sha256'] != found['sha256']:
    raise UserError(
      f'{KEY}={source.name} has other parameters (sha256 {found["sha256"][:12]}) than the teacher '
      f'that this run began with ({known["sha256"][:12]}): name that checkpoint, as in '
      'RUN/checkpoints/STEP, or give another --workdir'
    )
  if task_heads.TASKS in params and models.head_paths(config.model):
    raise UserError(
      f'{KEY}={source.name} has the heads of several tasks, {", ".join(params[task_heads.TASKS])}: '
      'expected a teacher that was fine-tuned on one, as its student is'
    )
  for head in head_classes.different(source, config):
    raise UserError(
      f'{KEY}={source.name} tells {source.classes[head]!r} apart, in this order, the student '
      f'{head_classes.of(config)[head]!r}: expected the classes that the teacher learned, '
      'config.data.task.classes'
    )
  count = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
  said = f'The teacher {source.name} has {count:,} parameters'
  return found, source, [said, *head_classes.notes(source, config)]


def without(variables: Any) -> Any:
  """Variables as checkpoints hold them."""
  return {name: tree for name, tree in variables.items() if name != TEACHER}


def read(config: Any, vocabulary: Vocabulary | None, abstract: Any) -> Any:
  """Returns the teacher's parameters, placed as `abstract`, for a resolved config. UserError:
  another vocabulary than the run's, or parameters that it lacks, as a head that its source has
  not."""
  source = _source(config)
  if source.vocabulary is None:
    check_rows(vocabulary, source.model['vocab_size'], f'this run, beside {KEY}={source.name},')
  if vocabulary and source.vocabulary and not subtrees.same_ids(source.vocabulary, vocabulary):
    raise UserError(
      f'{KEY}={source.name} has another vocabulary ({source.vocabulary.size} ids) than this run '
      f'({vocabulary.size} ids): a student learns what its teacher says of the same ids, so give '
      'it that vocabulary (config.data.vocab)'
    )
  found, wanted = dotted.flat(source.params()), dotted.flat(abstract)
  fits = lambda name: name in found and np.shape(found[name]) == wanted[name].shape
  wrong = [name for name in sorted(wanted) if not fits(name)]
  if wrong:
    raise UserError(
      f'{KEY}={source.name} lacks {", ".join(wrong[:3])} or has another shape of it: expected a '
      'model with the head that the student learns from, one that was pretrained or fine-tuned'
    )
  put = lambda name, to: sharding.put_whole(np.asarray(found[name], to.dtype), to.sharding)
  return dotted.nested({name: put(name, shape) for name, shape in wanted.items()})


def digest(params: Any) -> str:
  """sha256 of parameters: names, shapes and values."""
  whole = hashlib.sha256()
  for name, leaf in sorted(dotted.flat(params).items()):
    array = np.ascontiguousarray(leaf)
    whole.update(f'{name} {array.dtype} {array.shape}'.encode())
    whole.update(array.data)
  return whole.hexdigest()


def _source(config: Any) -> init_from.Source:
  name = config.objective.teacher.source
  if not name:
    raise UserError(f'{KEY} is empty: expected the teacher, a run or hf:DIR')
  source = init_from.open_source(name, KEY)
  return source.part(models.factory(source.model).encoder)
