"""Libraries that take seconds to import, imported when a test first uses them.

Each worker of pytest imports all test files, so a test file has `from slow_imports import torch`
at its top where it would have `import torch`.
"""

import importlib

SEQIO_TASKS = (
  'corpora', 'example_tasks', 'labelled_tasks', 'loaded', 'registered', 'row_stream', 'windows',
)  # fmt: skip
LONG_NAMES = {
  'F': 'torch.nn.functional',
  'event_pb2': 'tensorboardX.proto.event_pb2',  # imports torch, if there is one
  'modeling_bloom': 'transformers.models.bloom.modeling_bloom',
  'modeling_t5': 'transformers.models.t5.modeling_t5',
  'modeling_xlnet': 'transformers.models.xlnet.modeling_xlnet',
  'rivals': 'bertjax.tools.bench.parts.rivals',
  'tf': 'tensorflow',
  'tfds': 'tensorflow_datasets',
  **{name: f'bertjax.examples.seqio_tasks.{name}' for name in SEQIO_TASKS},
}


class Later:
  """A module, or a module of tests/support, that is imported by the first use of a name in it."""

  def __init__(self, name: str):
    self._name = name

  def __getattr__(self, name: str):
    if name.startswith(('__', '_mock')):  # pytest asks all that stands in a test file for its marks
      raise AttributeError(name)
    return getattr(importlib.import_module(self._name), name)


def __getattr__(name: str) -> Later:
  return Later(LONG_NAMES.get(name, name))
