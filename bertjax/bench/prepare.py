"""python -m bertjax.bench prepare: text to token store, against raw `tokenizers` on the same text.

  python -m bertjax.bench prepare --input='text/*.txt.xz' --vocab=vocab.txt

Ours is the whole command `python -m bertjax.prepare`, a new process each time: start, reading,
splitting, encoding, writing. The rival is `Tokenizer.encode_batch` in this process, with its own
threads, over the same sentences, ready in memory. `ratio` is our megabytes/s over its;
`ratio_after_start` leaves out the time that the command takes on a single document.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from bertjax.bench.parts import rival_prepare, timing
from bertjax.data.seqio_tasks import by_name
from bertjax.data.text import sentence_split
from bertjax.errors import UserError

_INPUT = flags.DEFINE_string('input', None, 'Text, as `prepare` takes it.', required=True)
_VOCAB = flags.DEFINE_string('vocab', None, 'vocab.txt or tokenizer.json.', required=True)
_SPLIT = flags.DEFINE_enum(
  'split',
  sentence_split.LINES,
  [sentence_split.LINES, sentence_split.SENTENCES],
  'As in `prepare`.',
)
_CALLS = flags.DEFINE_integer('calls', 3, 'Timed runs of each side.', lower_bound=1)
_WARMUP = flags.DEFINE_integer('warmup', 1, 'Discarded runs of each side.', lower_bound=0)


def command(source: str, vocab: str, split: str, documents: int) -> Callable[[], None]:
  """`python -m bertjax.prepare` as a call that makes a store and deletes it; 0 documents: all."""

  def call() -> None:
    with tempfile.TemporaryDirectory() as directory:
      output = pathlib.Path(directory, 'store')
      arguments = dict(input=source, vocab=vocab, output=output, split=split, documents=documents)
      words = [
        sys.executable,
        '-m',
        'bertjax.prepare',
        *(f'--{k}={v}' for k, v in arguments.items()),
      ]
      done = subprocess.run(words, capture_output=True, text=True)
      if done.returncode:
        raise UserError(f'{" ".join(words)} failed: {done.stderr[-2000:]}')

  return call


def main() -> None:
  """Times both and prints one JSON line."""
  text = (_INPUT.value, _VOCAB.value, _SPLIT.value)
  corpus = by_name.open_corpus(_INPUT.value)
  sentences, size = [], 0
  for batch in corpus.texts():
    for document in batch:
      size += len(document)
      sentences += sentence_split.split_document(
        sentence_split.decode(document, 'strict'), _SPLIT.value
      )
  arms = dict(
    ours=command(*text, documents=0),
    tokenizers=rival_prepare.encode(rival_prepare.raw_tokenizer(_VOCAB.value), sentences),
    start=command(*text, documents=1),
  )
  seconds = timing.alternate(arms, _CALLS.value, _WARMUP.value)
  median = {name: float(np.median(s)) for name, s in seconds.items()}
  result: dict[str, Any] = dict(
    bench='prepare', megabytes=round(size / 1e6, 3), sentences=len(sentences), calls=_CALLS.value,
    ours=timing.summary(seconds['ours'], size / 1e6, 'megabytes'),
    tokenizers=timing.summary(seconds['tokenizers'], size / 1e6, 'megabytes'),
    start_s=round(median['start'], 3),
    ratio=round(median['tokenizers'] / median['ours'], 4),
    ratio_after_start=round(median['tokenizers'] / (median['ours'] - median['start']), 4),
  )  # fmt: skip
  json.dump(result | timing.environment(), sys.stdout)
  sys.stdout.write('\n')
