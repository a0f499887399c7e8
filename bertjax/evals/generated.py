"""Texts that a model with a decoder writes for labelled ones, each judged once.

All scores go from 0 to 1. `exact` and `f1` are those of a program of answers (SQuAD's: of words
without capitals, punctuation and articles); `rouge_l` is the F-measure of Lin (2004) as rouge-score
computes it, without stemming; `bleu` is that of the whole file as sacrebleu computes it, cut into
words as T5's is (`intl`; t5/evaluation/metrics.py). `cut` counts the texts that are longer than a
row.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.evals.held_out import labelled
from bertjax.evals.squad import programs, scores
from bertjax.examples.labelled.common import from_config
from bertjax.field_types import Count, Natural, NonNegative
from bertjax.models.layers import decoding
from bertjax.models.layers.contracts import PairModel
from bertjax.models.layers.decoding import Beams, Sampling, Written
from bertjax.objectives import model_of
from bertjax.text import sentences
from bertjax.types import Batch, Evaluation, Evaluator, Subject, Variables

NAMES = frozenset(('exact', 'f1', 'rouge_l', 'bleu'))


class Options(NamedTuple):
  """The labelled texts, and how the model writes.

  Attributes:
    file: file of the examples; '': config.data.dev.
    examples: number of examples, from the first one on; 0: all.
    batch_size: rows of a batch.
    language: as of `labelled.Options`.
    new_tokens: tokens of a text at most; 0: config.data.task.target_length.
    beams: beams of a search; 0: the likeliest token is taken each time.
    alpha: with beams, how much long texts are favoured.
    program: whose words exact and f1 compare (`squad/programs.py`).
  """

  file: str = ''
  examples: Natural = 0
  batch_size: Count = 64
  language: str = ''
  new_tokens: Natural = 0
  beams: Natural = 0
  alpha: NonNegative = 0.6
  program: programs.Name = 'squad'


def judged(
  found: Sequence[str], wanted: Sequence[str], program: programs.Name = 'squad'
) -> dict[str, float]:
  """Returns the scores of texts that were written, by those that people wrote."""
  import sacrebleu
  from rouge_score import rouge_scorer

  rouge = rouge_scorer.RougeScorer(['rougeL'])
  pairs, how = list(zip(wanted, found, strict=True)), programs.named(program)
  bleu = sacrebleu.corpus_bleu(list(found), [list(wanted)], tokenize='intl')
  return dict(
    exact=float(np.mean([scores.exact(*pair, how) for pair in pairs])),
    f1=float(np.mean([scores.f1(*pair, how) for pair in pairs])),
    rouge_l=float(np.mean([rouge.score(*pair)['rougeL'].fmeasure for pair in pairs])),
    bleu=bleu.score / 100,
  )


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns the scores of a file of texts. Raises UserError: as `labelled.judge`; a task
  without texts to be written, or more beams than half of the words."""
  task = subject.config.data.task
  if task.name != 'write':
    raise UserError(
      f"{subject.key} judges texts that a model writes: expected config.data.task.name='write', "
      f'got {task.name!r}'
    )
  vocabulary = from_config.vocabulary_of(subject.config, subject.store, options.language)
  how = Beams(options.beams, options.alpha) if options.beams else Sampling()
  decoding.check(how, vocabulary.size)
  model = model_of(subject.config.model, subject.config.objective.name, PairModel)
  new, end = options.new_tokens or task.target_length, subject.store.special['sep']
  start = sentences.pair_frame(model.framed, subject.store.special).start
  asks = f'{subject.key}.new_tokens or config.data.task.target_length'
  model.require_room(len(start) + new, asks)

  def function(variables: Variables, batch: Batch) -> Written:
    begun_BU = jnp.tile(jnp.array(start, jnp.int32)[None], (len(batch['token_BT']), 1))
    given = dict(batch, out_token_BU=begun_BU)
    return decoding.written(
      model, vocabulary.size, how, new, end, model.for_writing(variables), given
    )

  def scores_of(written: Iterable[Written], examples: Labelled) -> dict[str, float]:
    ids = (decoding.until(each.token_BKN[0], end) for each in written)
    found = [vocabulary.decode(i for i in text if i != end) for text in ids]
    return judged(found, examples.truth, options.program)

  return labelled.judge(subject, options, function, NAMES, scores_of)


EVALUATOR = Evaluator(Options, make)
