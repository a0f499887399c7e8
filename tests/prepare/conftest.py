"""What the tests of `prepare` begin with."""

import prepare_runs
import pytest

from bertjax.text import corpus


@pytest.fixture
def vocab(tmp_path):
  """The vocabulary of `write_text`."""
  return prepare_runs.write_vocabulary(tmp_path)


@pytest.fixture
def given(tmp_path, vocab):
  """What a run of `prepare` is given: a small text, and its vocabulary."""
  prepare_runs.write_text(tmp_path / 'a.txt')
  return dict(input=tmp_path / 'a.txt', vocab=vocab)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
  """Many groups of documents from little text."""
  monkeypatch.setattr(corpus, 'BLOCK_BYTES', 4000)
