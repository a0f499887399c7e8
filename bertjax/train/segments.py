"""Pairs of texts for a model that has no segments, or one for all (RoBERTa, ModernBERT)."""

from bertjax import models
from bertjax.examples.labelled.common.rows import Rows
from bertjax.formats.tokenizer import layouts
from bertjax.train.phase import Phase


def note(phase: Phase) -> str:
  """Returns a note if a phase has pairs of texts and its model lacks segments for them, else ''."""
  examples, model = phase.examples, phase.config.model
  if not isinstance(examples, Rows) or models.build(model).has_segments:
    return ''
  if not any(type_T.any() for type_T in examples.examples.type_n):
    return ''
  said = f'Phase {phase.name!r} has pairs of texts, and the model no segments: what stands between'
  count = phase.config.data.task.get('separators')
  if count is None:
    return f'{said} tells them apart, and nothing else'
  family = model.get('family', '')
  known = layouts.separators(family)
  remedy = f'; {family} has {known}: set config.data.task.separators={known}'
  return f'{said} tells them apart, separators={count}, and nothing else{remedy * (count < known)}'
