"""Functions in processes of their own, which end when this one does, however it ends."""

import concurrent.futures
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from bertjax import children


class Pool(concurrent.futures.ProcessPoolExecutor):
  """Processes for functions at the top of a module, whose arguments and results are picklable. They
  are started anew: threads of TensorFlow and XLA do not survive a fork."""

  def __init__(self, workers: int, begin: Callable[[], object] | None = None):
    """Names the number of processes, and what each of them does first."""
    super().__init__(workers, multiprocessing.get_context('spawn'), _begin, (begin,))

  def submit(self, *call: Any) -> concurrent.futures.Future:
    """Calls a function with arguments in one of the processes."""
    with _unheard():  # the first calls start them
      return super().submit(*call)

  def __exit__(self, kind: Any, *error: Any) -> None:
    """Waits for the processes; after Ctrl-C they end with this one."""
    self.shutdown(wait=kind is not KeyboardInterrupt)


def _begin(begin: Callable[[], object] | None) -> None:
  parent = multiprocessing.parent_process()
  assert parent is not None
  children.follow(parent.sentinel)
  if begin:
    begin()


def apart(function: Callable[..., Any], *args: Any) -> Any:
  """Returns function(*args), computed in a process of its own: whoever opens a GPU keeps most of
  its memory from the runs that follow. What it raises is raised here."""
  with Pool(1) as process:
    return process.submit(function, *args).result()


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
  """Processes that are started within it never hear Ctrl-C, which is the parent's to handle: the
  parent hears at the end of it what came meanwhile, whichever of its threads it came to."""
  handler, heard = signal.getsignal(signal.SIGINT), []
  ours = threading.current_thread() is threading.main_thread() and callable(handler)
  before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
  if ours:  # Python would call it here for another thread, and a worker be left half started
    signal.signal(signal.SIGINT, lambda *given: heard.append(given))
  try:
    yield
  finally:
    if ours:
      signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if heard and callable(handler):
      handler(*heard[0])
