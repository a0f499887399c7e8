"""What a run takes of `config.model` from the model it begins with, and what stays its own."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bertjax.checkpoint.resume import with_tuples
from bertjax.config.sources import source_of
from bertjax.errors import UserError

# Fields of `config.model` that a source does not set: how the model is trained, and its heads.
OF_TRAINING = (
  'size', 'dropout', 'attention_dropout', 'initializer', 'init_std', 'zero_row', 'remat', 'dtype',
  'mem_len', 'reuse_len', 'words', 'pooler', 'labels', 'token_labels', 'head_dropout', 'answers',
  'pooling', 'attend', 'generator', 'generator_width', 'generator_layers', 'generator_head',
  'tied_embeddings', 'boundary_positions', 'boundary_width',
)  # fmt: skip
HEADS = ('words', 'pooler', 'labels', 'token_labels', 'head_dropout', 'answers')


def bring(given: Any, config: Any, theirs: Mapping[str, Any]) -> list[str]:
  """Sets `config.model` to what a whole model brings of it; returns what changed.

  A model of another kind has other fields: it replaces the section, but for the heads, and for what
  was said for this run alone, on the command line or by a preset.

  Args:
    given: the run's `config.model`, before anything was brought.
    config: the run's; changed.
    theirs: `config.model` of the whole model.

  Raises:
    UserError: a field was said that a model of that kind has not.
  """
  skipped = (*OF_TRAINING, *(('vocab_size',) if config.remap_vocab else ()))
  if given.name == theirs['name']:
    return _set(config.model, {k: v for k, v in theirs.items() if k not in skipped})
  said = [key for key in given if key in skipped and not source_of(given, key)]
  lacking = [key for key in said if key not in theirs and key not in HEADS]
  if lacking:
    raise UserError(
      f'config.model.{lacking[0]} is no field of config.model.name={theirs["name"]!r}, which '
      'config.init_from brings: leave it out'
    )
  own = (*HEADS, *said, *(('vocab_size',) if config.remap_vocab else ()))
  kept = {key: given[key] for key in own if key in theirs and key in given}
  config.model = ConfigDict({**theirs, **kept})
  return [f'{key} {value!r}' for key, value in theirs.items() if key not in kept]


def _set(model: Any, fields: Mapping[str, Any]) -> list[str]:
  """Sets the fields that a model has; returns what changed."""
  changed = []
  for key, value in fields.items():
    value = with_tuples(value)
    if key in model and model[key] != value:
      changed.append(f'{key} {model[key]!r} -> {value!r}')
      with model.ignore_type():
        model[key] = value
  return changed
