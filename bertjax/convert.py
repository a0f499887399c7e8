"""Models out and in: python -m bertjax.convert --to=hf --workdir=RUN --output=DIR

  --to=hf --workdir=RUN --output=DIR               a run, for `transformers`
  --to=onnx --workdir=RUN --output=DIR             a run, for onnxruntime
  --to=original --workdir=RUN --output=DIR         an ELMo by bilm-tf's names, a
                                                   language model of ULMFiT by fastai's
  --from=FORMAT --input=PATH --output=RUN          a model from elsewhere, as a run: hf, tf1 (BERT,
                                                   ALBERT, ELECTRA, XLNet, ELMo), fairseq (RoBERTa,
                                                   XLM-R), transformer_xl (the original's torch),
                                                   fastai (ULMFiT), bilm (ELMo's HDF5)
  --table=FAMILY                                   the name table of a family

Every conversion writes parity.json, its receipt: what became of each tensor, and where torch and
transformers are installed how far the outputs of both sides are apart. Where they differ the
command exits with 1 and leaves no finished directory. predict, embed and config.init_from take a
converted model as a run.
"""

import sys
from collections.abc import Sequence

from absl import flags
from rich.console import Console
from rich.table import Table

from bertjax.config import command_line
from bertjax.errors import UserError, amount, choose, door
from bertjax.machine import remote

_TO = flags.DEFINE_enum('to', None, ['hf', 'onnx', 'original'], 'Format to write.')
_FROM = flags.DEFINE_string(
  'from', None, 'Format to read: hf, tf1, fairseq, transformer_xl, fastai or bilm.'
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'With --to: the run, or one of its checkpoints.')
_STEP = flags.DEFINE_string('step', None, "With --to: step, or 'best'. Default: the newest.")
_INPUT = flags.DEFINE_string('input', None, 'With --from: the model to read.')
_OUTPUT = flags.DEFINE_string('output', None, 'Directory to make.')
_DTYPE = flags.DEFINE_enum('dtype', 'float32', ['float32', 'bfloat16'], 'With --to: tensor dtype.')
_SHARD = flags.DEFINE_integer('shard_mb', 5000, 'With --to: megabytes of a tensor file.', 1)
_SENTENCES = flags.DEFINE_enum(
  'sentence-transformers', None, ['mean', 'first'],
  'With --to: also write modules of sentence-transformers, with this pooling.',
)  # fmt: skip
_TOKENIZER = flags.DEFINE_bool('tokenizer', True, 'With --to: write the vocabulary too.')
_TASK = flags.DEFINE_string('task', '', 'With --to: task whose head to export.')
_TABLE = flags.DEFINE_string('table', None, 'Print the name table of a family.')
_OF = {
  'to': (
    'workdir', 'step', 'dtype', 'shard_mb', 'sentence-transformers', 'tokenizer', 'task', 'output',
  ),
  'from': ('input', 'output'),
}  # fmt: skip


def _export() -> dict:
  from bertjax.checkpoint import reading
  from bertjax.export import exporting, originals

  workdir, output = _given('to', workdir=_WORKDIR.value, output=_OUTPUT.value)
  remote.require_local(output, '--output')
  step = reading.as_step(_STEP.value)
  if _TO.value == 'original':
    _refuse('--to=original', 'to=hf', ['dtype', 'shard_mb', 'sentence-transformers', 'task'])
    return originals.export(workdir, output, step)
  onnx = _TO.value == 'onnx'
  if onnx:
    _refuse('--to=onnx', 'to=hf', ['dtype', 'shard_mb', 'sentence-transformers'])
  pooling = flags.FLAGS['sentence-transformers'].value or ''
  form = exporting.Form(_DTYPE.value, _SHARD.value * 10**6, pooling, _TOKENIZER.value, onnx)
  return exporting.export(workdir, output, step, form, _TASK.value)


def _import() -> dict:
  from bertjax.export import importing
  from bertjax.sources import foreign as sources

  path, output = _given('from', input=_INPUT.value, output=_OUTPUT.value)
  remote.require_local(output, '--output')
  name = choose(str(_FROM.value), sources.FORMATS, '--from')
  return importing.import_model(f'{name}:{path}', output)


def _given(mode: str, **flag: str | None) -> list[str]:
  """Returns the flags of a mode, all of which must be given, and none of another one."""
  for other, names in _OF.items():
    if other != mode:
      _refuse(f'--{mode}', other, [name for name in names if name not in flag])
  lacking = [f'--{name}' for name, value in flag.items() if not value]
  if lacking:
    raise UserError(f'--{mode} needs {" and ".join(lacking)}')
  return [str(value) for value in flag.values()]


def _refuse(mode: str, other: str, names: Sequence[str]) -> None:
  if said := [f'--{name}' for name in sorted(names) if flags.FLAGS[name].present]:
    raise UserError(f'{mode} takes no {", ".join(said)}: they are of --{other}')


def _print_table(name: str) -> None:
  from bertjax.formats import family as family_lib
  from bertjax.sources import runs

  family = family_lib.find(name, '--table')
  model = runs.recipe_of(family.recipe or family.model).model
  model.update(dict(family.fixed))
  shown = Table(
    'ours', 'theirs', 'axes, theirs -> ours', title=f'{name}: {", ".join(family.classes)}'
  )
  for row in family.layout(model).rows:
    shown.add_row(row.ours, row.theirs, row.axes)
  Console(width=None if sys.stdout.isatty() else 200).print(shown)  # names whole in a pipe


def main() -> None:
  """Converts, and shows the receipt."""
  if _TABLE.value:
    for other, names in _OF.items():
      _refuse('--table', other, [*names, other])
    _print_table(_TABLE.value)
    return
  if bool(_TO.value) == bool(_FROM.value):
    raise UserError(
      'expected either --to=hf, onnx or original, or --from=hf, tf1, fairseq, transformer_xl, '
      'fastai or bilm: see --help'
    )
  from bertjax.export import receipt

  said = _export() if _TO.value else _import()
  Console().print(receipt.table(said))
  used = said['resources']
  print(
    f'{_OUTPUT.value}: {amount(len(said["tensors"]), "tensors")}, '
    f'{used["model_bytes"] / 1e6:,.0f} MB; {used["seconds"]:.1f} s, '
    f'peak memory {used["peak_bytes"] / 1e6:,.0f} MB'
  )
  for path in said.get('made', ()):
    print(f'made anew: {path}')
  for line in said.get('assumed', ()):
    print(f'assumed: {line}')
  for name in said.get('left_out', ()):
    print(f'left out: {name}')


if __name__ == '__main__':
  with door('bertjax.convert'):
    command_line.run(main, 'bertjax.convert')
