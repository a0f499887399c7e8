"""Settings for a kind of device: `--config.preset=tpu`, `gpu` or `cpu`; on an NVIDIA GPU, gpu.

A preset is the dtype of models, what their backward pass keeps, and flags of the compiler. What the
command line or the environment says stands: `--config.model.dtype=float32`, a flag in XLA_FLAGS or
LIBTPU_INIT_ARGS.

The compilers refuse a flag that they do not know, so what is here is known to the jaxlib and the
libtpu of the requirements (tests/config/presets_test.py). Sources: for GPUs, "GPU performance tips"
of JAX's documentation; for TPUs, what MaxText and JAX's documentation set for training with sharded
parameters. With libtpu 0.0.52 they changed neither the length nor the collectives of the one step
that was compared, so they are for others.
"""

import importlib.util
import pathlib
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, NamedTuple

from bertjax.errors import choose


class Preset(NamedTuple):
  """A preset."""

  # fields of `config.model`, where the model has them: the dtype that it computes in (parameters
  # are float32), and what the backward pass keeps (models/layers/remat.py)
  model: dict[str, str]
  # variable of the environment -> flags for it, flag -> value
  flags: dict[str, dict[str, str]]


PRESETS = dict(
  tpu=Preset(
    model=dict(dtype='bfloat16', remat='light'),
    flags=dict(
      LIBTPU_INIT_ARGS={
        # Gathers of sharded parameters run while the tensor cores compute. Fusing them with
        # products (xla_tpu_enable_async_collective_fusion) is for v5e alone, whose default it is.
        'xla_tpu_overlap_compute_collective_tc': 'true',
        'xla_enable_async_all_gather': 'true',
        # The reductions of data parallelism, of leaves of any size, with the backward pass.
        'xla_tpu_enable_data_parallel_all_reduce_opt': 'true',
        'xla_tpu_data_parallel_opt_different_sized_ops': 'true',
        'xla_tpu_enable_latency_hiding_scheduler': 'true',
      }
    ),
  ),
  gpu=Preset(
    # With all kept a step of BERT base took 53 ms on an H200, with light 59 (docs/gpu.md).
    model=dict(dtype='bfloat16', remat='none'),
    flags=dict(
      XLA_FLAGS={
        'xla_gpu_enable_latency_hiding_scheduler': 'true',
        # Collectives beside the computations of the next turn, in loops: those over microbatches.
        'xla_gpu_enable_pipelined_all_gather': 'true',
        'xla_gpu_enable_pipelined_reduce_scatter': 'true',
        'xla_gpu_enable_pipelined_all_reduce': 'true',
        'xla_gpu_enable_highest_priority_async_stream': 'true',
      }
    ),
  ),
  cpu=Preset(model=dict(dtype='float32', remat='none'), flags={}),
)


DRIVER = pathlib.Path('/dev/nvidiactl')


def choose_own(
  config: Any, given: Collection[str], environ: Mapping[str, str], begun: str | None = None
) -> list[str]:
  """Names the preset, in place, where neither the config nor the command line does: that with which
  the run has begun, None: it has not; else gpu where jax would compute on an NVIDIA GPU, which
  `--config.preset=` keeps away. Returns what was done."""
  if config.preset or 'preset' in given or begun == '':
    return []
  if begun is not None:
    config.preset = begun
    return [f'Preset {begun}: the run has begun with it']
  plugin = any(importlib.util.find_spec(f'jax_cuda{n}_plugin') for n in (12, 13))
  meant = environ.get('JAX_PLATFORMS', '').split(',')[0] in ('', 'cuda', 'gpu')
  hidden = environ.get('CUDA_VISIBLE_DEVICES', '0') in ('', '-1')
  if hidden or not (plugin and meant and DRIVER.exists()):
    return []
  config.preset = 'gpu'
  return [
    'Preset gpu: this machine has an NVIDIA GPU; --config.preset= leaves all as it is written'
  ]


def apply(config: Any, given: Collection[str], environ: MutableMapping[str, str]) -> list[str]:
  """`set_fields` and `set_flags`: of the commands that have no run."""
  return [*set_fields(config, given), *set_flags(config.preset, environ)]


def set_fields(config: Any, given: Collection[str]) -> list[str]:
  """Sets the fields of `config.model`, in place, by the preset that the config names, '': none, but
  for keys that the command line gives, such as 'model.dtype'. Returns what was done, a line each.
  Raises UserError: an unknown preset."""
  if not config.preset:
    return []
  preset, said = PRESETS[choose(config.preset, PRESETS, 'config.preset')], []
  for field in [name for name in preset.model if name in config.model]:
    as_given = f'model.{field}' in given
    if not as_given:
      config.model[field] = preset.model[field]
    said.append(f'config.model.{field}={config.model[field]}{", as given" if as_given else ""}')
  return [f'Preset {config.preset}: {line}' for line in said]


def set_flags(name: str, environ: MutableMapping[str, str]) -> list[str]:
  """Adds the flags of a preset to the environment, which the compilers read when jax first looks
  for devices; returns and raises as `set_fields`."""
  if not name:
    return []
  preset, said = PRESETS[choose(name, PRESETS, 'config.preset')], []
  for variable, flags in preset.flags.items():
    present = environ.get(variable, '').split()
    known = {flag.lstrip('-').partition('=')[0] for flag in present}
    added = [f'--{name}={value}' for name, value in flags.items() if name not in known]
    if added:
      environ[variable] = ' '.join([*present, *added])
      said.append(f'{variable}: {" ".join(added)}')
    kept = [name for name in flags if name in known]
    if kept:
      said.append(f'{variable} says itself what {", ".join(kept)} is')
  return [f'Preset {name}: {line}' for line in said]


def warnings(name: str, dtype: str, platform: str, environ: Mapping[str, str]) -> list[str]:
  """Returns warnings, a sentence each, about `config.preset` and `config.model.dtype` that do not
  fit the devices, whose platform is 'cpu', 'gpu' or 'tpu'."""
  said = []
  if name:
    flags = PRESETS[name].flags.items()
    absent = [flag for key, own in flags for flag in own if flag not in environ.get(key, '')]
    if absent:
      said.append(
        f'this command has not applied config.preset={name}: the compiler was not given '
        f'{", ".join(absent)}; put them into the environment'
      )
  if name and name != platform:
    said.append(f'config.preset={name} is for other devices than this {platform}')
  if platform != 'cpu' and dtype == 'float32':
    said.append(
      f'config.model.dtype=float32 on a {platform}: matrix products take several times as long and '
      f'activations twice the memory of bfloat16, which --config.preset={platform} sets'
    )
  return [f'Warning: {line}' for line in said]
