"""What a run is told when its config names no data, or two kinds of it."""

import pytest

from bertjax.data import build
from configs import common


def ensure(workdir, **overrides):
  data = common.data()
  data.update_from_flattened_dict(overrides)
  return build.ensure_store(data, 0, str(workdir))


@pytest.mark.parametrize(
  'overrides, message',
  [
    ({}, 'no data: set config.data.store'),
    ({'input': 'a.txt', 'mixture': 'python_docs'}, 'set one of'),
    ({'input': 'a.txt'}, 'no vocabulary: set config.data.vocab'),
    ({'input': 'a.txt', 'reader': 'sequio'}, "did you mean 'seqio'"),
  ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path, overrides, message):
  with pytest.raises(ValueError, match=message):
    ensure(tmp_path, **overrides)
  assert not list(tmp_path.iterdir())


def test_a_child_that_fails_is_named_with_its_command(tmp_path):
  with pytest.raises(ValueError, match='python -m bertjax.prepare --input='):
    ensure(tmp_path, input=str(tmp_path / 'none.txt'), vocab=str(tmp_path / 'none'))


def test_a_store_that_is_there_is_taken_as_it_is(tmp_path):
  assert ensure(tmp_path, store='/some/store') == '/some/store'
  (tmp_path / 'store').mkdir()
  (tmp_path / 'store' / 'store.json').write_text('{}')
  assert ensure(tmp_path) == str(tmp_path / 'store')
