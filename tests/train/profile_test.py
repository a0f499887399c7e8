"""The window that is traced."""

import types

import jax
from mutation import mutation

from bertjax.train.watch import profile


@mutation('0 <= done - self._window.start < self._window.steps', 'done == self._window.start')
def test_a_window_of_the_profile_is_traced_wherever_the_run_begins_and_ends(monkeypatch, tmp_path):
  calls = []
  monkeypatch.setattr(jax.profiler, 'start_trace', lambda path: calls.append('start'))
  monkeypatch.setattr(jax.profiler, 'stop_trace', lambda: calls.append('stop'))
  window = types.SimpleNamespace(start=100, steps=10)
  for steps, closes, want in (
    (range(98, 113), False, ['start', 'stop']),
    (range(106, 113), False, ['start', 'stop']),  # of a resume
    (range(98, 105), True, ['start', 'stop']),  # the run ends
    (range(110, 113), True, []),
  ):
    calls.clear()
    traced = profile.Profile(window, str(tmp_path))
    for done in steps:
      traced.before(done)
      assert (calls[-1:] == ['start']) == (100 <= done < 110)
    if closes:
      traced.close()
    assert calls == want
