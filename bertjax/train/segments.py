"""Pairs of texts for a model that has no segments, or one for all (RoBERTa, ModernBERT)."""

from typing import Any

from bertjax import models
from bertjax.data_contracts import TrainingRows
from bertjax.examples.labelled.common.rows import Rows
from bertjax.formats.tokenizer import layouts


def note(name: str, config: Any, examples: TrainingRows) -> str:
  """Returns a note if a phase has pairs of texts and its model lacks segments for them, else ''.

  Args:
    name: name of the phase.
    config: config of the phase.
    examples: rows of the phase.
  """
  if not isinstance(examples, Rows) or models.build(config.model).has_segments:
    return ''
  if not any(type_T.any() for type_T in examples.examples.type_n):
    return ''
  said = f'Phase {name!r} has pairs of texts, and the model no segments: what stands between'
  count = config.data.task.get('separators')
  if count is None:
    return f'{said} tells them apart, and nothing else'
  family = config.model.get('family', '')
  known = layouts.separators(family)
  remedy = f'; {family} has {known}: set config.data.task.separators={known}'
  return f'{said} tells them apart, separators={count}, and nothing else{remedy * (count < known)}'
