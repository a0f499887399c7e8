"""NVIDIA cards that are not there, as XLA's compiler is told of them."""

from typing import NamedTuple


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
