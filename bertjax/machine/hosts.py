"""Messages between the processes of a run, through the coordinator of jax.distributed.

None of it runs on devices: it also works where processes disagree on what to compute, and one that
is late or gone is named. Every process makes the same calls, with the same names.
"""

import json
import math
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
from jax._src import distributed  # the coordinator's client has no public name

from bertjax.errors import UserError

# Of one call that waits. The service pings a client that has called twice within 10 s and drops one
# that does not answer in 60 s, which ends the run: a client has to be quiet before it stands still.
WAIT_S = 20.0
TIMEOUT_S = 600.0  # of a value that all others gave

Flat = Mapping[str, Any]
T = TypeVar('T')


class Missing(RuntimeError):
  """Processes that did not say what the others said."""


def index() -> int:
  """Number of this process."""
  return jax.process_index()


def count() -> int:
  """Returns the number of processes."""
  return jax.process_count()


def told_count() -> int | None:
  """Returns the number of processes that this one was told of, where the coordinator's counts."""
  return distributed.global_state.num_processes


def tell(key: str, value: str = '') -> None:
  """Says something once for all; who says it first counts."""
  try:
    _client().key_value_set(f'bertjax/{key}', value)
  except jax.errors.JaxRuntimeError as error:
    if 'ALREADY_EXISTS' not in str(error):
      raise


def told(key: str, wait_s: float = 0.0) -> str | None:
  """Returns the value that some process gives to a key within `wait_s`; None if none does."""
  name = f'bertjax/{key}'
  try:
    if wait_s <= 0:
      return _client().key_value_try_get(name)
    return _client().blocking_key_value_get(name, math.ceil(1000 * wait_s))
  except jax.errors.JaxRuntimeError as error:
    if not any(none in str(error) for none in ('NOT_FOUND', 'DEADLINE_EXCEEDED')):
      raise
    return None


def gather(name: str, value: str, timeout_s: float = TIMEOUT_S) -> list[str]:
  """Returns the value of every process, in their order, of an exchange with a name of its own.
  Raises Missing, with the hosts of processes that said nothing for `timeout_s`, where they are
  known."""
  if count() == 1:
    return [value]
  tell(f'{name}/{index()}', value)
  end, found = time.monotonic() + timeout_s, []
  while len(found) < count():
    wait_s = min(WAIT_S, end - time.monotonic())
    said = told(f'{name}/{len(found)}', wait_s)
    if said is not None:
      found.append(said)
    elif wait_s < WAIT_S:
      late = [named(n) for n in range(len(found), count()) if told(f'{name}/{n}') is None]
      raise Missing(f'{", ".join(late)} did not come to {name!r} within {timeout_s:g} s')
  return found


def barrier(name: str, timeout_s: float = TIMEOUT_S) -> None:
  """Waits until every process is here; arguments and errors as `gather`."""
  gather(f'barrier/{name}', '', timeout_s)


def first_then_all(name: str, work: Callable[[], T]) -> T:
  """Has process 0 do work with a name of its own, then all others, who find built what it has
  built; work may raise, which keeps nobody waiting."""
  if index() > 0:
    barrier(name, math.inf)  # as long as process 0 lives
    return work()
  try:
    return work()
  finally:
    barrier(name, math.inf)


def introduce() -> None:
  """Says the name of this host, so that others can name it."""
  if count() > 1:
    tell(f'host/{index()}', socket.gethostname())


def require_same(name: str, mine: Flat, remedy: str) -> None:
  """Refuses processes whose keys -> JSON values differ. Raises UserError on each, which names the
  process, its host, the key, both values and the remedy; Missing as `gather`."""
  texts = gather(f'same/{name}', json.dumps(mine, sort_keys=True, default=str))
  everyone = [json.loads(text) for text in texts]
  first = everyone[0]
  for process, theirs in enumerate(everyone):
    differing = sorted(k for k in {*first, *theirs} if first.get(k) != theirs.get(k))
    if differing:
      key = differing[0]
      others = ', '.join(differing[1:6])
      more = f' and {len(differing) - 1} more ({others})' if others else ''
      raise UserError(
        f'{named(process)} differs from {named(0)} in {name}: {key} is {theirs.get(key)!r} there '
        f'and {first.get(key)!r} here{more}; {remedy}'
      )


def named(process: int) -> str:
  """Returns the number of a process with its host, where it has said that."""
  host = told(f'host/{process}')
  return f'process {process}' + (f' on {host}' if host else '')


def _client() -> Any:
  return distributed.global_state.client
