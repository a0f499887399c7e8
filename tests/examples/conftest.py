"""Stores that several test files read; none is to be changed."""

import ernie_text
import every_plan
import pytest


@pytest.fixture(scope='session')
def any_text(tmp_path_factory):
  """Text that suits every plan and every noise."""
  return every_plan.write_text(tmp_path_factory.mktemp('any') / 'store')


@pytest.fixture(scope='session')
def xlm_words(shared, tmp_path_factory):
  """The first words of a vocabulary that cuts texts by the rules of their language."""
  folder = tmp_path_factory.mktemp('xlm')
  for name in ('codes_xnli_15', 'vocab_xnli_15'):
    lines = (shared / 'tokenizers/xlm-xnli15' / name).read_text(encoding='utf-8').split('\n')
    (folder / name).write_text('\n'.join(lines[:9000]) + '\n', encoding='utf-8')
  return folder


@pytest.fixture(scope='session')
def ernie_store(tmp_path_factory):
  """Text for ERNIE's plans and noise."""
  return ernie_text.write_units(tmp_path_factory.mktemp('ernie') / 'store')
