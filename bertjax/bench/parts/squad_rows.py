"""Questions in SQuAD's form to rows, ours and the rival's in turn: times, and whether they agree.

Apart from the flags of `bertjax.bench.squad`, so that two commands can be in one process.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.bench.parts import rival_squad, timing
from bertjax.data.labelled import spans
from bertjax.data.labelled.common.records import Record
from bertjax.data.types import Labelled
from bertjax.data.vocab.vocabulary import Vocabulary


def alike(ours: Labelled, theirs: Sequence[rival_squad.Row], question_n: Sequence[int]) -> float:
  """The share of equal rows among the questions with one row on both sides.

  Args:
    ours: our rows.
    theirs: the rival's.
    question_n: number of the question of each of our rows.
  """
  ends_n2 = np.stack([ours.label[spans.START], ours.label[spans.END]], 1)
  found: dict[int, list[Any]] = {}
  for number, ids, ends in zip(question_n, ours.id_n, ends_n2, strict=True):
    found.setdefault(number, []).append((ids.tolist(), tuple(ends.tolist())))
  wanted: dict[int, list[Any]] = {}
  for row in theirs:
    wanted.setdefault(row.question, []).append((row.ids, row.ends))
  single = [n for n in found if len(found[n]) == len(wanted[n]) == 1]
  return sum(found[n] == wanted[n] for n in single) / max(len(single), 1)


def with_cpu(
  arms: Mapping[str, Callable[[], Any]], calls: int, warmup: int
) -> dict[str, dict[str, np.ndarray]]:
  """Seconds of `timing.alternate` for each arm, and the CPU seconds of the process in each call."""
  cpu: dict[str, list[float]] = {name: [] for name in arms}

  def counting(name: str, arm: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
      before = time.process_time()
      arm()
      cpu[name].append(time.process_time() - before)

    return call

  counted = {name: counting(name, arm) for name, arm in arms.items()}
  seconds = timing.alternate(counted, calls, warmup)
  return {name: dict(seconds=seconds[name], cpu=np.array(cpu[name][warmup:])) for name in arms}


def run(
  records: Sequence[Record],
  options: spans.Options,
  length: int,
  tools: tuple[Vocabulary, Any],
  calls: tuple[int, int],
) -> dict[str, Any]:
  """Times both sides.

  Args:
    records: the questions, all of them `learnable`.
    options: of the task.
    length: tokens of a row at most.
    tools: our vocabulary and the rival's tokenizer.
    calls: timed and discarded calls of each side.

  Returns:
    Of each side its rows and the median of its times, the ratios, and `alike`.
  """
  vocabulary, tokenizer = tools
  arms: dict[str, Callable[[], Any]] = dict(
    ours=lambda: spans.encode(records, options, vocabulary, length),
    transformers=rival_squad.prepare(tokenizer, records, length, options.stride),
  )
  found = with_cpu(arms, *calls)
  made = {name: arm() for name, arm in arms.items()}
  rows = spans.windows(records, spans.contexts(records, vocabulary), options, vocabulary, length)
  median = lambda name, kind: float(np.median(found[name][kind]))
  sides = {
    name: dict(
      timing.summary(times['seconds'], len(records), 'questions'),
      cpu_median_s=round(median(name, 'cpu'), 6),
    )
    for name, times in found.items()
  }
  return dict(
    questions=len(records),
    windows=dict(ours=len(made['ours'].id_n), transformers=len(made['transformers'])),
    **sides,
    ratio={
      kind: round(median('transformers', kind) / median('ours', kind), 3)
      for kind in ('seconds', 'cpu')
    },
    alike=round(alike(made['ours'], made['transformers'], [row.question for row in rows]), 4),
  )  # fmt: skip


def learnable(records: Sequence[Record], vocabulary: Vocabulary) -> list[Record]:
  """The questions that `spans.encode` does not leave out: whose answer stands where it is said."""
  found = zip(records, spans.contexts(records, vocabulary), strict=True)
  return [r for r, text in found if not r.values['answers'] or spans.answer_tokens(r, text)]
