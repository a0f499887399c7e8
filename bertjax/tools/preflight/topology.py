"""TPUs and GPUs that are not there: their compilers run on a CPU machine."""

import contextlib
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from bertjax.errors import UserError
from bertjax.kernels import target
from bertjax.machine import locks


class Card(NamedTuple):
  """A card (NVIDIA's data sheets of A100, H100 and H200, SXM; what a card said of itself where one
  was at hand)."""

  kind: str  # as jax names it
  capability: int  # major number of the compute capability; the minor one is 0
  cores: int  # multiprocessors
  lanes: int  # float32 units of each
  clock_ghz: float
  memory_bytes: int
  memory_bytes_per_second: float
  l2_bytes: int
  shared_bytes: int  # shared memory of a multiprocessor
  link_bytes_per_second: float  # to the other cards of a host, one way


CARDS = dict(
  a100=Card(
    'NVIDIA A100-SXM4-80GB', 8, 108, 64, 1.41, 81920 * 2**20, 2.039e12, 40 * 2**20, 164 * 2**10,
    300e9,
  ),
  h100=Card(
    'NVIDIA H100 80GB HBM3', 9, 132, 128, 1.98, 81559 * 2**20, 3.35e12, 50 * 2**20, 228 * 2**10,
    450e9,
  ),
  h200=Card(
    'NVIDIA H200', 9, 132, 128, 1.98, 143771 * 2**20, 4.8e12, 60 * 2**20, 228 * 2**10, 450e9
  ),
)  # fmt: skip


# Kind -> the name of an accelerator, before the number of its chips or, where two cores are
# counted, cores; and jax's name of the kind.
_ACCELERATORS = {
  'v5e': ('v5litepod', 1, 'TPU v5 lite'), 'v5p': ('v5p', 2, 'TPU v5'),
  'v6e': ('v6e', 1, 'TPU v6 lite'), 'v4': ('v4', 2, 'TPU v4'),
}  # fmt: skip


class Chip(NamedTuple):
  """Memory and bandwidth of one chip (cloud.google.com/tpu/docs, the page of each version), or
  card."""

  # bytes of memory that a program may use: by libtpu; of a card three quarters, which jax takes
  # unless XLA_PYTHON_CLIENT_MEM_FRACTION says otherwise
  hbm_bytes: int
  hbm_bytes_per_second: float  # bandwidth between the chip and its memory
  ici_bytes_per_second: float  # bandwidth from the chip to its neighbours, over all links


GIB = 2**30
CHIPS = {
  'TPU v4': Chip(int(30.75 * GIB), 1.228e12, 300e9),
  'TPU v5 lite': Chip(int(15.75 * GIB), 0.819e12, 200e9),
  'TPU v5': Chip(int(95.74 * GIB), 2.765e12, 600e9),
  'TPU v6 lite': Chip(int(31.25 * GIB), 1.64e12, 448e9),
} | {
  card.kind: Chip(
    card.memory_bytes * 3 // 4, card.memory_bytes_per_second, card.link_bytes_per_second
  )
  for card in CARDS.values()
}


def description(card: Card) -> str:
  """Returns the text of a card's `stream_executor.GpuTargetConfigProto` (openxla/xla)."""
  return f'''
    gpu_device_info {{
      threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
      shared_memory_per_block: 49152 shared_memory_per_core: {card.shared_bytes}
      shared_memory_per_block_optin: {card.shared_bytes - 1024}
      registers_per_core_limit: 65536 registers_per_block_limit: 65536
      core_count: {card.cores} fpus_per_core: {card.lanes} clock_rate_ghz: {card.clock_ghz}
      block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
      memory_bandwidth: {card.memory_bytes_per_second:.0f} l2_cache_size: {card.l2_bytes}
      device_memory_size: {card.memory_bytes}
      cuda_compute_capability {{ major: {card.capability} }}
    }}
    platform_name: "CUDA" device_description_str: "{card.kind}"
    dnn_version_info {{ major: 9 minor: 20 }} runtime_version {{ major: 13 }}
  '''


class Slice(NamedTuple):
  """A slice of TPUs, or the cards of hosts, by its name."""

  kind: str  # as jax names it, a key of CHIPS
  chips: int  # how many

  @property
  def platform(self) -> str:
    """Returns tpu or gpu."""
    return target.platform_of(self.kind)

  @property
  def hosts(self) -> int:
    """The machines that the chips are in, four in each, as libtpu has it; cards are in one."""
    return max(self.chips // 4, 1) if self.platform == 'tpu' else 1


def select(name: str) -> Slice:
  """Returns a slice such as v5e:4x4, or cards such as h100:8; their compiler, when it is loaded, is
  told of it by the environment. Raises UserError: an unknown kind or shape."""
  kind, _, count = name.partition(':')
  if kind in CARDS and count.isdecimal() and int(count):
    # jax's plug-in, when it is loaded, would look for a driver.
    os.environ.setdefault('JAX_SKIP_CUDA_CONSTRAINTS_CHECK', '1')
    if int(count) > 8:
      raise UserError(f'{name}: expected the cards of one host, 8 at most, got {count}')
    return Slice(CARDS[kind].kind, int(count))
  found = re.fullmatch(r'(\w+):(\d+(?:x\d+){1,2})', name)
  if not found or found[1] not in _ACCELERATORS:
    raise UserError(
      f'expected a slice of TPUs as v5e:4x4 or v5p:4x4x4, of {", ".join(_ACCELERATORS)}, or '
      f'GPUs as h100:8, of {", ".join(CARDS)}; got {name!r}'
    )
  accelerator, counted, kind = _ACCELERATORS[found[1]]
  chips = math.prod(int(side) for side in found[2].split('x'))
  os.environ['TPU_ACCELERATOR_TYPE'] = f'{accelerator}-{chips * counted}'
  for key, value in dict(
    TPU_SKIP_MDS_QUERY='1', TPU_WORKER_HOSTNAMES='localhost', ALLOW_MULTIPLE_LIBTPU_LOAD='1'
  ).items():
    os.environ.setdefault(key, value)
  return Slice(kind, chips)


@contextlib.contextmanager
def in_turn(say: Callable[[str], None]) -> Iterator[None]:
  """Waits until no other process of this user compiles for devices that are not there: two at once
  take twice the memory and no less time."""
  path = pathlib.Path(tempfile.gettempdir(), f'bertjax-libtpu-{os.getuid()}.lock')
  with locks.in_turn(path, lambda holder: say(f'a compiler is at work for {holder}: waiting')):
    yield


def devices(name: str) -> list[Any]:
  """Returns the chips of a slice such as v5e:4x4, or cards, which programs can be compiled for and
  cannot run on. Raises UserError: an unknown kind or shape, or the compiler is absent."""
  where = select(name)
  from jax.experimental import topologies

  if where.platform == 'gpu':
    card = description(CARDS[name.partition(':')[0]])
    options = dict(topology_name='', target_config=card, topology=f'1x1x{where.chips}')
    # jax takes a plug-in of its own version alone.
    own = ' '.join(f'jax-cuda13-{part}=={jax.__version__}' for part in ('plugin', 'pjrt'))
    platform, remedy = 'cuda', f'pip install -r requirements-gpu-compiler.txt {own}'
  else:
    # A real run has the two cores of a v4 chip as one device.
    whole = dict(chip_config_name='megacore') if name.startswith('v4') else {}
    options, platform = dict(topology_name=name, **whole), 'tpu'
    remedy = f'pip install libtpu, in the version that jax[tpu]=={jax.__version__} asks for'
  try:
    found = topologies.get_topology_desc(platform=platform, **options)
  except RuntimeError as error:  # jax's of no compiler, and JaxRuntimeError of what it refuses
    raise UserError(
      f'no compiler for {name}: {error}; give a slice that exists, or {remedy}'
    ) from error
  return list(found.devices)


def compile_to_text(lowered: Any) -> tuple[Any, str]:
  """Compiles as `compile_absent` does; returns also the program as compilers write it, which jaxlib
  cannot always read."""
  with tempfile.TemporaryDirectory() as folder:
    compiled = compile_absent(lowered, dict(xla_dump_to=folder, xla_dump_hlo_as_text=True))
    texts = pathlib.Path(folder).glob('*after_optimizations.txt')
    return compiled, max(texts, key=lambda path: path.stat().st_size).read_text()


def compile_absent(lowered: Any, options: dict[str, Any] | None = None) -> Any:
  """Compiles for devices that are not there, past the cache on disk: it writes such programs and
  cannot read them."""
  option = 'jax_persistent_cache_min_compile_time_secs'
  before = getattr(jax.config, option)
  jax.config.update(option, 1e9)
  try:
    return lowered.compile(compiler_options=options)
  finally:
    jax.config.update(option, before)


def memory(compiled: Any) -> dict[str, int]:
  """Returns the compiler's account of a program's device memory, in bytes."""
  said = compiled.memory_analysis()
  used = said.argument_size_in_bytes + said.output_size_in_bytes + said.temp_size_in_bytes
  used += said.generated_code_size_in_bytes - said.alias_size_in_bytes
  return dict(
    argument_bytes=said.argument_size_in_bytes, temp_bytes=said.temp_size_in_bytes, all_bytes=used
  )


_FULL = (  # how libtpu says that a program does not fit: what it needs, what there is
  re.compile(r'Used ([\d.]+)([KMGT]) of ([\d.]+\w) hbm'),
  re.compile(
    r'memory required for HLO temporaries \(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+\w)'
  ),
)


def needed_bytes(error: Exception) -> int | None:
  """Returns the bytes that a program too large for the chip would need; None for other errors."""
  text = re.sub(r'\s+', ' ', str(error))
  full = next((found for form in _FULL if (found := form.search(text))), None)
  return full and int(float(full[1]) * 1024 ** ('KMGT'.index(full[2]) + 1))
