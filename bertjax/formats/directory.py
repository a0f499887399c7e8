"""Directories of transformers: config.json, model.safetensors and a tokenizer."""

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bertjax import json_files, models, options
from bertjax.errors import UserError, require_file, writing
from bertjax.formats import config_json, huggingface, sentence_modules, tokenizer, weights
from bertjax.formats import family as family_lib
from bertjax.formats.originals.original import Opening
from bertjax.models.layers import pad_id
from bertjax.models.layers.basic import METADATA
from bertjax.vocab import formats
from bertjax.vocab.vocabulary import Vocabulary, check_rows, load_vocabulary

CONFIG = 'config.json'
SIDE = 'bertjax_heads.safetensors'  # heads that no class of transformers has
# The generator of DeBERTa-v3 beside its discriminator, as the hub has it or as a directory, and the
# table of its decoder, which no class has.
GENERATOR, APART = 'pytorch_model.generator.bin', 'generator'
PLACES = 'deberta.embeddings.position_embeddings.weight'
_KINDS = dict(
  architectures=list, model_type=str, problem_type=str, id2label=dict, label2id=dict, lang2id=dict,
  id2lang=dict, num_labels=int, rope_parameters=dict, rope_scaling=dict,
)  # fmt: skip


def open_directory(path: pathlib.Path) -> Opening:
  """Reads config.json and finds tensors and tokenizer. Raises UserError for no such directory, a
  class that we have not, or options that we do not compute."""
  inside = ', '.join(str(each.parent) for each in sorted(path.glob(f'snapshots/*/{CONFIG}')))
  made = f'as {inside} has it' if inside else 'as save_pretrained(DIR) writes it'
  require_file(path / CONFIG, f'that of a model of transformers, {made}')
  given = json_files.read(path / CONFIG)
  json_files.check(path / CONFIG, given, _KINDS)
  if 'model_type' not in given and {'format', 'config'} <= given.keys():
    raise UserError(f'{path} is a run and no directory of transformers: leave hf: out')
  return _opened(path, given, weights.read(path))


def generator_beside(path: pathlib.Path, recipe: Any) -> dict[str, Any]:
  """Returns the parameters of the generator beside a discriminator: those of a directory of its own
  in this one, or of the hub's file, whose config.json is the discriminator's but for the layers; {}
  where there is none. `recipe` is a `config.model` of the single net."""
  state: Mapping[str, Any] = {}
  if (path / APART / CONFIG).is_file():
    opened = open_directory(path / APART)
  elif (path / GENERATOR).is_file():
    state = weights.of_torch([path / GENERATOR])
    layers = {name.partition('.layer.')[2].partition('.')[0] for name in state} - {''}
    given = json_files.read(path / CONFIG) | dict(num_hidden_layers=len(layers), architectures=[])
    opened = _opened(path, given, state)
  else:
    return {}
  model = whole_model(opened, recipe)
  params = opened.take(model).params
  if PLACES in state:
    params['encoder']['absolute'] = state[PLACES]
  return params


def _opened(path: pathlib.Path, given: dict[str, Any], state: Mapping[str, Any]) -> Opening:
  family, model = config_json.read(given, set(state))
  _check_sizes(path, model, state)
  left_out = config_json.left_out(given, family, model)

  def take(whole: Any) -> huggingface.Taken:
    taken = huggingface.take(state, whole)
    return taken._replace(left_out=[*left_out, *taken.left_out])

  vocabulary = load_vocabulary(path) if formats.files_of(path) else None
  if vocabulary and any(field.ours == 'position_offset' for field in family.fields):
    _check_pad(model['position_offset'] - 1, vocabulary)
  if vocabulary and model.get('labels'):
    left_out += tokenizer.layouts.bare_texts(path, model['family'])
  classes = config_json.classes(given, model)
  sentences = sentence_modules.read(path, family.model)
  return Opening(
    path, (), model, family.recipe or family.model, vocabulary, [], take, classes=classes,
    languages=config_json.languages(given, model),
    meta=dict(
      problem_type=config_json.problem(given, model), sentences=sentences._asdict(),
      between=vocabulary and tokenizer.layouts.between(vocabulary),
    ),
  )  # fmt: skip


def _check_sizes(path: pathlib.Path, model: Mapping[str, Any], state: Mapping[str, Any]) -> None:
  """Refuses sizes that the tensors cannot have, before shapes are made of them."""
  most = sum(math.prod(weights.shape_of(state, name)) for name in state)
  for key in {'layers', 'width', 'ffn', 'vocab_size', 'heads'} & model.keys():
    own_layers = key == 'layers' and model.get('sharing', 'none') == 'none'
    bound = len(state) if own_layers else most
    if isinstance(value := model[key], int) and value > bound:
      raise UserError(
        f'{path / CONFIG} makes config.model.{key}={value}, but the tensors beside it have room '
        f'for {bound} at most'
      )


def _check_pad(uncounted: int, vocabulary: Vocabulary) -> None:
  """Refuses another [PAD] than the id whose tokens have no positions in a class of transformers,
  if a text may have that id."""
  pad, there = vocabulary.special['pad'], uncounted < vocabulary.size
  if pad in (None, uncounted) or not there or vocabulary.pieces[uncounted].startswith('[unused'):
    return
  raise family_lib.uncomputed(
    f'pad_token_id={uncounted}, of which its class counts no positions, and the tokenizer beside '
    f'it [PAD] at {pad}',
    'the same id in both',
  )


def write(
  directory: pathlib.Path,
  params: Mapping[str, Any],
  model: Any,
  vocabulary: Vocabulary | None,
  dtype: str,
  shard_bytes: int,
  classes: Sequence[str] = (),
  languages: Sequence[str] = (),
  problem: str | None = None,
  told: tokenizer.layouts.Between | None = None,
) -> list[dict[str, Any]]:
  """Writes config.json, the tensors as float32 or bfloat16 and the tokenizer, if any, to an empty
  directory. Returns theirs, ours, shape and sha256 of each tensor. Raises UserError that names what
  the class or its tokenizer cannot express; nothing is written then."""
  check(model, vocabulary)
  special = vocabulary.special if vocabulary else {}
  config = config_json.write(model, special, dtype, classes, languages, problem)
  shapes = huggingface.shapes(model)
  paths: dict[str, str] = {}

  def stream():
    for name, ours, array in huggingface.tensors(params, model):
      paths[name] = ours
      yield name, array

  with writing('the model', directory):
    if vocabulary:
      family = tokenizer.layouts.of_model(model)
      tokenizer.write(vocabulary, directory, family, max_length(model), told)
    digests = weights.write(directory, shapes, stream(), dtype, shard_bytes)
    if side := huggingface.side_tensors(params, model):
      weights.save(directory / SIDE, side)
    (directory / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + '\n')
  return [
    dict(theirs=name, ours=paths[name], shape=list(shapes[name]), sha256=digest)
    for name, digest in digests.items()
  ]


def check(model: Any, vocabulary: Vocabulary | None) -> None:
  """Refuses a model that no class of transformers computes, or a vocabulary that is not the
  model's."""
  family_lib.class_of(model)
  if vocabulary and vocabulary.size > model.vocab_size:
    raise UserError(
      f'the vocabulary has {vocabulary.size} ids, the word table {model.vocab_size} rows: expected '
      'the vocabulary that the model was trained with'
    )


def max_length(model: Any) -> int:
  """Tokens that a text may have, special ones included."""
  return models.build(model).room or 512


def whole_model(opened: Opening, recipe: Any) -> Any:
  """Returns `config.model` of an opened model: its fields, and the recipe's where it says nothing.
  Raises UserError: a field of another type, or a vocabulary that has more ids."""
  fields = dict(opened.model)
  known = options.fields_of(models.factory({**recipe, **fields}).options)
  own = recipe.copy_and_resolve_references().items()
  # A recipe of two nets has keys that one of them lacks.
  model: Any = ConfigDict({key: x for key, x in own if key in known or key in METADATA})
  if 'generator' in model:
    fields['generator'] = fields.get('generator', 'uniform')  # a discriminator alone
  for key, value in fields.items():
    kind = known[key].kind if key in known else str
    model[key] = options.convert(kind, value, f'{opened.path}: config.model.{key}')
  check_rows(opened.vocabulary, model.vocab_size, str(opened.path))
  pad_id.fill(model, opened.vocabulary.special['pad'] if opened.vocabulary else None)
  return model
