"""Compiles a train step for TPUs that are not there: python -m bertjax.preflight

  python -m bertjax.preflight --config=configs/bert.py:large --topology=v5e:4x4 \
      --config.model.remat=full

Says whether the step fits, and what the compiler's program moves: bytes between a chip and its
memory, collectives between chips, and the time that neither these nor the products can do without.
These are figures of a compiler, not of a run. Phases are compiled one by one, the heaviest last; or
rows of one size with --batch_size (of all chips) and --length. The preset is that of TPUs unless
config.preset says another. Returns 1 if something does not fit.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import app, flags, logging
from ml_collections import config_flags

from bertjax import config_files, presets
from bertjax.bench import own_step
from bertjax.bench.synthetic import synthetic_batch
from bertjax.errors import UserError, door
from bertjax.kernels import relative_attention
from bertjax.preflight import compiled_step, topology
from bertjax.train import timeline
from bertjax.types import Batch

_CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file, e.g. configs/xlnet.py:base')
_TOPOLOGY = flags.DEFINE_string('topology', 'v5e:1x1', 'Slice: v5e:4x4, v5p:4x4x4, v6e:8x8, ...')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, 'Rows per step on all chips.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', None, 'Tokens per row.', lower_bound=8)
_IMPL = flags.DEFINE_enum('impl', 'tpu', list(relative_attention.IMPLEMENTATIONS), 'Of attention.')
_JSON = flags.DEFINE_bool('json', False, 'Print one line of JSON for each phase, and nothing else.')
flags.mark_flag_as_required('config')

COMPILED = (
  'batch_size', 'length', 'microbatches', 'reduce_dtype', 'model', 'objective', 'optimizer'
)  # fmt: skip
SAMPLE = 64  # rows that are made up; a larger batch repeats them


def phases(config: Any, batch_size: int | None, length: int | None) -> list[tuple[str, Any]]:
  """(name, config) of what is to be compiled, the heaviest last; phases whose steps are alike once.

  Raises:
    UserError: one of the two sizes alone.
  """
  if (batch_size is None) != (length is None):
    raise UserError(
      '--batch_size and --length: expected both, or none for the phases of the config'
    )
  if batch_size is not None and length is not None:
    return [('main', own_step.sized(config, batch_size, length))]
  found = {}
  for phase in timeline.make(config).phases:
    c = phase.config
    sized = own_step.sized(c, c.batch_size, c.length)
    # What a step is compiled from; of the data the rows alone.
    known = sized.to_dict()
    key = json.dumps([known[name] for name in COMPILED], default=str)
    found.setdefault(key, (phase.name, sized))
  weight = lambda item: item[1].batch_size * item[1].length
  return sorted(found.values(), key=weight)


def batch_of(config: Any) -> Batch:
  """A batch of made-up text; its rows repeat where there are many."""
  rows = config.batch_size
  few = config.copy_and_resolve_references()
  few.batch_size = min(rows, SAMPLE)
  repeated_n = np.arange(rows) % few.batch_size
  return {name: x[repeated_n] for name, x in synthetic_batch(few).items()}


def check(config: Any, topology_name: str, impl: str = 'tpu') -> dict[str, Any]:
  """What the compiler says of a phase, see `compiled_step.check`; the slice and the config named.

  Raises:
    UserError: no such slice, or a mesh or batch that it does not divide.
  """
  devices = topology.devices(topology_name)
  said = compiled_step.check(config, batch_of(config), devices, impl)
  return dict(config=config.name, topology=topology_name, chips=len(devices)) | said


def lines(said: Mapping[str, Any]) -> Iterator[str]:
  """What was found, for people."""
  mesh = ' '.join(f'{axis}={size}' for axis, size in said['mesh'].items() if size > 1) or 'one chip'
  yield (
    f'{said["config"]}, {said["phase"]}: {said["batch_size"]:,} rows of {said["length"]} on '
    f'{said["topology"]} ({mesh}), {said["dtype"]}, remat {said["remat"]}'
  )
  gb = lambda count: f'{count / 2**30:.2f} GB'
  needs = f'{gb(said["hbm_bytes"])} of {gb(said["hbm_limit_bytes"])} a chip'
  if not said['fits']:
    yield f'  DOES NOT FIT: it needs {needs}. Try config.model.remat=full, config.microbatches='
    yield f'  {2 * said["microbatches"]}, a larger config.mesh.fsdp, or more chips'
    return
  yield f'  fits: {needs}, {gb(said["temporaries_bytes"])} of them temporary'
  kb = lambda count: f'{count / 1e3:,.0f} KB'
  parts = ', '.join(f'{name} {kb(moved)}' for name, moved in said['parts'].items())
  yield (
    f'  memory traffic a token: {kb(said["bytes_per_token"])} of arrays as named, '
    f'{kb(said["bytes_per_token_padded"])} as stored ({parts})'
  )
  for name, moved in said['by_operation'].items():
    yield f'    {kb(moved):>10}  {name}'
  for each in said['collectives']:
    over = ', '.join(each['axes'])
    yield (
      f'  {each["count"]:>5} x {each["kind"]} over {over} ({each["ways"]} ways), {each["dtype"]}: '
      f'{each["bytes"] / 2**20:,.1f} MB, {each["sent_bytes"] / 2**20:,.1f} MB sent by each chip'
    )
  seconds = ', '.join(f'{name} {1e3 * s:.1f} ms' for name, s in said['roofline'].items())
  yield (
    f'  no step is faster than: {seconds}; MFU at most {said["mfu_bound"]:.0%} '
    f'(compiled in {said["seconds"]} s)'
  )


def main(argv: list[str]) -> int:
  """Prints what was found of each phase; 1 if one does not fit."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)
  config, fits = _CONFIG.value, True
  config.preset = config.preset or 'tpu'
  given = config_flags.get_override_values(flags.FLAGS['config'])
  for line in presets.apply(config, given, os.environ):
    print(line, file=sys.stderr)
  if _BATCH_SIZE.value is None and timeline.make(config).factors:
    print('A step takes all of these phases and holds more than each alone', file=sys.stderr)
  for name, phase in phases(config, _BATCH_SIZE.value, _LENGTH.value):
    said: dict[str, Any] = dict(phase=name) | check(phase, _TOPOLOGY.value, _IMPL.value)
    fits = fits and said['fits']
    print(json.dumps(said) if _JSON.value else '\n'.join(lines(said)), flush=True)
  return 0 if fits else 1


if __name__ == '__main__':
  __doc__ = f'{__doc__}{config_files.keys_help(sys.argv)}'
  with door('bertjax.preflight'):
    app.run(lambda argv: sys.exit(main(argv)), config_files.located(sys.argv))
