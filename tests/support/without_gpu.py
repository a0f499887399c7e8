"""Programs lowered for CUDA on a machine without a GPU."""

import jax
from jax.sharding import AbstractDevice, AbstractMesh

from bertjax.kernels import target

KIND = 'NVIDIA H100 80GB HBM3'
DEVICE = AbstractDevice(device_kind=KIND, num_cores=None, platform='gpu')
ALONE = AbstractMesh((), (), abstract_device=DEVICE)


def lowered(function, *operands, mesh: AbstractMesh = ALONE) -> str:
  """The text of a function lowered for CUDA, on a mesh of devices that jax must be told of."""
  with jax.sharding.use_abstract_mesh(mesh), target.compiled_for(KIND):
    return jax.jit(function).trace(*operands).lower(lowering_platforms=('cuda',)).as_text()
