"""Parameters of a run with several tasks: an encoder that they share, and the heads of each.

embeddings, encoder, pooler, ..   as of a run with one task
tasks/NAME/label                  what would be `label`, were NAME the only task
"""

from collections.abc import Mapping
from typing import Any

TASKS = 'tasks'


def join(shared: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the parameters of a run: what all share, and task -> its heads."""
  return {**shared, TASKS: dict(heads)}


def of_task(params: Mapping[str, Any], task: str) -> dict[str, Any]:
  """Returns the parameters of one task, as a run on it alone has them."""
  return {**shared(params), **params[TASKS][task]}


def shared(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the parameters without the heads of tasks."""
  return {key: tree for key, tree in params.items() if key != TASKS}


def apart(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the heads of each task under a key of their own, tasks/NAME, beside what is shared."""
  return shared(params) | {f'{TASKS}/{name}': x for name, x in params.get(TASKS, {}).items()}


def together(params: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the inverse of `apart`."""
  prefix = f'{TASKS}/'
  heads = {k.removeprefix(prefix): tree for k, tree in params.items() if k.startswith(prefix)}
  rest = {key: tree for key, tree in params.items() if not key.startswith(prefix)}
  return join(rest, heads) if heads else rest
