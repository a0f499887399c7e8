"""A language whose optimum is known, as stores of each kind of its text."""

import functools
import pathlib
from collections.abc import Callable

import prepare_runs
import pytest

from tests.known_language import language as known_language
from tests.known_language.systems import TEXTS


@pytest.fixture(scope='session')
def store_of(tmp_path_factory) -> Callable[[str], pathlib.Path]:
  """Kind of text -> its store, made once."""
  folder = tmp_path_factory.mktemp('known')
  known_language.write(folder / 'text', known_language.make(), documents=8000, held_out=300)

  @functools.cache
  def make(kind: str) -> pathlib.Path:
    flags = {k: v for k, v in TEXTS[kind].items() if k != 'input'}
    flags |= dict(holdout=0.0, split='lines', vocab=folder / 'text' / kind / 'vocab.txt')
    for text, output in (('text', folder / kind), ('text/heldout', folder / kind / 'heldout')):
      prepare_runs.run(input=TEXTS[kind]['input'].format(folder / text), output=output, **flags)
    return folder / kind

  return make
