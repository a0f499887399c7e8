"""Trains or evaluates: python -m bertjax.main --config=configs/bert.py:base --workdir=runs/bert

Flags, jax.distributed, one call; the rest is in bertjax/train/loop.py.
"""

import os
import pathlib

from absl import flags
from ml_collections import config_flags

from bertjax import registry
from bertjax.config import arguments, command_line, presets
from bertjax.errors import UserError, door
from bertjax.machine import compiled, copies, malloc

_CONFIG = command_line.define_config()
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the run: checkpoints, metrics.jsonl, curves.png.', required=True
)
_EVALUATE = flags.DEFINE_bool(
  'evaluate',
  False,
  "Score the workdir's newest checkpoint on the held-out documents and stop. The config is the "
  "workdir's, with --config.KEY=VALUE on top.",
)
_STEP = flags.DEFINE_string(
  'step', None, "Step of the checkpoint to evaluate, or 'best'. Default: the newest."
)
_REMAP = flags.DEFINE_bool(
  'remap_vocab', False, 'Set config.remap_vocab: init_from may have another vocabulary.'
)
_OVERRIDE = flags.DEFINE_multi_string(
  'override',
  [],
  'Keys of the config, with commas between, that may have other values than the run in the workdir '
  'had so far, e.g. optimizer.schedule.peak; may be given several times.',
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator',
  None,
  'HOST:PORT of process 0, where jax does not find it: neither a TPU pod nor SLURM nor Open MPI.',
)
_PROCESSES = flags.DEFINE_integer(
  'processes', None, 'Number of processes, with --coordinator. Default: this one alone.'
)
_PROCESS = flags.DEFINE_integer('process', None, 'Index of this process, with --coordinator.')
flags.mark_flag_as_required('config')


def main() -> None:
  """Trains or evaluates."""
  # After the flags, so that --help is quick.
  from bertjax.checkpoint import resume
  from bertjax.machine import distributed
  from bertjax.train import loop as train_loop

  if _REMAP.value:
    _CONFIG.value.remap_vocab = True
  given = config_flags.get_override_values(flags.FLAGS['config'])
  said = []
  if not _EVALUATE.value:
    stored = resume.stored(_WORKDIR.value)
    begun = None if stored is None else stored['config'].get('preset', '')
    said = presets.choose_own(_CONFIG.value, given, os.environ, begun)
  if not _EVALUATE.value or 'preset' in given:
    said += presets.set_flags(_CONFIG.value.preset, os.environ)
  for line in said:
    print(line, flush=True)
  names = [name for text in _OVERRIDE.value for name in text.split(',') if name]
  if names and _EVALUATE.value:
    raise UserError('--override is for training: --evaluate takes --config.KEY=VALUE as it is')
  if _STEP.value and not _EVALUATE.value:
    raise UserError('--step is for --evaluate: a run goes on from its newest checkpoint')
  distributed.join(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
  if _EVALUATE.value:
    # The config of a workdir has what its preset and its length have set.
    own = {*given, 'total_steps'} if 'preset' in given else None
    train_loop.evaluate(_CONFIG.value, _WORKDIR.value, _STEP.value, own)
  else:
    train_loop.run(_CONFIG.value, _WORKDIR.value, names, given)


def _with_stored_config(argv: list[str]) -> list[str]:
  """Returns the arguments; --evaluate takes the config of the workdir in place of --config."""
  config, workdir = (arguments.value(argv, name) for name in ('config', 'workdir'))
  if not (workdir and arguments.switched(argv, 'evaluate')):
    return argv
  if config and pathlib.Path(config.partition(':')[0]).is_file():
    registry.note_own(command_line.load(config))  # it may name what that of the workdir names
  file = pathlib.Path(__file__).with_name('checkpoint') / 'stored_config.py'
  rest = arguments.without_flags(argv, ['config'], [])
  return [*rest, f'--config={file}:{workdir}']


if __name__ == '__main__':
  with door('bertjax'):
    malloc.huge_pages()
    malloc.one_arena()
    compiled.keep(copies.cache())
    command_line.run(main, 'bertjax', _with_stored_config)
