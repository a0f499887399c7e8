"""Memory that a process keeps: no step asks the kernel for pages again."""

import ast
import os
import subprocess
import sys

import numpy as np
import pytest
from mutation import mutation
from processes import ROOT, environment

from bertjax.machine import malloc

# Page faults of 20 calls of a program with a temporary array of 41 MB: glibc's own threshold, which
# moves with what a process frees, never maps less than 128 kB and always maps more than 32 MB.
PROGRAM = """
import resource, sys
from bertjax.machine import malloc
started = sys.argv[1] == 'ours' and malloc.one_arena()
import jax, jax.numpy as jnp
x = jnp.ones((3200, 8))
step = jax.jit(lambda x: jnp.sin(x @ x.T) @ x).lower(x).compile()
kept = malloc.keep_pages(step.memory_analysis().temp_size_in_bytes)
for _ in range(30): step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): step(x).block_until_ready()
print(started, kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def untold(**more):
  """The environment of a process that nobody has told of huge pages."""
  ours = (malloc._ASKED, malloc._TUNABLES)
  return {k: v for k, v in environment().items() if k not in ours} | more


def said(program, *arguments):
  """What a program of Python prints."""
  command = [sys.executable, '-c', program, *arguments]
  return subprocess.check_output(command, cwd=ROOT, env=untold(), text=True)


def faults(whose):
  started, kept, count = said(PROGRAM, whose).split()
  assert started == kept == str(whose == 'ours')
  return int(count)


@pytest.mark.full
@mutation('_set(_MMAP_MAX) and ', '')
def test_calls_find_their_pages_again():
  assert faults('ours') < faults('of another program') / 10


# The same without what keeps pages, as a large program has it; and what it was called with.
HUGE = """
import resource, sys
from bertjax.machine import malloc
if sys.argv[1] == 'ours': malloc.huge_pages()
import jax, jax.numpy as jnp
x = jnp.ones((3200, 8))
step = jax.jit(lambda x: jnp.sin(x @ x.T) @ x).lower(x).compile()
for _ in range(3): step(x).block_until_ready()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): step(x).block_until_ready()
print([resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, *sys.argv[1:]])
"""


@pytest.mark.full
@pytest.mark.skipif('[madvise]' not in malloc._policy(), reason='the kernel asks nobody')
@mutation("f'{_HUGE}=1'", "f'{_HUGE}=0'")
def test_a_large_program_has_huge_pages():
  def count(*arguments):
    found, *given = ast.literal_eval(said(HUGE, *arguments))
    assert given == [*arguments]
    return found

  assert count('ours', 'and more') < count('theirs', '') / 2  # a kernel may lack some


STARTS = """
import os
with open(os.environ['STARTS'], 'a') as file: print(os.environ.get('GLIBC_TUNABLES'), file=file)
"""


@pytest.mark.skipif('[madvise]' not in malloc._policy(), reason='the kernel asks nobody')
@mutation('    malloc.huge_pages()\n', '', file='bertjax/main.py')
def test_a_run_starts_anew_with_huge_pages(tmp_path):
  (tmp_path / 'sitecustomize.py').write_text(STARTS)
  path = os.pathsep.join([str(tmp_path), str(ROOT)])
  subprocess.run(
    [sys.executable, '-m', 'bertjax.main', '--helpshort'], cwd=ROOT, capture_output=True,
    check=False, env=untold(PYTHONPATH=path, STARTS=str(tmp_path / 'starts')),
  )  # fmt: skip
  starts = (tmp_path / 'starts').read_text().splitlines()
  assert starts == ['None', 'glibc.malloc.hugetlb=1']


@pytest.fixture
def started(monkeypatch):
  """What processes were started, in place of starting them."""
  found = []
  for name in (malloc._ASKED, malloc._TUNABLES):
    monkeypatch.setenv(name, 'of nobody')  # so that it is put back
    monkeypatch.delenv(name)
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setattr(malloc, '_policy', lambda: 'always [madvise] never')
  monkeypatch.setattr(malloc.os, 'execv', lambda file, argv: found.append((file, argv)))
  return found


@mutation(' or _ASKED in os.environ', '')
def test_a_process_starts_anew_once_and_with_what_it_was_told(started, monkeypatch):
  monkeypatch.setenv(malloc._TUNABLES, 'glibc.malloc.check=1')
  malloc.huge_pages()
  assert started == [(sys.executable, sys.orig_argv)]
  assert malloc.os.environ[malloc._TUNABLES] == 'glibc.malloc.check=1:glibc.malloc.hugetlb=1'
  monkeypatch.delenv(malloc._TUNABLES)  # as the loader of a privileged program does
  malloc.huge_pages()
  assert len(started) == 1


@mutation("'[madvise]' not in _policy()", 'not _policy()')
@pytest.mark.parametrize(
  ('policy', 'told', 'platforms'),
  [
    ('[always] madvise never', '', 'cpu'),
    ('always madvise [never]', '', 'cpu'),
    ('', '', 'cpu'),
    ('always [madvise] never', 'glibc.malloc.hugetlb=0', 'cpu'),
    ('always [madvise] never', '', ''),
  ],
)
def test_a_process_that_gains_nothing_goes_on(policy, told, platforms, started, monkeypatch):
  monkeypatch.setattr(malloc, '_policy', lambda: policy)
  monkeypatch.setattr(malloc.glob, 'glob', lambda pattern: ['/dev/accel0'])
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  if told:
    monkeypatch.setenv(malloc._TUNABLES, told)
  malloc.huge_pages()
  assert not started


@pytest.fixture
def settings(monkeypatch):
  """What is set, in place of setting it."""
  found = []
  library = type('Library', (), {'mallopt': lambda self, *setting: found.append(setting) or 1})
  monkeypatch.setattr(malloc.ctypes, 'CDLL', lambda name: library())
  monkeypatch.setattr(malloc, '_one_arena', False)
  monkeypatch.setattr(malloc, '_keeps', None)
  return found


@pytest.mark.parametrize(
  ('platforms', 'found', 'ours'),
  [('', ['/dev/accel0'], False), ('cpu', ['/dev/nvidia0'], True), ('', [], True)],
)
@mutation(
  "return os.environ.get('JAX_PLATFORMS') != 'cpu' and any(map(glob.glob, _ACCELERATORS))",
  'return False',
)
def test_hosts_of_accelerators_stay_as_they_are(platforms, found, ours, settings, monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  monkeypatch.setattr(malloc.glob, 'glob', lambda pattern: found)
  assert malloc.one_arena() is ours and len(settings) == ours
  assert malloc.keep_pages(1 << 20) is ours and len(settings) == 3 * ours
  assert malloc.keep_pages(1 << 21) is ours and len(settings) == 3 * ours


@mutation('if TIMES * temporary > (free := _free())', 'if 0 * temporary > (free := _free())')
@mutation('elif _keeps is None:', 'else:')
@mutation('      _set(_MAP_AGAIN)', '      pass')
def test_a_process_with_a_large_program_keeps_nothing_for_any(settings, monkeypatch, caplog):
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setattr(malloc, '_free', lambda: 1 << 34)
  malloc.one_arena()
  assert malloc.keep_pages(1 << 45) is False and malloc.keep_pages(1 << 20) is False
  assert len(settings) == 1
  (said,) = [record.getMessage() for record in caplog.records]
  assert '35184.4 GB' in said and 'and 17.2 GB are' in said
  monkeypatch.setattr(malloc, '_keeps', None)
  assert malloc.keep_pages(1 << 32) is True
  assert malloc.keep_pages(1 << 20) is True and malloc.keep_pages(1 << 45) is False
  assert settings[-1] == (-4, 65536) and malloc.keep_pages(1 << 20) is False


@mutation("[1]) * os.sysconf('SC_PAGE_SIZE')", '[1])')
def test_what_the_process_holds_is_free_to_it():
  def changed():
    block = np.ones(1 << 27)  # 1 GB
    with_block = malloc._free()
    del block
    return abs(with_block - malloc._free())

  assert any(changed() < 3e8 for _ in range(5))  # others may take and give memory meanwhile
