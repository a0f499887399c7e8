"""Sources of a recipe's values: a source is written with its values, and goes with them.

  c.update(cited('paper, appendix A.2', total_steps=1_000_000, batch_size=256))
  c.optimizer.schedule = cited('optimization.py:create_optimizer', name='bert_linear', peak=1e-4)

A value written in any other way has no source, and removes the source of the value before it:
`python -m bertjax.recipe` shows it, and a test of the configs fails. A source is a file of the
original after the name of its repository, with the function or flag ('bert/modeling.py:gelu'), a
part of the paper ('BERT paper, appendix A.2'), or 'ours: ' and why. A value that was not
read in its source says '(unverified)'.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

DEFAULT = 'default'  # of the option; the recipe leaves the value as it is
UNVERIFIED = 'unverified'
THE_RUN = 'as the run'  # of what other keys say and the schedule repeats
OWN = (DEFAULT, THE_RUN, 'ours')  # such a source has no other number elsewhere


class Cited(dict[str, Any]):
  """A dict that keeps the source of each of its values; `|` keeps those of both sides.

  Attributes:
    sources: key -> source; the values that are dicts have their own.
  """

  def __init__(self, values: Mapping[str, Any], sources: Mapping[str, str]):
    super().__init__(values)
    self.sources = {key: sources[key] for key in values if key in sources}

  def __or__(self, other: Any) -> 'Cited':
    kept = {key: source for key, source in self.sources.items() if key not in other}
    return Cited({**self, **other}, kept | getattr(other, 'sources', {}))

  def without(self, key: str) -> 'Cited':
    """Returns all but one value."""
    return Cited({k: v for k, v in self.items() if k != key}, self.sources)


def cited(source: str, **values: Any) -> Cited:
  """Values that come from one place; in a dict among them, those that have no source of their own.
  Raises ValueError if the source is blank."""
  if not source.strip():
    raise ValueError(f'expected the source of {", ".join(values)}, got {source!r}: say where from')
  return _within(source, values)


def _within(source: str, values: Mapping[str, Any]) -> Cited:
  own = values.sources if isinstance(values, Cited) else {}
  where = {key: own.get(key, source) for key in values}
  nested = {k: _within(where[k], v) if isinstance(v, dict) else v for k, v in values.items()}
  return Cited(nested, where)


class _Source(NamedTuple):
  text: str
  value: Any  # what it was given for: what follows from other keys may be another one by now


class Recipe(ConfigDict):
  """A ConfigDict that takes over the sources of `Cited` dicts; its sections are Recipes too."""

  _sources: dict[str, _Source]

  def __init__(self, initial: Mapping[str, Any] | ConfigDict | None = None, **options: Any):
    object.__setattr__(self, '_sources', {})
    super().__init__(**options)
    self.update({} if initial is None else initial)

  def __setstate__(self, state: Mapping[str, Any]) -> None:
    super().__setstate__(state)  # of a copy, which sets the values one by one
    self._sources.update(state['_sources'])

  def __setitem__(self, key: str, value: Any) -> None:
    if isinstance(value, dict | ConfigDict) and not isinstance(value, Recipe):
      value = Recipe(value)
    super().__setitem__(key, value)
    self._sources.pop(key, None)

  def __delitem__(self, key: str) -> None:
    super().__delitem__(key)
    self._sources.pop(key, None)

  def get_ref(self, key: str) -> Any:
    kept = dict(self._sources)  # it writes the value again, as a reference
    reference = super().get_ref(key)
    self._sources.update(kept)
    return reference

  def update(self, *other: Any, **values: Any) -> None:
    for given in (*other, values):
      whole = dict(preserve_field_references=True) if isinstance(given, ConfigDict) else {}
      for key, value in given.items(**whole):
        section = self.get(key)
        if isinstance(value, dict | ConfigDict) and isinstance(section, Recipe):
          section.update(value)
        else:
          self[key] = value
      self._adopt(given)

  def defaults(self) -> list[str]:
    """Returns the keys of this section, not of those below it, that have their default."""
    return [key for key, source in self._sources.items() if source.text == DEFAULT]

  def _adopt(self, given: Any) -> None:
    if isinstance(given, Recipe):
      self._sources.update(given._sources)
    for key, source in given.sources.items() if isinstance(given, Cited) else ():
      if not isinstance(self[key], ConfigDict):
        self._sources[key] = _Source(source, self[key])


def source_of(config: Any, key: str) -> str:
  """Returns the source of a value by its key, as in 'optimizer.schedule.peak'; '' if it has none,
  'default' if the config does not have the key; of a section, those of its values, if all have one.
  What follows from other keys keeps the source of its formula. Where it no longer has the value
  that was cited, that one is said as well."""
  *sections, name = key.split('.')
  for section in sections:
    config = config.get(section, {})
  if name not in config:  # filled in for what a phase chooses
    return DEFAULT
  value = config[name]
  if isinstance(value, ConfigDict):
    texts = dict.fromkeys(source_of(value, k) for k in value)
    return '' if '' in texts else '; '.join(texts) or DEFAULT
  found = config._sources.get(name) if isinstance(config, Recipe) else None
  if found is None:
    return ''
  same = found.value == value or found.text.startswith(OWN)
  return found.text if same else f'{found.text} ({found.value!r} there)'


def reattribute(config: Recipe, source: str, *keys: str) -> None:
  """Gives another source, in place, to values that stand, by keys such as
  'optimizer.schedule.peak': those of a system whose recipe this one takes over."""
  for key in keys:
    *sections, name = key.split('.')
    holder: Any = config
    for section in sections:
      holder = holder[section]
    holder._sources[name] = _Source(source, holder[name])
