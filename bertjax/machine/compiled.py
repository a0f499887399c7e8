"""Compiled code stays on the host, so that no process compiles what another one has.

A restart, the runs of a sweep and fine-tuning over and over compile the same steps: JAX keeps them
in a directory, if it is told which (JAX_COMPILATION_CACHE_DIR). Code for CPUs is made for those of
this host, and for as many as the process may use: what one core has compiled leaves others idle,
and adds up in another order. A home directory may be that of many hosts, so each kind and number of
CPUs has a directory.
"""

import hashlib
import os
import pathlib
import platform
import re
import sys
from collections.abc import MutableMapping

DIRECTORY = 'JAX_COMPILATION_CACHE_DIR'
_CPU = pathlib.Path('/proc/cpuinfo')
_OF_CPUS = re.compile(r'\w+-[0-9a-f]{8}-\d+')
_FEATURES = ('flags', 'Features')  # how x86 and Arm call them


def keep(cache: pathlib.Path, environ: MutableMapping[str, str] = os.environ) -> None:
  """Names a directory in the one that is named, else in `cache`: to jax alone where it is imported,
  else in the environment. To be called before jax compiles anything."""
  named = environ.get(DIRECTORY)
  root = named or str(cache / 'compiled')
  above, _, last = root.rpartition('/')
  directory = f'{above if _OF_CPUS.fullmatch(last) else root}/{_cpus()}'  # of the process before
  jax = sys.modules.get('jax') if environ is os.environ else None
  if not jax:
    environ[DIRECTORY] = directory
  elif jax.config.jax_compilation_cache_dir in (None, named):  # not by the program itself
    jax.config.update('jax_compilation_cache_dir', directory)


def _cpus() -> str:
  """Returns the architecture, what tells what these CPUs can do from what others can, and how many
  there are."""
  lines = _CPU.read_text().splitlines() if _CPU.exists() else [platform.processor()]
  known = sorted({line for line in lines if line.startswith(_FEATURES)} or lines[:1])
  kind = hashlib.sha256(''.join(known).encode()).hexdigest()[:8]
  return f'{platform.machine()}-{kind}-{len(os.sched_getaffinity(0))}'
