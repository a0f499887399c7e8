"""Writes vectors of texts: python -m bertjax.embed --workdir=RUN --input=FILE --output=OUT.npy

  --pool=mean   of all tokens, one vector a text
  --pool=first  of the token that stands for the text, [CLS]
  --pool=none   of each token

Without --pool what modules.json of sentence-transformers declares is done, pooling, length, prompt
and normalising; without that file it is the mean.

With --neighbours='a spectacular *play* by Ruiz' it prints the ten tokens of --input that are used
most as the word between asterisks is: the cosine, the line and its tokens, of --layer's vectors.

The ending of --output says the format: .npy and .safetensors, where the offsets of the texts stand
beside the vectors of tokens, or .jsonl. The file is there when it is whole.
"""

import sys
from typing import get_args

from absl import flags

from bertjax.config import command_line
from bertjax.errors import UserError, amount, door
from bertjax.machine import remote
from bertjax.metrics.progress import Bar
from bertjax.use import flags as use_flags
from bertjax.use import neighbours, vectors
from bertjax.use.answers import Pool

_OUTPUT = flags.DEFINE_string('output', None, 'File to write.')
_NEIGHBOURS = flags.DEFINE_string(
  'neighbours', None, 'A text with a word between asterisks, whose nearest tokens are printed.'
)
_POOL = flags.DEFINE_enum(
  'pool', None, list(get_args(Pool)), 'Pooling of a text. Default: as in modules.json, or mean.'
)
_LAYER = flags.DEFINE_integer(
  'layer', -1, '0 is what enters the first layer, 1 its output; -1 the last, -2 the one before.'
)
_NORMALIZE = flags.DEFINE_bool(
  'normalize', None, 'Scale each vector to length 1. Default: as modules.json declares, or not.'
)
flags.adopt_module_key_flags(use_flags)

_AT_ONCE = 8192  # texts, which are sorted by length


def main() -> None:
  """Writes the file, or prints neighbours."""
  if use_flags.INPUT.value is None:
    raise UserError('expected --input, a file of texts or -')
  if _NEIGHBOURS.value is not None:
    if given := [f'--{n}' for n in ('output', 'pool', 'normalize') if flags.FLAGS[n].present]:
      raise UserError(f'--neighbours prints what it finds and takes no {", ".join(given)}')
    _print_neighbours(neighbours.parsed(_NEIGHBOURS.value))
    return
  if not _OUTPUT.value:
    raise UserError('expected --output, a file to write, or --neighbours, a text with a *word*')
  remote.require_local(_OUTPUT.value, '--output')
  vectors.check(_OUTPUT.value)
  done, of_tokens = 0, _POOL.value == 'none'
  parts, model = use_flags.parts(_AT_ONCE), use_flags.load()
  with Bar('embed') as bar, vectors.Writer(_OUTPUT.value, model.net.width, of_tokens) as writer:
    for part in parts:
      keys = dict(cut=use_flags.CUT.value, first=part.first)
      model.runner.expect(part.done)
      found = model.embed(part.texts, _POOL.value, _LAYER.value, **keys, normalize=_NORMALIZE.value)
      writer.add(part.texts, found, model.tokens(part.texts, **keys) if of_tokens else None)
      done += len(part.texts)
      bar.show(f'{amount(done, "texts")}, {done / bar.seconds:,.0f} texts/s', part.done)
  print(f'{_OUTPUT.value}: {amount(done, "texts")}, vectors of {model.net.width}', file=sys.stderr)


def _print_neighbours(asked: tuple[str, str, str]) -> None:
  parts, layer = use_flags.parts(_AT_ONCE), _LAYER.value
  model, cut = use_flags.load(), use_flags.CUT.value
  for found in neighbours.nearest(model, asked, parts, layer, cut):
    print(f'{found.similarity:.4f}\t{found.line}\t{found.text}')


if __name__ == '__main__':
  with door('bertjax.embed'):
    command_line.run(main, 'bertjax.embed')
