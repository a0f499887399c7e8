"""TensorFlow and seqio, loaded without what their C++ code says meanwhile.

TensorFlow 2.21 reads TF_CPP_MIN_LOG_LEVEL too late for that. Every other line is passed on.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def without_greetings() -> Iterator[None]:
  """Keeps what TF_CPP_MIN_LOG_LEVEL hides from the standard error, of this process as a whole."""
  level = os.environ.get('TF_CPP_MIN_LOG_LEVEL', '')
  hidden = b'IWE'[: int(level)] if level.isdigit() else b''
  if not hidden:
    yield
    return
  greeting = re.compile(rb'WARNING: All log messages before absl|[%b]\d{4} ' % hidden)
  sys.stderr.flush()
  screen = os.dup(2)
  with tempfile.TemporaryFile() as said:
    os.dup2(said.fileno(), 2)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(screen, 2)
      os.close(screen)
      said.seek(0)
      for line in said:
        if not greeting.match(line):
          os.write(2, line)


with without_greetings():
  import seqio
  import tensorflow as tf
  import tensorflow_datasets as tfds

__all__ = ['leave_gpus', 'seqio', 'tf', 'tfds']


def leave_gpus() -> None:
  """Leaves the GPUs to jax, beside which TensorFlow reads. They stay as they are where it computes
  on them already, in somebody's own program."""
  with contextlib.suppress(RuntimeError):
    tf.config.set_visible_devices([], 'GPU')
