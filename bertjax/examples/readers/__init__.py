"""Sources of a run's rows, which `config.data.reader` chooses by name.

Each is a module here that exports a `Reader` as READER.
"""

from typing import Any

from bertjax import registry
from bertjax.data_contracts import Reader


def of(data: Any) -> Reader:
  """Returns the one that a `config.data` names. Raises UserError if there is none of this name; the
  nearest is named."""
  return registry.chosen('bertjax.examples.readers', data.reader, 'config.data.reader')
