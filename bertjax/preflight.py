"""Compiles a train step for TPUs or GPUs that are not there: python -m bertjax.preflight

  python -m bertjax.preflight --config=configs/bert.py:large --topology=v5e:4x4 \
      --config.model.remat=full

Says whether the step fits, and what the compiler's program moves: bytes between a chip and its
memory, collectives between chips, and the time that neither these nor the products can do without.
These are figures of a compiler, not of a run. What is far too large is
known from shapes alone in seconds; it is not compiled, and values of the config are proposed with
which it fits. With --estimate nothing is compiled. Phases are compiled one by one, the heaviest
last; or rows of one size with --batch_size (of all chips) and --length. The preset is that of the
devices unless config.preset says another. Returns 1 if something does not fit.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from absl import flags
from ml_collections import config_flags

from bertjax import sharding
from bertjax.config import command_line, presets
from bertjax.errors import UserError, door
from bertjax.kernels import relative_attention
from bertjax.tools.preflight import topology
from bertjax.tools.preflight.checking import check, phases

_CONFIG = command_line.define_config('Config file, e.g. configs/xlnet.py:base')
_TOPOLOGY = flags.DEFINE_string(
  'topology', 'v5e:1x1', 'Slice: v5e:4x4, v5p:4x4x4, .. or GPUs: h100:8.'
)
_BATCH_SIZE = flags.DEFINE_integer('batch_size', None, 'Rows per step on all chips.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', None, 'Tokens per row.', lower_bound=8)
_MESH = flags.DEFINE_string(
  'mesh', None, 'Chips on data,fsdp,tensor, as in 4,2,2; config.mesh if not given.'
)
_IMPL = flags.DEFINE_enum(
  'impl', None, list(relative_attention.IMPLEMENTATIONS), "Attention, if not the devices' kernel."
)
_ESTIMATE = flags.DEFINE_bool('estimate', False, 'Say what shapes alone say; do not compile.')
_JSON = flags.DEFINE_bool('json', False, 'Print one line of JSON for each phase, and nothing else.')
flags.mark_flag_as_required('config')


def lines(said: Mapping[str, Any]) -> Iterator[str]:
  """Yields the result of a check in lines for people."""
  mesh = ' '.join(f'{axis}={size}' for axis, size in said['mesh'].items() if size > 1) or 'one chip'
  yield (
    f'{said["config"]}, {said["phase"]}: {said["batch_size"]:,} rows of {said["length"]} on '
    f'{said["topology"]} ({mesh}), {said["dtype"]}, remat {said["remat"]}'
  )
  gb = lambda count: f'{count / 2**30:.2f} GiB'
  needs = f'{gb(said["hbm_bytes"])} of {gb(said["hbm_limit_bytes"])} a chip'
  parts = ', '.join(f'{name} {gb(count)}' for name, count in said['estimate'].items())
  yield f'  by shapes alone {gb(said["estimate_bytes"])}: {parts}'
  if not said['fits']:
    by = 'the compiler' if said['compiled'] else 'shapes alone'
    yield f'  DOES NOT FIT: by {by} it needs {needs}. By shapes alone it fits with'
    yield f'  {said["proposal"] or "no microbatches, fsdp or remat: take more chips"}'
    return
  if not said['compiled']:
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
      f'{each["bytes"] / 2**20:,.1f} MiB, {each["sent_bytes"] / 2**20:,.1f} MiB sent by each chip'
    )
  compute = said['roofline']['compute']
  bound = lambda s: f' (MFU at most {compute / s:.0%})' if s > compute else ''
  seconds = ', '.join(f'{name} {1e3 * s:.1f} ms{bound(s)}' for name, s in said['roofline'].items())
  yield (
    f'  {said["flops_per_step"] / 1e12:,.1f} TFLOP a step on all chips; none is faster than: '
    f'{seconds}; MFU at most {said["mfu_bound"]:.0%} (compiled in {said["seconds"]} s)'
  )
  if 'chip_hours' in said:
    yield f'  the phase takes {said["chip_hours"]:,.0f} chip-hours at the least'


def main() -> int:
  """Prints what was found of each phase; 1 if one does not fit."""
  config, fits = _CONFIG.value, True
  config.preset = config.preset or topology.select(_TOPOLOGY.value).platform
  given = config_flags.get_override_values(flags.FLAGS['config'])
  if _MESH.value is not None:
    if both := [key for key in given if key.startswith('mesh.')]:
      raise UserError(f'--mesh and --config.{both[0]}: expected one of them')
    config.mesh.update(sharding.typed_mesh(_MESH.value))
  for line in presets.apply(config, given, os.environ):
    print(line, file=sys.stderr)
  hours = []
  for phase in phases(config, _BATCH_SIZE.value, _LENGTH.value):
    said = check(phase, _TOPOLOGY.value, _IMPL.value, not _ESTIMATE.value)
    fits = fits and said['fits']
    hours.append(said.get('chip_hours'))
    print(json.dumps(said) if _JSON.value else '\n'.join(lines(said)), flush=True)
  if len(hours) > 1 and all(hours) and not _JSON.value:
    print(f'All phases take {sum(hours):,.0f} chip-hours at the least.')
  return 0 if fits else 1


if __name__ == '__main__':
  with door('bertjax.preflight'):
    command_line.run(main, 'bertjax.preflight')
