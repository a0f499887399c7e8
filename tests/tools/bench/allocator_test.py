"""A bench measures a rival with the allocator that the rival has elsewhere."""

import pytest
from mutation import mutation

from bertjax import bench
from bertjax.machine import malloc


@pytest.mark.parametrize('name', bench.BENCHES)
@mutation("words and words[0] != 'input'", 'words', case='input')
def test_only_what_xla_computes_has_one_arena(name, monkeypatch):
  asked = []
  monkeypatch.setattr(malloc, 'huge_pages', lambda: asked.append('pages'))
  monkeypatch.setattr(malloc, 'one_arena', lambda: asked.append('arena'))
  bench.prepare_memory([name, '--calls=1'])
  assert asked == ['pages', 'arena'] * (name != 'input')
