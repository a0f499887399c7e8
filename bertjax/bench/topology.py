"""TPUs that are not there: libtpu compiles for them on a CPU machine."""

import os
import re
from typing import Any

import jax

# Kind -> the name of a small topology and its accelerator type. One of its chips is compiled for.
from bertjax.errors import UserError

KINDS = {
  'v5e': ('v5e:2x2', 'v5litepod-4'),
  'v5p': ('v5p:2x2x1', 'v5p-8'),
  'v6e': ('v6e:2x2', 'v6e-4'),
  'v4': ('v4:2x2x1', 'v4-8'),
}


def device(kind: str) -> Any:
  """One chip of a kind, which programs can be compiled for and cannot run on.

  Raises:
    UserError: an unknown kind, or libtpu is absent.
  """
  if kind not in KINDS:
    raise UserError(f'expected a kind of TPU among {", ".join(KINDS)}; got {kind!r}')
  name, accelerator = KINDS[kind]
  os.environ['TPU_ACCELERATOR_TYPE'] = accelerator
  for key, value in dict(
    TPU_SKIP_MDS_QUERY='1', TPU_WORKER_HOSTNAMES='localhost', ALLOW_MULTIPLE_LIBTPU_LOAD='1'
  ).items():
    os.environ.setdefault(key, value)
  from jax.experimental import topologies

  try:
    return topologies.get_topology_desc(platform='tpu', topology_name=name).devices[0]
  except Exception as error:
    raise UserError(
      f'no compiler for TPU {kind}: {error}; pip install libtpu, in the version that '
      f'jax[tpu]=={jax.__version__} asks for'
    ) from error


def on(target: Any, tree: Any) -> Any:
  """The shapes of a tree, as arguments that live on a device."""
  place = jax.sharding.SingleDeviceSharding(target)
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree)


def compile_absent(lowered: Any) -> Any:
  """Compiles for devices that are not there, past the cache on disk: it writes such programs and
  cannot read them."""
  option = 'jax_persistent_cache_min_compile_time_secs'
  before = getattr(jax.config, option)
  jax.config.update(option, 1e9)
  try:
    return lowered.compile()
  finally:
    jax.config.update(option, before)


def memory(compiled: Any) -> dict[str, int]:
  """The compiler's account of a program's device memory, in bytes."""
  said = compiled.memory_analysis()
  used = said.argument_size_in_bytes + said.output_size_in_bytes + said.temp_size_in_bytes
  used += said.generated_code_size_in_bytes - said.alias_size_in_bytes
  return dict(
    argument_bytes=said.argument_size_in_bytes, temp_bytes=said.temp_size_in_bytes, all_bytes=used
  )


def reason(error: Exception) -> str:
  """Why something does not compile, on one line."""
  text = re.sub(r'\s+', ' ', str(error)).strip()
  full = re.search(r'Used ([\d.]+\w) of ([\d.]+\w) hbm', text)
  if full:
    return f'needs {full[1]} of {full[2]}'
  return f'{type(error).__name__}: {text[:160]}'
