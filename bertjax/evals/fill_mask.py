"""Top predictions for sentences with [MASK], to look at what a model has learned."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

from bertjax.errors import UserError
from bertjax.examples.labelled.common import extra_ids, from_config
from bertjax.text import sentences as sentences_lib
from bertjax.text.sentences import BLANK
from bertjax.types import Batch, Evaluation, Evaluator, Report, Subject, Variables
from bertjax.vocab.vocabulary import Vocabulary


class Options(NamedTuple):
  """The sentences to complete.

  Attributes:
    sentences: texts with [MASK], whatever the vocabulary calls its mask token.
    language: language of the sentences, by name or number, if the model has several, or if its
      vocabulary cuts words by the rules of a language.
  """

  sentences: tuple[str, ...] = ()
  language: str = ''


def encode(sentences: Sequence[str], vocabulary: Vocabulary, template: Batch) -> Batch:
  """Sentences with [MASK] as a batch shaped like `template`. Raises UserError: no [MASK] or more
  than slots, a sentence too long, no mask token."""
  (rows, length), slots = template['token_BT'].shape, template['target_pos_BP'].shape[1]
  frame = sentences_lib.bert_frame(vocabulary.special)
  encoded = sentences_lib.encode_blanks(sentences, vocabulary, frame)
  for sentence, framed in zip(sentences, encoded, strict=True):
    if not 0 < len(framed.blanks) <= slots or len(framed.id_n) > length:
      raise UserError(
        f'{sentence!r}: expected 1 to {slots} times {BLANK} and at most {length} tokens, '
        f'got {len(framed.blanks)} and {len(framed.id_n)}'
      )
  asked = [sentences_lib.Row(framed.id_n, framed.blanks) for framed in encoded]
  batch = sentences_lib.as_batch(asked, rows, length, slots, frame)
  known = {k: v for k, v in batch.items() if k.endswith(('_BT', '_BP'))}
  return {k: known.get(k, np.zeros_like(v)) for k, v in template.items()}


def likeliest(
  predict: Callable[..., dict[str, jax.Array]], count: int = 5, size: int | None = None
) -> Callable:
  """(variables, carry, batch) -> probabilities and ids of the `count` likeliest, [B, P, count], of
  the first `size` ids; None: of all."""
  return lambda variables, carry, batch: jax.lax.top_k(
    jax.nn.softmax(predict(variables, carry, batch)['logits_BPV'])[..., :size], count
  )


def top_predictions(
  top: Callable[..., Any], variables: Any, carry: Any, batch: Batch, put: Callable[[Batch], Any]
) -> list[list[list[tuple[int, float]]]]:
  """Returns the likeliest ids with their probabilities, per sentence and per mask. `top` is what
  `likeliest` gives, compiled; `put` sends the host batch of `encode` to the devices."""
  prob_BPC, id_BPC = jax.device_get(top(variables, carry, put(batch)))
  used_BP = np.asarray(batch['weight_BP']) > 0
  return [
    [
      list(zip(map(int, id_BPC[row, slot]), map(float, prob_BPC[row, slot]), strict=True))
      for slot in np.flatnonzero(used_BP[row])
    ]
    for row in np.flatnonzero(used_BP.any(1))
  ]


def make(subject: Subject, options: Options) -> Evaluation:
  """Returns a table of the sentences with the likeliest pieces for each [MASK]; no scores. Raises
  UserError: a sentence that cannot be completed, see `encode`; no language where one is needed."""
  config, store, language = subject.config, subject.store, options.language
  vocabulary = from_config.vocabulary_of(config, store, language)
  sentences = list(options.sentences)
  count = -(-len(sentences) // subject.ways) * subject.ways
  template = {k: np.zeros((count, *v.shape[1:]), v.dtype) for k, v in subject.template.items()}
  batch = encode(sentences, vocabulary, template)
  ids = extra_ids.ids(config, language, store.languages)
  batch = {**batch, **{f'{k}_BT': np.full_like(batch[f'{k}_BT'], ids[k]) for k in ids}}
  objective = subject.objective
  top = subject.compile(likeliest(objective.predict))

  def run(variables: Variables, step: int) -> Report:
    answers = top_predictions(
      top, variables, subject.put(objective.carry(template)), batch, subject.put
    )
    table = Table('sentence', 'likeliest pieces', title=f'Masked tokens, completed at step {step}')
    for sentence, slots in zip(sentences, answers, strict=True):
      lines = ['  '.join(f'{vocabulary.pieces[i]} {p:.2f}' for i, p in slot) for slot in slots]
      table.add_row(sentence.replace('[', r'\['), '\n'.join(lines))
    return Report({}, table)

  return Evaluation(frozenset(), run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.sentences, at_end=True)
