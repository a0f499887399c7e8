"""A bench measures a rival with the allocator that the rival has elsewhere."""

import pytest
from mutation import mutation

from bertjax.bench import __main__ as bench
from bertjax.machine import malloc


@pytest.mark.parametrize('name', bench.BENCHES)
@mutation(
  'bench: the threads of tokenizers share one arena',
  'bertjax/bench/__main__.py',
  "'plans', 'prepare', 'squad')",
  "'plans', 'squad')",
  case='prepare',
)
def test_only_what_xla_computes_has_one_arena(name, monkeypatch):
  asked = []
  monkeypatch.setattr(malloc, 'huge_pages', lambda: asked.append('pages'))
  monkeypatch.setattr(malloc, 'one_arena', lambda: asked.append('arena'))
  bench.prepare_memory([name, '--calls=1'])
  in_xla = name in ('distill', 'embed', 'finetune', 'kernel', 'recurrence', 'step')
  assert asked == ['pages', 'arena'] * in_xla


def test_help_asks_for_nothing(monkeypatch):
  monkeypatch.setattr(malloc, 'huge_pages', lambda: pytest.fail('asked'))
  bench.prepare_memory([])
