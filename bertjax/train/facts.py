"""Facts of a run: what its config leaves to files, models and devices, as plain values.

They are looked up once and kept in config.json, so a resume neither opens a source model again nor
times its steps again.
"""

import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from bertjax.checkpoint import resume
from bertjax.checkpoint.may_differ import covers
from bertjax.sources import init_from, teacher


class Facts(NamedTuple):
  """The facts that `resolve` fills into a config; an empty value leaves the config as it is."""

  # keys that stand against presets, minutes and epochs; None: all, of a config resolved before
  given: Collection[str] | None = None
  steps: int = 0  # total_steps of a run whose minutes were timed
  # (labelled examples, rows of a batch) of each task, for config.epochs
  examples: tuple[tuple[int, int], ...] = ()
  classes: tuple[tuple[str, ...], ...] = ()  # of each task, where they are inferred
  model: Mapping[str, Any] = {}  # fields of `config.model` that `config.init_from` brings
  named_languages: tuple[str, ...] = ()  # names of the languages of that model's table
  vocabulary: str = ''  # directory of a vocabulary that a model brought
  teacher: Mapping[str, Any] = {}  # `model` and `sha256` of the teacher
  store: str = ''  # its path, for messages
  ids: int = 0  # the number of its ids
  pad: int | None = None  # its id of [PAD]; None where it has none
  languages: tuple[str, ...] = ()  # names of its languages
  # phase -> lengths of its labelled rows at most (`Rows.fewer`); None: to be found
  lengths: Mapping[str, int] | None = None

  def kept(self) -> dict[str, Any]:
    """Returns what config.json keeps."""
    return {name: value for name, value in self._asdict().items() if name != 'given'}


NONE = Facts()


def recalled(
  record: Mapping[str, Any] | None,
  workdir: pathlib.Path | str,
  given: Collection[str] | None = None,
  overrides: Iterable[str] = (),
) -> Facts:
  """Returns the facts of the run whose config.json is `record`, none before it has begun. The
  workdir keeps the vocabulary; `given` as of Facts; `overrides` are keys whose new values stand
  against what a model brought."""
  if record is None:
    return Facts(given)
  kept = NONE.kept() | resume.with_tuples(record.get('facts', {}))
  kept['lengths'] = kept['lengths'] or {}  # older runs have as many as there may be
  model = {k: v for k, v in kept['model'].items() if not covers(overrides, f'model.{k}')}
  vocabulary = str(pathlib.Path(workdir, resume.VOCAB)) if kept['vocabulary'] else ''
  steps = record['config']['total_steps']
  return Facts(given, **kept | dict(model=model, vocabulary=vocabulary, steps=steps))


def look_up(
  config: Any, facts: Facts, workdir: pathlib.Path | str, begun: bool
) -> tuple[Facts, list[str], init_from.Source | None]:
  """Looks up what a run needs before it has its store; one that has begun needs `config.init_from`
  no more. Returns (facts, lines for people, the opened source). UserError: a source or a teacher
  that is not there or does not fit."""
  said, opened, taught = [], None, None
  if 'teacher' in config.objective:
    found, taught, lines = teacher.brought(config, facts.teacher)
    facts = facts._replace(teacher=found)
    said += lines
  if config.init_from and not begun:
    brought = init_from.brought(config)
    facts = facts._replace(model=brought.model, named_languages=brought.languages)
    opened = brought.source
    said += brought.said
  for source in filter(None, (opened, taught)):
    if not facts.vocabulary:
      path, lines = init_from.keep_vocabulary(source, config.data, workdir)
      facts = facts._replace(vocabulary=path)
      said += lines
  return facts, said, opened
