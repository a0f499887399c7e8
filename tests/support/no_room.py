"""A disk without room: a limit on the size of files, at which the system refuses as it does where a
disk is full, by an error that names neither what was being written nor where."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_room(size: int = 0) -> Iterator[None]:
  """Within it no file of this process may grow beyond so many bytes."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
