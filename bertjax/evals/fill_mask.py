"""Top predictions for sentences with [MASK], to look at what a model has learned."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

from bertjax.errors import UserError
from bertjax.examples.labelled.common import extra_ids, from_config
from bertjax.text import sentences as sentences_lib
from bertjax.text.sentences import BLANK
from bertjax.types import Array, Batch, Evaluation, Evaluator, Report, Subject, Variables
from bertjax.vocab.vocabulary import Vocabulary

TOP = 5  # pieces that are shown for each mask


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


def likeliest(logits_BPV: Array, count: int, size: int) -> tuple[Array, Array]:
  """Returns probabilities and ids of the `count` likeliest of the first `size` ids, [B, P, count]:
  a table of words may have more rows than the vocabulary, which no text has."""
  return jax.lax.top_k(jax.nn.softmax(logits_BPV)[..., :size], count)


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

  def top(variables: Variables, carry: Any, batch: Batch) -> tuple[Array, Array]:
    logits_BPV = objective.predict(variables, carry, batch)['logits_BPV']
    return likeliest(logits_BPV, TOP, vocabulary.size)

  compiled = subject.compile(top)

  def run(variables: Variables, step: int) -> Report:
    carry = subject.put(objective.carry(template))
    prob_BPC, id_BPC = jax.device_get(compiled(variables, carry, subject.put(batch)))
    table = Table('sentence', 'likeliest pieces', title=f'Masked tokens, completed at step {step}')
    for row, sentence in enumerate(sentences):
      lines = []
      for slot in np.flatnonzero(batch['weight_BP'][row]):
        found = zip(id_BPC[row, slot], prob_BPC[row, slot], strict=True)
        lines.append('  '.join(f'{vocabulary.pieces[i]} {p:.2f}' for i, p in found))
      table.add_row(sentence.replace('[', r'\['), '\n'.join(lines))
    return Report({}, table)

  return Evaluation(frozenset(), run)


EVALUATOR = Evaluator(Options, make, idle=lambda options: not options.sentences, at_end=True)
