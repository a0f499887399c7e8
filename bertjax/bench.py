"""Measured speed, memory and traffic, one JSON line each:

python -m bertjax.bench NAME [flags]

NAME is generate, input, kernel or step.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

from absl import flags
from ml_collections import config_flags

from bertjax import registry
from bertjax.config import command_line, presets
from bertjax.errors import UserError, door
from bertjax.machine import malloc

BENCHES = registry.names_in('bertjax.tools.bench')


def prepare_memory(words: Sequence[str]) -> None:
  """Gives the bench that these words of a command begin with the allocator of a run, if it computes
  with XLA; to be called first."""
  # Nothing of `input` is computed with XLA, and its rival has threads in the process, which one
  # arena would make wait for each other.
  if words and words[0] != 'input':
    malloc.huge_pages()
    malloc.one_arena()


def main() -> None:
  """Runs `main()` of the bench module that the first argument names, with the flags it has."""
  name = sys.argv[1] if len(sys.argv) > 1 else ''
  if name in ('-h', '--help'):
    sys.exit(print(__doc__, '\nThe flags of one: python -m bertjax.bench step --help'))
  if name not in BENCHES:
    sys.exit(f'bertjax.bench: expected one of {", ".join(BENCHES)}, got {name!r}')
  with _rivals():
    bench = importlib.import_module(f'bertjax.tools.bench.{name}')
  flags.adopt_module_key_flags(bench)  # so that --help shows them
  if 'config' in flags.FLAGS:
    sys.modules['__main__'].__doc__ = bench.__doc__
  command_line.run(lambda: _run(bench), 'bertjax.bench', lambda argv: [argv[0], *argv[2:]])


def _run(bench: ModuleType) -> None:
  if 'config' in flags.FLAGS and flags.FLAGS['config'].value is not None:
    config = flags.FLAGS['config'].value
    given = config_flags.get_override_values(flags.FLAGS['config'])
    said = presets.choose_own(config, given, os.environ)
    for line in [*said, *presets.apply(config, given, os.environ)]:
      print(line, file=sys.stderr)  # standard output is JSON
  with _rivals():
    bench.main()


@contextlib.contextmanager
def _rivals() -> Iterator[None]:
  """Ends in a line where what is compared with is not installed."""
  try:
    yield
  except ModuleNotFoundError as error:
    if str(error.name).partition('.')[0] not in ('torch', 'transformers'):
      raise
    raise UserError(
      f'this bench compares with what {error.name} computes, which is not installed: '
      'pip install torch transformers'
    ) from error


if __name__ == '__main__':
  with door('bertjax.bench'):
    prepare_memory(sys.argv[1:])
    main()
