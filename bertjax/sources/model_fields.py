"""Fields of `config.model` that a run takes from the model it begins with, and those it keeps."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bertjax.checkpoint.resume import with_tuples
from bertjax.cited import DEFAULT, source_of
from bertjax.errors import UserError
from bertjax.models.layers import heads

# Fields of `config.model` that a source does not set: how the model is trained, and its heads.
OF_TRAINING = (
  'size', 'dropout', 'attention_dropout', 'embedding_dropout', 'initializer', 'position_std',
  'residual_scaled', 'init_std', 'zero_row', 'remat', 'dtype',
  'mem_len', 'reuse_len', 'pooling', 'both_orders', 'attend', 'generator', 'generator_width',
  'generator_layers', 'generator_head', 'tied_embeddings',
  'word_dropout', 'input_dropout', 'weight_dropout', 'hidden_dropout', 'inner_dropout', 'ar', 'tar',
  'ar_of', 'segment', 'chunk', 'pooled', 'inner', 'mix_norm',
)  # fmt: skip
HEADS = (*heads.fields(False, ()), 'head_dropout')
# Fields that no shape of a parameter tells -> below what in 'params' the parameters are read by it.
STACK, NETS = ('encoder', 'layers'), ('params', 'discriminator', 'generator_net')
NORMS = (*STACK, 'embeddings/norm', 'mlm', 'final_norm', 'head', 'boundary', 'answers')
SHAPELESS = dict.fromkeys(
  'window global_every theta local_theta distances clamp_len same_length attention'.split(), STACK
) | dict(
  activation=(*STACK, 'mlm', 'rtd', 'boundary'), norm_eps=NORMS, norm=NORMS, pre_norm=STACK,
  position_offset=('embeddings/position',), backward=('lstm_0',), pooler_activation=('pooler',),
)  # fmt: skip


def bring(given: Any, config: Any, theirs: Mapping[str, Any]) -> list[str]:
  """Sets `config.model` to what a whole model brings of it (`theirs`); returns what changed. A
  model of another kind has other fields: it replaces the section, but for the heads, and for what
  was said for this run alone, on the command line or by a preset, as `given` before. UserError: a
  field was said that a model of that kind has not."""
  skipped = (*OF_TRAINING, *HEADS, *(('vocab_size',) if config.remap_vocab else ()))
  if given.name == theirs['name']:
    # A field that the source leaves to the run, None, stays as the run says it.
    told = [key for key in given if source_of(given, key) != DEFAULT]
    skipped += tuple(key for key, value in theirs.items() if value is None and key in told)
    return set_fields(config.model, {k: v for k, v in theirs.items() if k not in skipped})
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


def of_parts(
  init_from: Any, models: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the SHAPELESS fields by which the subtrees of `config.init_from` are read, and lines
  about sources that do not say theirs; `models` are `config.model` by source. UserError: subtrees
  are read by different values of a field."""
  found: dict[str, Any] = {}
  for name, path, *_ in init_from:
    here = ''.join(f'{part}/' for part in path.split('/') if part not in NETS)
    for key, value in models[name].items():
      places = [f'{place}/' for place in SHAPELESS.get(key, ())]
      if not any(place.startswith(here) or here.startswith(place) for place in places):
        continue
      if found.setdefault(key, value) != value:
        raise UserError(
          f'config.init_from: {name}:{path} is read with config.model.{key}={value!r}, what '
          f'stands before it with {found[key]!r}: expected subtrees of models that agree'
        )
  absent = [name for name, theirs in models.items() if not theirs]
  return found, [f'{name} comes without its config.model, which is not compared' for name in absent]


def set_fields(model: Any, fields: Mapping[str, Any]) -> list[str]:
  """Sets the fields that a model has; returns what changed."""
  changed = []
  for key, value in fields.items():
    value = with_tuples(value)
    if key in model and model[key] != value:
      changed.append(f'{key} {model[key]!r} -> {value!r}')
      with model.ignore_type():
        model[key] = value
  return changed
