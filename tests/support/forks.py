"""`python -m bertjax.COMMAND` without its imports, for tests of what a command does.

A server imports once what the commands import, and forks for each of them. What a test kills, or
tells from other processes, it starts as a process of its own: see `processes`.
"""

import atexit
import contextlib
import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

SECONDS = 600
READ_AT_IMPORT = ('JAX_', 'PYTHON')  # variables that begin so, PYTHONPATH apart
_AT_IMPORT = dict(os.environ)
IMPORTED = (
  'ml_collections.config_flags', 'optax', 'orbax.checkpoint', 'flax.linen', 'rich.table',
  'bertjax.config.schema', 'bertjax.train.loop', 'bertjax.export.exporting', 'bertjax.use.load',
  # What most configs choose by its name.
  'bertjax.evals.classification', 'bertjax.evals.pseudo_perplexity', 'bertjax.examples.noise.bert',
  'bertjax.examples.plans.pairs', 'bertjax.examples.readers.labelled',
  'bertjax.examples.readers.store', 'bertjax.models.bert', 'bertjax.objectives.classify',
  'bertjax.objectives.mlm', 'bertjax.optim.directions.adamw',
)  # fmt: skip


def run(
  module: str,
  *arguments: str,
  cwd: str | os.PathLike = '.',
  env: Mapping[str, str] | None = None,
  given: str = '',
) -> subprocess.CompletedProcess[str]:
  """Runs a module as `python -m` does, in an environment, by default this process's; `given` is
  what it reads of stdin. ValueError: the environment differs in what the server's imports have read
  before."""
  env = dict(env or os.environ)
  late = [
    name
    for name in sorted({*env, *_AT_IMPORT} - {'PYTHONPATH'})
    if name.startswith(READ_AT_IMPORT) and env.get(name) != _AT_IMPORT.get(name)
  ]
  if late:
    raise ValueError(f'{", ".join(late)} would not be read again: start a process (`processes`)')
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload([*IMPORTED])
  with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, 'given').write_text(given, encoding='utf-8')
    of_it = (module, arguments, os.fspath(cwd), env, folder)
    process = context.Process(target=_work, args=of_it)
    with _without_main():
      process.start()
    process.join(SECONDS)
    if process.exitcode is None:
      process.kill()
      raise TimeoutError(f'{module} {arguments} took longer than {SECONDS} s')
    said = [pathlib.Path(folder, name).read_text(encoding='utf-8') for name in ('out', 'error')]
  return subprocess.CompletedProcess([module, *arguments], process.exitcode, *said)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
  """Has a child leave pytest, the main module here, alone."""
  main = sys.modules['__main__']
  before = {name: main.__dict__.pop(name, None) for name in ('__spec__', '__file__')}
  main.__spec__ = None
  try:
    yield
  finally:
    vars(main).update({name: value for name, value in before.items() if value is not None})


def _work(module, arguments, cwd, env, folder) -> None:
  os.dup2(os.open(os.path.join(folder, 'given'), os.O_RDONLY), 0)
  for number, name in ((1, 'out'), (2, 'error')):
    os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
  sys.stdin = open(0, encoding='utf-8', closefd=False)  # multiprocessing has closed it
  os.chdir(cwd)
  os.environ.clear()
  os.environ.update(env)
  sys.argv[:] = [module, *arguments]
  sys.path[:0] = [os.getcwd(), *filter(None, env.get('PYTHONPATH', '').split(os.pathsep))]
  try:
    runpy.run_module(module, run_name='__main__', alter_sys=True)
  finally:
    atexit._run_exitfuncs()
