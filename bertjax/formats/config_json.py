"""`config.model` to and from the config.json of transformers, by the fields of a family's table."""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bertjax import models, options, registry
from bertjax.errors import UserError
from bertjax.formats import family as family_lib
from bertjax.formats.family import Family, Field

# config.json's name of a special token's id -> its role in a vocabulary.
SPECIAL = dict(pad_token_id='pad', bos_token_id='cls', eos_token_id='sep')
# The same of classes whose `write` has them.
FURTHER = dict(
  cls_token_id='cls', sep_token_id='sep', decoder_start_token_id='sep', forced_bos_token_id='cls',
  forced_eos_token_id='sep',
)  # fmt: skip
SEVERAL = 'multi_label_classification'  # problem_type of any number of classes for a text
# Fields of config.json that change nothing of what a model computes: how it was saved, what a call
# returns; ids, names and sizes, which stand elsewhere; and with '=', defaults that no class reads.
HARMLESS = """
  architectures model_type transformers_version dtype torch_dtype _name_or_path use_cache num_labels
  output_past output_attentions output_hidden_states return_dict gradient_checkpointing id2label
  chunk_size_feed_forward finetuning_task label2id id2lang lang2id lang_id d_head unk_token_id
  mask_token_id pad_index bos_index eos_index unk_index mask_index task_type_vocab_size
  sinusoidal_embeddings sinusoidal_pos_embds sparse_pred_ignore_index deterministic_flash_attn
  is_encoder_decoder=False is_decoder=False add_cross_attention=False torchscript=False gap_size=0
  classifier_dropout_prob=0.1 net_structure_type=0 num_memory_blocks=0 down_scale_factor=1
  directionality=bidi pooler_fc_size=768 pooler_num_attention_heads=12 pooler_num_fc_layers=3
  pooler_size_per_head=128 pooler_type=first_token_transform qa_dropout=0.1 seq_classif_dropout=0.2
  classifier_dropout=0.0
  tie_weights_=True summary_type=first summary_type=last summary_use_proj=True
  summary_activation=gelu summary_activation=tanh summary_last_dropout=0.1 bi_data=False
  summary_first_dropout=0.1 summary_proj_to_labels=True start_n_top=5 end_n_top=5
  use_mems_eval=True use_mems_train=False init_std=0.02 use_lang_emb=True
""".split()


def write(
  model: Any,
  special: Mapping[str, int | None],
  dtype: str,
  classes: Sequence[str] = (),
  languages: Sequence[str] = (),
  problem: str | None = None,
) -> dict[str, Any]:
  """Returns the config.json of a model. `special` is role -> id, {} without a tokenizer; `classes`
  and `languages` are names by id, () where unknown; `problem` is the problem_type of a head for
  texts, '' to leave it out, None to decide by the number of classes. Raises UserError that names
  what the class cannot express."""
  name = family_lib.class_of(model)
  family = family_lib.find(model.family)
  ids = {key: special.get(role) for key, role in SPECIAL.items() if special.get(role) is not None}
  found: dict[str, Any] = dict(architectures=[name], model_type=family.model_type, dtype=dtype)
  found |= {key: values[0] for key, values in family.theirs.items() if values[0] is not None}
  found |= {field.theirs: _to_theirs(field, model) for field in family.fields}
  written = family.write(model)
  found |= written | ids
  found |= {key: special.get(role) for key, role in FURTHER.items() if key in written}
  if family_lib.ANY in family.classes[name]:
    (head,) = (head for head in models.heads_of(model) if head.kind in ('text', 'token'))
    count = head.classes
    names = classes or [f'LABEL_{i}' for i in range(count)]
    found['id2label'] = {str(i): name for i, name in enumerate(names)}
    found['label2id'] = {name: i for i, name in enumerate(names)}
    kind = 'regression' if problem is None and count == 1 else problem
    found |= dict(problem_type=kind) if kind and head.kind == 'text' else {}
  if languages and len(languages) == _rows_of_languages(model):
    found['id2lang'] = {str(i): name for i, name in enumerate(languages)}
    found['lang2id'] = {name: i for i, name in enumerate(languages)}
  return found


def read(given: Mapping[str, Any], names: set[str]) -> tuple[Family, dict[str, Any]]:
  """Returns the family and the fields of `config.model` that a config.json means; where it names no
  class, the names of the tensors tell it. Raises UserError for a class that no family has and for
  an option that our model does not compute."""
  kind = str(given.get('model_type', ''))
  for each in _all().values():
    if kind in each.unlike:
      raise family_lib.uncomputed(
        f'model_type={kind!r}: {each.unlike[kind]}', f'one with model_type={each.model_type!r}'
      )
    if kind in each.alike:
      ours = [str(its).replace(*each.alike[kind], 1) for its in given.get('architectures') or ()]
      given = dict(given, model_type=each.model_type, architectures=ours)
  kind, name = str(given.get('model_type', '')), _class_name(given, names)
  of_kind = {each: f for each, f in _all().items() if f.model_type == kind}
  twin = lambda f: given.get('attn_type', 'bi') in f.theirs.get('attn_type', ('bi',))
  found = [each for each, f in of_kind.items() if name in f.classes and twin(f)]
  if not found:
    known = sorted({c for f in (of_kind or _all()).values() for c in f.classes})
    raise UserError(
      f'config.json is of model_type={kind!r} and of the class {name!r}, which no family holds: '
      f'expected one of {", ".join(known)}'
    )
  family = of_kind[found[0]]
  said, theirs = {**family.unsaid, **given}, family.theirs.items()
  wrong = {key: said[key] for key, values in theirs if said.get(key, values[0]) not in values}
  if wrong:
    raise family_lib.uncomputed(wrong, {key: family.theirs[key][0] for key in wrong})
  fields = dict(family.fixed) | {field.ours: _to_ours(field, given) for field in family.fields}
  fields |= family.read(given)
  if 'embedding_width' in fields and fields['embedding_width'] == fields['width']:
    fields['embedding_width'] = 0
  labels = given.get('id2label')
  count = (given.get('num_labels') or 2) if labels is None else len(labels)
  fields |= family_lib.head_fields(family, name, count)
  whole = dict(fields, family=found[0], name=family.model)
  family.write(ConfigDict(whole))  # what cannot go out is not what the class computes either
  problem(given, whole)
  return family, whole


def left_out(given: Mapping[str, Any], family: Family, model: Mapping[str, Any]) -> list[str]:
  """Returns the fields of a config.json that were neither read nor are known to be harmless."""
  known = {*HARMLESS, *SPECIAL, *FURTHER, *(f.theirs for f in family.fields), *family.theirs}
  carried = dict(family.write(ConfigDict(model)), problem_type=problem(given, model))
  return [
    f'config.json: {key}={value!r}'
    for key, value in sorted(given.items())
    if value not in (None, {}, [], carried.get(key)) and not known & {key, f'{key}={value}'}
  ]


def problem(given: Mapping[str, Any], model: Mapping[str, Any]) -> str:
  """Returns the problem_type of a head for texts, '' if there is none. Raises UserError if it means
  something else than scores of classes or one number."""
  count, kind = dict(model.get('labels', ())).get('label', 0), given.get('problem_type')
  if not count or not kind:
    return ''
  expected = ('regression',) if count == 1 else ('single_label_classification', SEVERAL)
  if kind not in expected:
    raise UserError(
      f'config.json has problem_type={kind!r} with {count} labels, which is not learned here: '
      f'expected {" or ".join(expected)}. AutoModel.from_pretrained(DIR).save_pretrained(OTHER) '
      'saves the encoder without its head'
    )
  return kind


def classes(given: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
  """Head of a model that was read -> what its config.json calls the classes, by their ids; none
  where it has the names that transformers gives (LABEL_0)."""
  said = given.get('id2label') or {}
  if wrong := [key for key in said if not key.isdecimal()]:
    raise UserError(f'config.json: id2label: expected ids as keys, got {wrong[0]!r}')
  names = tuple(str(said[i]) for i in sorted(said, key=int))
  if all(name == f'LABEL_{i}' for i, name in enumerate(names)):
    return {}
  heads = (*model.get('labels', ()), *model.get('token_labels', ()))
  found = {head: names for head, count in heads if count == len(names)}
  if found and (len({*names}) < len(names) or {*map(int, said)} != {*range(len(names))}):
    raise UserError(
      'config.json: id2label: expected ids from 0 on, and a name of its own for each, got '
      f'{said!r}. AutoModel.from_pretrained(DIR).save_pretrained(OTHER) saves the encoder alone'
    )
  return found


def languages(given: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the languages of a model's table in the order of their ids, from lang2id; () if that
  does not name all of them."""
  said = given.get('lang2id') or {}
  numbered = sorted(said.values()) == [*range(_rows_of_languages(model))]
  return tuple(sorted(said, key=said.__getitem__)) if numbered else ()


def _rows_of_languages(model: Any) -> int:
  return dict(model.get('extra', ())).get('language', 0)


def _all() -> dict[str, Family]:
  """Returns the families that directories are read as."""
  found = {n: family_lib.find(n) for n in registry.names_in('bertjax.formats.families')}
  return {name: family for name, family in found.items() if not family.read_as}


def _class_name(given: Mapping[str, Any], names: set[str]) -> str:
  """Returns the class that config.json names; else the one that the tensors tell."""
  said = given.get('architectures') or ()
  if said:
    return str(said[0])
  fitting = [
    (len(marks), name)
    for family in _all().values()
    if family.model_type == given.get('model_type')
    for name in family.classes
    if (marks := _marks(family, name)) <= names | {f'{family.base}.{each}' for each in names}
  ]
  return max(fitting)[1] if fitting else ''


def _marks(family: Family, name: str) -> set[str]:
  """Names of the heads' tensors of a class."""
  known = options.fields_of(models.factory(dict(name=family.model)).options)
  blank = {key: 1 if field.required else field.default for key, field in known.items()}
  blank |= {field.ours: 1 for field in family.fields} | dict(family.fixed)
  blank |= family_lib.head_fields(family, name, 2)
  return {row.theirs for row in family.layout(ConfigDict(blank)).rows if row.head}


def _to_theirs(field: Field, model: Any) -> Any:
  value = model[field.ours]
  if field.values:
    if value not in field.values:
      raise UserError(
        f'config.model.{field.ours}={value!r} has no name in config.json: expected one of '
        f'{", ".join(map(repr, field.values))}'
      )
    return field.values[value][0]
  return field.export(value) if field.export else value


def _to_ours(field: Field, given: Mapping[str, Any]) -> Any:
  value = given.get(field.theirs, field.default)
  if field.values:
    found = [ours for ours, theirs in field.values.items() if value in theirs]
    if not found:
      known = ', '.join(repr(each) for theirs in field.values.values() for each in theirs)
      raise family_lib.uncomputed(f'{field.theirs}={value!r}', f'one of {known}')
    return found[0]
  try:
    return field.import_(value) if field.import_ else value
  except TypeError as error:
    raise family_lib.uncomputed(
      f'{field.theirs}={value!r}', f'a value such as {field.default!r}'
    ) from error
