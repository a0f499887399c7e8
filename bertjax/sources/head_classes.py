"""The classes that the heads of a model tell apart, by their ids, and whether two models agree.

Scores are compared by their number, and numbers mean nothing without the names: a head is taken,
and a teacher is believed, where its classes are those of the run in the same order.
"""

from collections.abc import Mapping
from typing import Any

from bertjax import models
from bertjax.config import timeline
from bertjax.examples.labelled.common import tagged
from bertjax.objectives.combine import task_heads

Classes = Mapping[str, tuple[str, ...]]  # head, as `task_heads.apart` names it -> its classes


def of(config: Any) -> dict[str, tuple[str, ...]]:
  """Returns the classes of a run over labelled examples; of any other run there are none."""
  line = timeline.make(config)
  if line.drawn:
    heads = {f'{task_heads.TASKS}/{phase.name}': phase.config for phase in line.drawn}
  else:
    heads = {name: config for name in models.head_paths(config.model)}
  return {head: found for head, own in heads.items() if (found := of_task(own))}


def of_task(config: Any) -> tuple[str, ...]:
  """Returns the classes of the task of a fine-tuned run, by their ids, as its files spell them."""
  task = config.data.task if 'task' in config.data else {}
  if 'scheme' in task:
    return tuple(tagged.tags(task['scheme'], task['classes']))
  return tuple(task['classes']) if 'classes' in task else ()


def moved(theirs: Classes, path: str, to: str) -> dict[str, tuple[str, ...]]:
  """Returns the classes of the heads under `path` ('params', 'params/label') by their names once it
  stands at `to`."""
  own = {f'params/{head}/': names for head, names in theirs.items()}
  under = {head: names for head, names in own.items() if head.startswith(f'{path}/')}
  return {
    f'{to}{head.removeprefix(path)}'.removeprefix('params/').rstrip('/'): names
    for head, names in under.items()
  }


def different(source: Any, config: Any) -> set[str]:
  """Returns the heads of an `init_from.Source` whose classes are not those of a run's head of that
  name: they have other names, or another order. Foreign ones may have names of their own for the
  same classes (NEGATIVE for 0): then only our names in another order are other classes."""
  theirs, ours = source.classes, of(config)
  both = theirs.keys() & ours.keys()
  if not source.foreign:
    return {head for head in both if theirs[head] != ours[head]}
  fold = lambda names: [name.casefold() for name in names]
  pairs = {head: (fold(theirs[head]), fold(ours[head])) for head in both}
  return {head for head, (found, own) in pairs.items() if found != own and set(found) == set(own)}


def notes(source: Any, config: Any) -> list[str]:
  """Returns a note for each head whose classes are taken by number although their names differ."""
  ours, others = of(config), different(source, config)
  return [
    f'{source.name} calls the classes of {head!r} {", ".join(names)}; they are taken, in this '
    f'order, for {", ".join(ours[head])}'
    for head, names in source.classes.items()
    if head in ours.keys() - others and len(names) == len(ours[head]) and names != ours[head]
  ]
