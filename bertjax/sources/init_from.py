"""Warm starts: parameters copied from other models into a fresh state.

`config.init_from` is one model, which also brings its fields of `config.model` and its vocabulary:

  'runs/bert'        a run: its newest intact checkpoint; what is fine-tuned is its encoder, with
                     the head of the same name
  'hf:DIR'           a directory of transformers; tf1:PATH and fairseq:PATH likewise

or a tuple of (checkpoint, from path, to path, layers), which copies subtrees, and brings the fields
of `config.model` by which they are read and that no shape tells, as activation and norm_eps. A
student that takes every second layer of its teacher:

  (('runs/bert', 'params/encoder', 'params/encoder', (0, 2, 4, 6, 8, 10)),)

There `checkpoint` is a run, one of its checkpoints, or hf:DIR. Paths name a subtree; `layers` picks
from the leading axis of leaves under 'layers'. Parameters only: optimizer state and step start
afresh. Ids mean nothing without their vocabulary, so one that differs is refused, unless, of one
model, `config.remap_vocab` moves the rows of the pieces that both have.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from bertjax import json_files, models
from bertjax.checkpoint import manifest, reading, resume
from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config
from bertjax.formats import directory, family
from bertjax.machine import mirror, remote
from bertjax.objectives.combine import task_heads
from bertjax.sources import foreign as sources
from bertjax.sources import head_classes, model_fields, runs, subtrees
from bertjax.types import Part
from bertjax.vocab.vocabulary import Vocabulary, check_rows, read_vocabulary

KEY = 'config.init_from'


class Source(NamedTuple):
  """A whole model to begin with."""

  name: str  # as it was given
  model: Mapping[str, Any]  # its fields of `config.model`
  vocabulary: Vocabulary | None  # or None where it has none
  params: Callable[[], Any]  # () -> its parameters, without heads that it lacks
  languages: tuple[str, ...] = ()  # names of those of its table; () where nothing says them
  # head -> those that it tells apart, by their ids, where they are said
  classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
  foreign: bool = False  # whether these are the names of somebody else
  # () -> parameters of a net that lies beside it, by name: the generator of DeBERTa-v3
  beside: Callable[[], Mapping[str, Any]] = dict

  def part(self, way: Part) -> 'Source':
    """Returns a part of the model, as its module of models/ takes it from the whole: a run of
    ELECTRA leaves its discriminator, which is a BERT."""
    return self._replace(model=way.model(self.model), params=lambda: way.select(self.params()))


def whole(init_from: Any) -> str:
  """Returns the one model that `config.init_from` names; '': it is a list of subtrees, or empty."""
  if isinstance(init_from, str):
    return init_from
  return init_from[0] if len(init_from) == 1 and isinstance(init_from[0], str) else ''


def open_source(name: str, key: str = KEY) -> Source:
  """Opens a model: a run or FORMAT:PATH, which `key` of the config names."""
  if not sources.is_source(name):
    if not remote.is_remote(name) and not pathlib.Path(name).is_dir():
      raise sources.nothing_at(name, key)
    return _of_run(name, runs.open_run(name))
  opened = sources.open_source(name, key)
  recipe = runs.recipe_of(opened.recipe).model
  model = directory.whole_model(opened, recipe)

  def params() -> Any:
    taken = opened.take(model)
    made = {path.partition('/')[0] for path in taken.made}
    return {k: v for k, v in taken.params.items() if k not in made}

  def beside() -> dict[str, Any]:
    generator = directory.generator_beside(opened.path, recipe)
    return dict(generator=generator) if generator else {}

  return Source(
    name, dict(model), opened.vocabulary, params, opened.languages, opened.classes, True, beside
  )


def _of_run(name: str, run: runs.Run) -> Source:
  languages = runs.languages_of(run.workdir, run.config)
  imported = run.imported_classes
  classes = imported or head_classes.of(resume.stored_config(run.workdir))
  model = dict(run.config.model)
  return Source(name, model, run.vocabulary, run.params, languages, classes, bool(imported))


class Brought(NamedTuple):
  """The parts of a run that `config.init_from` brings."""

  model: Mapping[str, Any]  # fields of `config.model`
  languages: tuple[str, ...] = ()  # of the source, by their ids
  said: Sequence[str] = ()  # lines for people
  source: Source | None = None  # the whole model; None of subtrees


def brought(config: Any) -> Brought:
  """Opens what `config.init_from` of a run names. UserError: no such model, or one of another
  `config.model.name` or of another vocabulary than `config.data.vocab`."""
  name = whole(config.init_from)
  if not name:
    origins = {entry[0]: _origin(entry[0]) for entry in config.init_from}
    notes = _heads_of_parts(origins, config)
    models_of = {name: source.model for name, source in origins.items()}
    fields, said = model_fields.of_parts(config.init_from, models_of)
    return Brought(fields, said=[*notes, *said])
  source = _for_run(name, config)
  theirs, ours = source.model['name'], config.model.name
  if config.data.reader != 'labelled' and theirs != ours:
    raise UserError(
      f'{KEY}={name!r} is a model of config.model.name={theirs!r}, the config has {ours!r}: begin '
      'with the config file of the former, or name the subtrees'
    )
  if config.data.vocab and not config.remap_vocab:  # as `loader`, and before the text is read
    vocabulary = read_vocabulary(config.data.vocab, config.data.lowercase)
    subtrees.moved(name, source.vocabulary, vocabulary, False, KEY)
  return Brought(dict(source.model), source.languages, head_classes.notes(source, config), source)


def _origin(name: str) -> Source:
  """Opens what subtrees are taken from; its model is {} where none is said."""
  if sources.is_source(name):
    return open_source(name)
  checkpoint = reading.newest(*mirror.opened(name))
  path = checkpoint.parent.parent / resume.NAME
  found = json_files.read(path) if path.is_file() else {}
  if found.get('format') == resume.FORMAT and checkpoint.name.isdecimal():
    config = resume.stored_config(path.parent)
    config.model = runs.model_at(config, int(checkpoint.name))
    return _of_run(name, runs.Run(path.parent, checkpoint, config, None))
  return Source(name, found.get('config', {}).get('model', {}), None, dict)  # of an older format


def _heads_of_parts(origins: Mapping[str, Source], config: Any) -> list[str]:
  """Returns `head_classes.notes` on heads in subtrees. UserError: heads of other classes."""
  notes = []
  for name, path, to, *_ in config.init_from:
    part = origins[name]._replace(classes=head_classes.moved(origins[name].classes, path, to))
    for head in head_classes.different(part, config):
      theirs, ours = part.classes[head], head_classes.of(config)[head]
      raise UserError(
        f'{KEY}: {name}:{path} has classes {theirs} of {head!r}, the run {ours}: leave the head out'
      )
    notes += head_classes.notes(part, config)
  return notes


def _for_run(name: str, config: Any) -> Source:
  """Opens a whole model as a run takes it: where that learns labels of examples, its encoder;
  else, if the run's own model says how it begins as one of that kind, that way."""
  source = open_source(name)
  if config.data.reader == 'labelled' and from_config.has_labels(config.data.task):
    return encoder_of(source)
  way = models.factory(config.model).begins.get(source.model['name'])
  if not way:
    return source
  both = source._replace(params=lambda: {**source.params(), **source.beside()})
  found = both.part(way(config.model, source.model))
  try:
    family.find(found.model['family']).write(ConfigDict(found.model))
  except UserError as error:
    raise UserError(
      f'{KEY}={name!r} begins a model that no class of transformers would hold: {error}'
    ) from error
  return found


def encoder_of(source: Source) -> Source:
  """Returns the part with which fine-tuning begins. UserError: a kind without heads for labels."""
  factory = models.factory(source.model)
  found = source.part(factory.tuned or factory.encoder)
  if 'labels' not in found.model:
    raise UserError(
      f'{KEY}={source.name!r} is a model of config.model.name={source.model["name"]!r}, which has '
      'no heads for labels: expected an encoder, as BERT, RoBERTa, ALBERT, ELECTRA, ModernBERT, '
      'XLNet or GPT'
    )
  return found


def keep_vocabulary(
  source: Source, data: Any, workdir: pathlib.Path | str
) -> tuple[str, list[str]]:
  """Copies the vocabulary of a model into the workdir, where `config.data` names none; returns its
  directory and what to say of it."""
  if source.vocabulary is None or data.store or data.vocab or data.train_vocab.type:
    return '', []
  resume.keep_vocabulary(workdir, source.vocabulary)
  path = str(pathlib.Path(workdir, resume.VOCAB))
  return path, [f'The vocabulary of {source.name} is kept in {path}']


def loader(
  config: Any, vocabulary: Vocabulary | None, variables: Any, source: Source | None = None
) -> tuple[Callable[[Any], Any], list[str]]:
  """Opens the models of `config.init_from`, compares their vocabulary with the run's (None: not
  known) and their parameters with `variables`, shapes of the run's; returns variables -> variables
  with those in place, and lines for people. `source` is the whole model, if it was opened.
  UserError: no such model, another vocabulary without `config.remap_vocab`, or a path, structure or
  shape that does not match."""
  if name := whole(config.init_from):
    return _whole_loader(config, vocabulary, variables, source or _for_run(name, config))
  if config.remap_vocab:
    raise UserError(
      'config.remap_vocab moves the rows of one model that config.init_from names, a run or '
      f'FORMAT:PATH, got {config.init_from!r}: leave it out'
    )
  parts = []
  for name, path, to, layers in config.init_from:
    theirs = subtrees.find(_read(name, vocabulary), path, name)
    mine = subtrees.find(variables, to, 'the model')
    parts.append((to, subtrees.taken(theirs, mine, layers, f'{name}:{path}', None)))

  def load(variables: Any) -> Any:
    for to, copy in parts:
      new = copy(subtrees.find(variables, to, 'the model'))
      variables = subtrees.replaced(variables, to.split('/'), new)
    return variables

  return load, []


def _whole_loader(
  config: Any, vocabulary: Vocabulary | None, variables: Any, source: Source
) -> tuple[Callable[[Any], Any], list[str]]:
  """`loader` of a whole model. A head of labels with another number of classes there is none of
  ours (RTE after MNLI), nor is one of other classes."""
  name = source.name
  if source.vocabulary is None:
    check_rows(vocabulary, source.model['vocab_size'], f'this run, beside {KEY}={name},')
  rows, said = subtrees.moved(name, source.vocabulary, vocabulary, config.remap_vocab, KEY)
  if rows is not None and source.model.get('cutoffs'):
    raise UserError(
      f'{KEY}={name} has its words in clusters by frequency (config.model.cutoffs), whose rows '
      '--remap_vocab cannot move: expected its own vocabulary, config.data.vocab'
    )
  params, mine = (task_heads.apart(each) for each in (source.params(), variables['params']))
  heads = {*models.head_paths(config.model), *(mine.keys() - variables['params'].keys())}
  classes = head_classes.different(source, config)
  shapes = lambda tree: [x.shape for x in jax.tree.leaves(tree)]
  differs = lambda key: key in classes or shapes(params[key]) != shapes(mine.get(key))
  other = {key for key in params.keys() & heads if differs(key)}
  params = {key: value for key, value in params.items() if key not in other}
  copies = {
    key: subtrees.taken(params[key], mine[key], (), f'{name}:{key}', rows)
    for key in mine.keys() & params.keys()
  }

  def load(variables: Any) -> Any:
    mine = task_heads.apart(variables['params'])
    new = mine | {key: copy(mine[key]) for key, copy in copies.items()}
    return dict(variables, params=task_heads.together(new))

  said = [*said, f'Parameters from {name}']
  if other:
    said.append(f'Made anew, {name} has them for other classes: {", ".join(sorted(other))}')
  if made := sorted(mine.keys() - params.keys() - other):
    said.append(f'Made anew, {name} has none of them: {", ".join(made)}')
  if left_out := sorted(params.keys() - mine.keys()):
    said.append(f'Left out of {name}, the model has none of them: {", ".join(left_out)}')
  return load, said


def _read(path: str, vocabulary: Vocabulary | None) -> Any:
  """Returns the variables of FORMAT:PATH or of a run's newest intact checkpoint; refuses another
  vocabulary if the checkpoint names one, as older ones do not."""
  if sources.is_source(path):
    source = open_source(path)
    theirs = source.vocabulary
    if theirs and vocabulary and not subtrees.same_ids(theirs, vocabulary):
      raise UserError(subtrees.refusal(path, theirs.sha256, vocabulary, KEY))
    return dict(params=source.params())
  directory = reading.newest(*mirror.opened(path))
  theirs = manifest.read(directory)['meta'].get('vocabulary')
  if vocabulary and theirs and theirs != vocabulary.sha256:
    raise UserError(subtrees.refusal(path, theirs, vocabulary, KEY))
  return reading.read_variables(directory)
