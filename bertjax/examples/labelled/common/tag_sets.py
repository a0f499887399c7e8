"""Sets of tags, and the entities that tags of the scheme IOB2 mark.

B-X begins an entity of type X, I-X goes on with it, O is outside of all (Tjong Kim Sang and
Veenstra 1999). What a model predicts need not be valid: an I-X that nothing begins then begins an
entity, as in the script that CoNLL's shared tasks were judged by (conlleval) and in seqeval.
"""

import itertools
from collections.abc import Sequence
from typing import Literal

Scheme = Literal['iob2', 'plain']
OUTSIDE = 'O'
NONE = '_'  # how CoNLL-U spells a field that is empty


def tags(scheme: Scheme, classes: Sequence[str]) -> tuple[str, ...]:
  """Returns all tags, in the order of their ids: of 'iob2' O, and B-X and I-X for each type X of
  `classes`; of 'plain' the classes themselves."""
  if scheme == 'plain':
    return tuple(classes)
  return (OUTSIDE, *(f'{mark}-{kind}' for kind in classes for mark in 'BI'))


def unread(scheme: Scheme) -> str:
  """Returns the tag of a word that no row had room for: O, or '_', which equals no tag."""
  return OUTSIDE if scheme == 'iob2' else NONE


def fault(found: Sequence[str]) -> int | None:
  """The place of the first I-X that does not go on with an X, in IOB2; None: there is none."""
  for place, (before, tag) in enumerate(itertools.pairwise([OUTSIDE, *found])):
    if tag.startswith('I-') and before[2:] != tag[2:]:
      return place
  return None


def entities(found: Sequence[str]) -> list[tuple[str, int, int]]:
  """(type, first word, word behind the last) of each entity.

  ['B-PER', 'I-PER', 'O', 'I-LOC']  ->  [('PER', 0, 2), ('LOC', 3, 4)]
  """
  entities, inside, start = [], '', 0
  for place, tag in enumerate([*found, OUTSIDE]):
    mark, _, kind = tag.partition('-')
    if mark == 'I' and kind == inside:
      continue
    if inside:
      entities.append((inside, start, place))
    inside, start = kind, place
  return entities
