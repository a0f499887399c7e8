"""The labelled examples that a config names: their task, files and vocabulary."""

import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertjax import registry
from bertjax.data_contracts import Labelled, Task
from bertjax.errors import UserError, warn_once
from bertjax.examples import plan_and_mask, spelling
from bertjax.examples.labelled.common import extra_ids, rows
from bertjax.options import read
from bertjax.store.reader import Store
from bertjax.vocab import kept
from bertjax.vocab.vocabulary import Vocabulary, much_unknown, read_vocabulary


def open_rows(
  config: Any,
  path: str,
  key: str,
  store: Store,
  limit: int,
  together: int,
  language: str = '',
  judged: bool = False,
) -> rows.Rows:
  """Opens a file of labelled examples, which `key` of the config names, as `data.task` says. Takes
  the first `limit`, 0: all; `together` rows are a batch; `language` is as of `extra_ids.ids`. With
  judged the labels are what a model is judged by: `config.data.task.unlabelled` is of what it
  learns from. Raises UserError: a file that is not there, of another kind, without examples or a
  column, or with a label that is wrong; an encoder that does not fit the task, or no language where
  one is needed."""
  given = dict(config.data.task.items())
  if judged and 'unlabelled' in given:
    given['unlabelled'] = False
  task, options = task_of(given)
  records = list(examples_of(task, options, path, key, limit))
  found = rows_of(records, task, options, config, store, together, language)
  if not found.spell:
    _say_unknown(found.examples, path, store.special['unk'])
  return found


def _say_unknown(examples: Labelled, path: str, unk: int | None) -> None:
  """Says once where many tokens of a file are unknown, which a vocabulary that came with its model
  was never asked about."""
  for which, id_n in dict(read=examples.id_n, written=examples.second.get('target', ())).items():
    flat = np.concatenate([np.zeros(0, np.int32), *id_n])
    share = np.count_nonzero(flat == unk) / max(len(flat), 1)
    remedy = (
      'begin with a model whose vocabulary was made for such text, or name another one, '
      '--config.data.vocab, with --remap_vocab'
    )
    if said := much_unknown(share, f'tokens that are {which}', remedy):
      warn_once(f'{path}: {said}')


def rows_of(
  records: Sequence[Any], task: Task, options: Any, config: Any, store: Store, together: int,
  language: str,
) -> rows.Rows:  # fmt: skip
  """Returns the rows of records of a task, encoded as the encoder of a config reads them; arguments
  and errors as of `open_rows`."""
  cls_last = rows.is_cls_last(config.model)
  own = task.encode_cls_last if cls_last else None
  more = extra_ids.ids(config, language, store.languages)
  vocabulary = vocabulary_of(config, store, language)
  speller = spelling.speller(config.model, vocabulary)
  vocabulary = speller.vocabulary if speller else vocabulary
  examples = (own or task.encode)(records, options, vocabulary, config.length)
  if cls_last and own is None:
    examples = rows.with_cls_last(examples)
  if config.model.get('both_orders', False):
    examples = rows.with_both_orders(examples)
  length, block = config.length * rows.parts_of(examples), config.data.length_block
  last = rows.stands_last(config.model)
  spell = speller.characters if speller else None
  if spell:
    spell(np.unique(np.concatenate(examples.id_n)))  # says of all at once what is cut, or refused
  return rows.Rows(store, examples, length, config.seed, together, block, last, more, spell)


def vocabulary_of(config: Any, store: Store, language: str = '') -> Vocabulary:
  """Returns the vocabulary of the encoder, for examples in a language."""
  found = read_vocabulary(store.path / 'vocab')
  if found.check_language is None:
    return found
  return found.of_language(extra_ids.name(config, language, store.languages))


def read_records(config: Any, path: str, key: str, limit: int) -> list[Any]:
  """Returns the records of a file of labelled examples; arguments and errors as `open_rows`."""
  return list(examples_of(*task_of(config.data.task), path, key, limit))


def count(config: Any) -> int:
  """Counts the examples that the run trains on, without encoding them."""
  data = config.data
  found = examples_of(*task_of(data.task), data.train, 'config.data.train', data.examples)
  return sum(1 for _ in found)


def inferred(config: Any) -> tuple[str, ...]:
  """Returns the classes of the examples that the run trains on, where `config.data.task.classes` is
  to be inferred; else ()."""
  task, options = task_of(config.data.task)
  if task.named is None or not task.infers(options):
    return ()
  data = config.data
  found = examples_of(task, options, data.train, 'config.data.train', data.examples)
  return tuple(sorted({name for record in found for name in task.named(record, options)}))


def examples_of(task: Task, options: Any, path: str, key: str, limit: int) -> Iterator[Any]:
  """Yields the records of a file, which `key` names, by a task with its options; the first `limit`,
  0: all. Raises UserError: as the task's `read`, or no file, or none in it."""
  if not path:
    raise UserError(f'{key} names no file: expected one with labelled examples')
  record = None
  try:
    for record in itertools.islice(task.read(path, options), limit or None):
      yield record
  except UserError as error:
    raise UserError(f'{key}: {error}') from error
  if record is None:
    raise UserError(f'{key}={path} has no examples: expected one at least')


def task_of(given: Any) -> tuple[Task, Any]:
  """Returns the task that `config.data.task` names, and its options, checked."""
  task: Task = plan_and_mask.named('task', given['name'])
  fields = {name: value for name, value in given.items() if name != 'name'}
  options = read(task.options, fields, 'config.data.task')
  if not task.infers(options):
    task.check(options)
  elif task.named is None:
    raise UserError(f'config.data.task.classes: {given["name"]} infers none, expected their names')
  return task, options


def has_labels(given: Any) -> bool:
  """Returns whether the task that `config.data.task`, `given`, names has labels: heads for them."""
  task, options = task_of(given)
  return bool(task.classes(options))


def fill_labels(model: Any, given: Any) -> dict[str, Any]:
  """Gives `config.model` what follows from the task that `config.data.task`, `given`, names: to its
  labels, of examples and of tokens, that have 0 classes as many as that has, and `Factory.of_task`.
  Returns these fields. Raises UserError: a head for another number of classes."""
  task, options = task_of(given)
  if task.infers(options):
    raise UserError(
      'config.data.task.classes=infer is for a run, which reads its examples: expected their names'
    )
  known = task.classes(options)
  chosen = registry.chosen('bertjax.models', model.name, 'config.model.name')
  found = dict(chosen.of_task(model, given))
  for key in {'labels', 'token_labels'} & set(model):
    labels = tuple((name, classes or known.get(name, 0)) for name, classes in model[key])
    for name, classes in labels:
      if classes != known.get(name, classes):
        raise UserError(
          f'config.model.{key} has {classes} classes for {name!r}, config.data.task {known[name]}: '
          'leave it at 0 to take those of the task'
        )
    found[key] = labels
  model.update(found)
  return found


def ensure_vocabulary(data: Any, workdir: str) -> str:
  """Copies the vocabulary that `config.data` names to WORKDIR/vocab; returns WORKDIR."""
  if not data.vocab:
    raise UserError(
      'config.data.vocab is empty: name the vocabulary of the encoder, or begin with a model that '
      'brings its own, --config.init_from=hf:DIR or a run'
    )
  kept.bring(data.vocab, data.lowercase, pathlib.Path(workdir, 'vocab'))
  return workdir
