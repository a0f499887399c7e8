"""Memory that a process keeps: no step asks the kernel for pages again."""

import subprocess
import sys

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


def faults(whose):
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, whose], cwd=ROOT, env=environment(), text=True,
    capture_output=True, check=True,
  )  # fmt: skip
  started, kept, count = done.stdout.split()
  assert started == kept == str(whose == 'ours')
  return int(count)


@mutation(
  'malloc: large blocks are mapped',
  'bertjax/machine/malloc.py',
  '_set(_MMAP_MAX) and ',
  '',
)
def test_calls_find_their_pages_again():
  assert faults('ours') < faults('of another program') / 10


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
  'malloc: hosts of accelerators keep all their memory too',
  'bertjax/machine/malloc.py',
  "if os.environ.get('JAX_PLATFORMS') != 'cpu' and any(map(glob.glob, _ACCELERATORS)):",
  'if False:',
)
def test_hosts_of_accelerators_stay_as_they_are(platforms, found, ours, settings, monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', platforms)
  monkeypatch.setattr(malloc.glob, 'glob', lambda pattern: found)
  assert malloc.one_arena() is ours and len(settings) == ours
  assert malloc.keep_pages(1 << 20) is ours and len(settings) == 3 * ours
  assert malloc.keep_pages(1 << 21) is ours and len(settings) == 3 * ours


@mutation(
  'malloc: large programs keep their pages too',
  'bertjax/machine/malloc.py',
  'if temporary >= SHARE * memory:',
  'if False:',
)
@mutation(
  'malloc: a small program after a large one keeps the pages of both',
  'bertjax/machine/malloc.py',
  ' or _keeps is False:',
  ':',
)
@mutation(
  'malloc: a large program finds what a small one has set',
  'bertjax/machine/malloc.py',
  '      _set(_MAP_AGAIN)',
  '      pass',
)
def test_a_process_with_a_large_program_keeps_nothing_for_any(settings, monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  malloc.one_arena()
  assert malloc.keep_pages(1 << 45) is False and malloc.keep_pages(1 << 20) is False
  assert len(settings) == 1
  monkeypatch.setattr(malloc, '_keeps', None)
  assert malloc.keep_pages(1 << 20) is True and malloc.keep_pages(1 << 45) is False
  assert settings[-1] == (-4, 65536) and malloc.keep_pages(1 << 20) is False
