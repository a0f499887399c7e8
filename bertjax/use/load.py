"""A trained model from a run's workdir, or from a directory of transformers."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from bertjax import json_files, sharding
from bertjax.checkpoint import finite, reading
from bertjax.errors import UserError, choose, warn
from bertjax.formats import config_json
from bertjax.formats import directory as directory_lib
from bertjax.formats.originals.original import Opening
from bertjax.formats.tokenizer import layouts
from bertjax.machine import copies, remote
from bertjax.models.layers import pad_id
from bertjax.models.layers.heads import Head
from bertjax.sources import foreign, runs
from bertjax.vocab.vocabulary import Vocabulary

LIMITS = ('best', 'longest', 'threshold')  # of evals/spans.py
ROOM = 512  # tokens of a row at most, of a model from elsewhere
ROWS = dict(data=-1, fsdp=1, tensor=1)  # a mesh whose devices share the rows


class Found(NamedTuple):
  """A model before its parameters are read."""

  source: pathlib.Path  # the checkpoint, or the directory
  model: Any  # `config.model`, with the vocabulary size filled in
  rules: sharding.Rules  # `config.sharding_rules`
  vocabulary: Vocabulary  # of its texts
  languages: tuple[str, ...]  # in the order of their ids; () where nothing says them
  # head -> names of its classes, of a model from elsewhere that says them
  classes: Mapping[str, Sequence[str]]
  meta: Mapping[str, Any]  # what else is saved with it; from elsewhere, see `original.Opening`
  # variables as ShapeDtypeStructs with shardings -> (arrays, paths of heads that are not there and
  # were made)
  read: Callable[[Any], tuple[Any, list[str]]]
  # `config.data.task` of a run over labelled examples, with `length`, the tokens of its rows at
  # most, and of questions the LIMITS of its own evaluation; {} of any other
  task: Mapping[str, Any] = MappingProxyType({})
  # of that task's examples, by name or number; None where nothing says it
  language: str | int | None = None
  tasks: tuple[str, ...] = ()  # of a run on several of which none was chosen: then it has no heads
  # the same parameters as other phases of the run read them, like `model`
  beside: tuple[Any, ...] = ()


def find(path: pathlib.Path | str, step: int | str | None = None, task: str = '') -> Found:
  """Opens a model: the workdir of a run, one of its checkpoints by step or 'best', None: the newest
  intact one; a directory of transformers, or FORMAT:PATH. `task` is the one whose head is meant, of
  a run on several; '': the encoder alone. Raises UserError: no model there, none that can read
  text, or no such task."""
  of_format = foreign.is_source(str(path))
  if of_format or _is_directory(remote.path(path)):
    for name, given in dict(step=step, task=task or None).items():
      if given is not None:
        raise UserError(f'{path} is no run, it has one model alone: got {name}={given}')
    if of_format:
      return _of_opening(foreign.open_source(str(path), 'the model'))
    return _of_opening(directory_lib.open_directory(copies.local(path).absolute()))
  return _of_run(runs.open_run(path, step, task))


def task_of(found: Found, heads: Sequence[Head], room: int | None) -> Mapping[str, Any]:
  """Returns the task of a model: its run's own, or of a model from elsewhere the one that its head
  is for.

  That is like a `config.data.task` with `length`, but says nothing of files: `text` is (). Limits
  of questions are those of transformers' pipeline. {} of a model without a head for labels.
  """
  if found.task:
    return found.task
  length = min(room or ROOM, ROOM)
  family, told = found.model.get('family', ''), found.meta.get('between')
  between = layouts.Between(*told) if told else layouts.Between(layouts.separators(family), True)
  task = dict(between._asdict(), length=length, text=())
  for head in heads:
    names = tuple(found.classes.get(head.name) or (f'LABEL_{i}' for i in range(head.classes)))
    if head[:2] == ('text', 'label'):
      several = ',' if found.meta.get('problem_type') == config_json.SEVERAL else ''
      names = names if head.classes > 1 else ()
      return task | dict(name='classify', classes=names, several=several)
    if head[:2] == ('token', 'tag'):
      return task | dict(name='tags', scheme='plain', classes=names)
    if head[:2] == ('text', 'right'):
      return task | dict(name='choice', choices='')
    if head.kind == 'answers' or head[:2] == ('token', 'span'):
      length = min(length, 384)
      sizes = dict(length=length, stride=min(128, length // 4), question=min(64, length // 4))
      limits = dict(no_answer=False, best=20, longest=15, threshold=0.0)
      return task | dict(name='spans') | sizes | limits
  return {}


def make_mesh(mesh: Any) -> jax.sharding.Mesh:
  """Returns a mesh of all devices: one that is ready, or of sizes as in `config.mesh` or as --mesh
  has them; None: the devices share the rows."""
  if isinstance(mesh, jax.sharding.Mesh):
    return mesh
  if isinstance(mesh, str):
    mesh = sharding.typed_mesh(mesh)
  return sharding.make_mesh(ROWS | dict(mesh or {}))


def language_id(language: str | int | None, languages: Sequence[str], rows: int | None) -> int:
  """Returns the id of a language, by name or number, in a model's table of so many rows; None where
  there is none, and languages only see their own. Raises UserError if none is given, or one that is
  unknown."""
  numbers = f'0 to {rows - 1}' if rows else 'their numbers'
  known = ', '.join(languages) or f'{numbers}, since this model does not say their names'
  if language is None:
    raise UserError(f'the model has a table of languages: expected language, one of {known}')
  if isinstance(language, int | np.integer):
    if language < 0 or rows and language >= rows:
      raise UserError(f'language={language}: expected one of {known}')
    return language
  return list(languages).index(choose(language, languages, 'language'))


def in_language(
  vocabulary: Vocabulary, language: str | int | None, languages: Sequence[str]
) -> Vocabulary:
  """Returns the vocabulary for texts in a language, where it cuts words by its rules; arguments as
  `language_id`, English if None, which is said. Raises UserError if its words cannot be cut, or a
  number that has no name."""
  if vocabulary.check_language is None:
    return vocabulary
  if language is None:
    warn('words are cut as in English: language (--language) names another')
    return vocabulary
  if isinstance(language, int | np.integer):
    if not languages:
      raise UserError(
        f'{vocabulary.files[0]} cuts words by the rules of their language: expected its name, as '
        f'in de, got language={language} of a model that does not say their names'
      )
    language = languages[language]
  return vocabulary.of_language(language)


def _is_directory(path: remote.Place) -> bool:
  """Returns whether a directory has a config.json as transformers writes it."""
  file = path / directory_lib.CONFIG
  try:
    return file.is_file() and 'model_type' in json_files.loads(file.read_bytes())
  except ValueError:
    return False


def _of_run(run: runs.Run) -> Found:
  config, vocabulary = run.config, _present(run.vocabulary, run.checkpoint)

  def filled(model: Any) -> Any:
    """Returns a `config.model` with what the vocabulary says."""
    model = model.copy_and_resolve_references()
    model.vocab_size = model.vocab_size or vocabulary.size
    if vocabulary.size > model.vocab_size:
      raise UserError(
        f'the vocabulary of {run.checkpoint} has {vocabulary.size} ids, the word table '
        f'{model.vocab_size} rows: expected the vocabulary that the model was trained with'
      )
    pad_id.fill(model, vocabulary.special['pad'])
    return model

  def read(abstract: Any) -> tuple[Any, list[str]]:
    if not (run.task or run.tasks):
      return reading.read_variables(run.checkpoint, abstract), []
    params = run.params()  # with what other tasks alone read
    return _put(dict(params={key: params[key] for key in abstract['params']}), abstract), []

  task = dict(config.data.task)
  if task:
    task |= dict(length=config.length, **_limits(config.evals))
  said = config.data.get('language', '') if task else ''
  language = int(said) if said.isdecimal() else said or None
  return Found(
    run.checkpoint, filled(config.model), sharding.as_rules(config.sharding_rules), vocabulary,
    runs.languages_of(run.workdir, config), run.imported_classes, run.meta, read, task, language,
    run.tasks, tuple(map(filled, run.beside)),
  )  # fmt: skip


def _of_opening(opened: Opening) -> Found:
  recipe: Any = runs.recipe_of(opened.recipe)
  model = directory_lib.whole_model(opened, recipe.model)

  def read(abstract: Any) -> tuple[Any, list[str]]:
    taken = opened.take(model)
    variables = _put(dict(params=taken.params), abstract)
    finite.require(variables, opened.path, ': take another model')
    return variables, taken.made

  return Found(
    opened.path, model, sharding.as_rules(recipe.sharding_rules),
    _present(opened.vocabulary, opened.path), opened.languages, opened.classes, opened.meta, read,
  )  # fmt: skip


def _present(vocabulary: Vocabulary | None, source: pathlib.Path) -> Vocabulary:
  if vocabulary is None:
    raise UserError(
      f'{source} has no vocabulary, without which no text can be read: expected it in the vocab '
      'folder of the run or of config.data.store, or a tokenizer beside config.json; copy it there'
    )
  return vocabulary


def _put(variables: Any, abstract: Any) -> Any:
  """Arrays of one device with the types and shardings of others."""
  put = lambda x, to: jax.device_put(np.asarray(x, to.dtype), to.sharding)
  return jax.tree.map(put, variables, abstract)


def _limits(evals: Any) -> dict[str, Any]:
  """Returns the limits of answers from the run's evaluation of questions, `dev` if there are
  several; {} without one."""
  found = {name: given for name, given in evals.items() if given.type == 'spans'}
  given = found.get('dev') or next(iter(found.values()), {})
  return {key: given[key] for key in LIMITS if key in given}
