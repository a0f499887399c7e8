"""python -m bertjax.bench squad: questions in SQuAD's form to rows, here and with transformers.

  python -m bertjax.bench squad --input=dev-v2.0.json --vocab=DIR

Both sides have the questions ready in memory and make rows of them to learn from, in one process
and in turn: ours `TASK.encode` of bertjax/data/labelled/spans.py, the rival what transformers'
question-answering example does with its fast tokenizer. `ratio` is its time over ours, of `seconds`
by the clock and of `cpu` by the process's own, all threads together. Our stride leads from one
window to the next, the rival's is their overlap, as in the recipes of both, so they have not the
same windows; `alike` is the share of equal rows and ends among the questions that fit one row.
"""

import json
import sys
from typing import Any

from absl import flags

from bertjax.bench.parts import rival_squad, squad_rows, timing
from bertjax.data.labelled import spans
from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.errors import UserError

_INPUT = flags.DEFINE_string('input', None, 'Questions in the form of SQuAD.', required=True)
_VOCAB = flags.DEFINE_string(
  'vocab', None, 'A directory with a tokenizer, or vocab.txt.', required=True
)
_LENGTH = flags.DEFINE_integer('length', 384, 'Tokens of a row at most.', lower_bound=16)
_STRIDE = flags.DEFINE_integer('stride', 128, 'Of windows; see above.', lower_bound=1)
_QUESTION = flags.DEFINE_integer('question', 64, 'Tokens of a question at most.', lower_bound=1)
_CALLS = flags.DEFINE_integer('calls', 5, 'Timed calls of each side.', lower_bound=1)
_WARMUP = flags.DEFINE_integer('warmup', 1, 'Discarded calls of each side.', lower_bound=0)


def main() -> None:
  """Times both and prints one JSON line."""
  options = spans.Options(_STRIDE.value, _QUESTION.value, no_answer=True, separators=1)
  vocabulary = load_vocabulary(_VOCAB.value)
  records = squad_rows.learnable(list(spans.read(_INPUT.value, options)), vocabulary)
  if not records:
    raise UserError(f'--input={_INPUT.value} has no question: expected some, to be timed')
  tools = vocabulary, rival_squad.tokenizer_of(_VOCAB.value, vocabulary.lowercase)
  result: dict[str, Any] = dict(bench='squad', length=_LENGTH.value, calls=_CALLS.value)
  result |= squad_rows.run(records, options, _LENGTH.value, tools, (_CALLS.value, _WARMUP.value))
  json.dump(result | timing.environment(), sys.stdout)
  sys.stdout.write('\n')
