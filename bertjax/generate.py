"""Writes texts with a trained model: python -m bertjax.generate --workdir=RUN --text='Once' [..]

Each text goes on from its prompt, --text or a line of --input, and is printed behind it; a model
with a decoder, as T5, reads it and writes another one, which is printed alone. Without more the
likeliest token is taken each time; --temperature, --top_k and --top_p draw, --beams searches.
A model of masked words, as of configs/diffusion.py, writes all tokens of a text in --steps passes,
by --order, in blocks of --block. --shots=FILE puts the text of a file, examples of what is asked
for, before each prompt. --json prints a JSON object a text: text, tokens, score.
"""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from absl import flags

from bertjax.config import command_line
from bertjax.errors import UserError, amount, door
from bertjax.examples.labelled.common import records
from bertjax.metrics.progress import Bar
from bertjax.text import kinds
from bertjax.use import flags as use_flags
from bertjax.use.flags import Part

_TEXT = flags.DEFINE_multi_string('text', None, 'A prompt; may be given several times.')
_NEW = flags.DEFINE_integer('new_tokens', 20, 'Tokens of a text at most.', 1)
_BEAMS = flags.DEFINE_integer('beams', 0, 'Beams of a search. Default: none, tokens are chosen.', 0)
_ALPHA = flags.DEFINE_float('alpha', 0.6, 'With --beams: how much long texts are favoured.')
_TEMPERATURE = flags.DEFINE_float(
  'temperature', None, 'Draw at this temperature. Default: 1 with --top_k or --top_p.', 0.0
)
_TOP_K = flags.DEFINE_integer('top_k', 0, 'Draw from the k likeliest tokens. Default: all.', 0)
_TOP_P = flags.DEFINE_float(
  'top_p', 1.0, 'Draw from the likeliest tokens of that probability together.', 0.0, 1.0
)
_STEPS = flags.DEFINE_integer(
  'steps', 0, 'Of a model of masked words: passes over a text. Default: one for each token.', 0
)
_ORDER = flags.DEFINE_enum(
  'order', 'confidence', ['confidence', 'random'],
  'Of a model of masked words: which tokens are written first. Default: the most certain.',
)  # fmt: skip
_BLOCK = flags.DEFINE_integer(
  'block', 0, 'Of a model of masked words: tokens that are written before all behind them.', 0
)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the draws. Default: 0.', 0, (1 << 31) - 1)
_SHOTS = flags.DEFINE_string('shots', None, 'File whose text stands before each prompt.')
_JSON = flags.DEFINE_bool('json', False, 'Print a JSON object for each text.')
flags.adopt_module_key_flags(use_flags)

_AT_ONCE = 256  # prompts


def _table() -> bool:
  """Returns whether the prompts are in a table, or a data set. UserError: there are none."""
  name = use_flags.INPUT.value
  if (_TEXT.value is None) == (name is None):
    raise UserError('expected prompts: one of --text and --input')
  if name is None or records.by_name(name):
    return name is not None
  table = kinds.kind_of(pathlib.Path(name)) in records.TABLES
  if table:
    records.existing(name)
  return table


def _texts() -> Iterator[Part]:
  if _TEXT.value is not None:
    return iter([Part(list(_TEXT.value), 1, 1.0)])
  return use_flags.parts(_AT_ONCE)


def _columns(model: Any) -> Iterator[Part]:
  if model.tasks and not model.task:
    raise UserError(
      f'--input={use_flags.INPUT.value} is a table, and of which task is not said: '
      f'expected --task, one of {", ".join(model.tasks)}'
    )
  if 'read' in model.task:
    return use_flags.read_parts(model.task, _AT_ONCE)
  return _texts()


def _shots() -> str:
  if _SHOTS.value is None:
    return ''
  try:
    return pathlib.Path(_SHOTS.value).read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as error:
    raise UserError(f'--shots={_SHOTS.value}: expected a file of UTF-8 text: {error}') from error


def main() -> None:
  """Prints what the model writes."""
  # jax comes after the flags, so that --help is quick
  from bertjax.models.layers.contracts import PairModel
  from bertjax.models.layers.decoding import Beams, Sampling
  from bertjax.models.layers.unmasking import Unmasking

  draws = _TOP_K.value or _TOP_P.value < 1
  temperature = float(bool(draws)) if _TEMPERATURE.value is None else _TEMPERATURE.value
  if _BEAMS.value and (temperature or draws):
    raise UserError('--beams searches, --temperature, --top_k and --top_p draw: expected one way')
  if flags.FLAGS['alpha'].present and not _BEAMS.value:
    raise UserError('--alpha is for a search: expected --beams with it')
  beams = Beams(_BEAMS.value, _ALPHA.value) if _BEAMS.value else None
  sampling = None if beams else Sampling(temperature, _TOP_K.value, _TOP_P.value)
  order: Any = _ORDER.value
  how = Unmasking(_STEPS.value, order, _BLOCK.value)
  unmasking = None if how == Unmasking() else how
  if flags.FLAGS['seed'].present and not temperature and order != 'random':
    raise UserError(
      '--seed is of draws: expected --temperature, --top_k or --top_p with it, or --order=random'
    )
  if use_flags.CUT.value:
    raise UserError('--cut: a prompt is read whole, from its beginning to its end: expected none')
  before, table = _shots(), _table()
  parts = None if table else _texts()  # a file that is not there is said before a model is read
  model = use_flags.load()
  parts = parts or _columns(model)
  alone = isinstance(model.net.model, PairModel)
  with Bar('generate') as bar:
    for part in parts:
      prompts = [before + text for text in part.texts]
      found = model.generate(
        prompts, _NEW.value, sampling, beams, _SEED.value, first=part.first, unmasking=unmasking
      )
      for prompt, each in zip(part.texts, found, strict=True):
        # A prompt that ends in a space has the one between it and the text.
        goes_on = each.text.removeprefix(' ') if prompt[-1:].isspace() else each.text
        text = each.text if alone else prompt + goes_on
        print(json.dumps(each._asdict(), ensure_ascii=False) if _JSON.value else text)
      sys.stdout.flush()
      bar.show(amount(part.first + len(part.texts) - 1, 'texts'), part.done)


if __name__ == '__main__':
  with door('bertjax.generate'):
    command_line.run(main, 'bertjax.generate')
