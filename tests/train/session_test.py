"""How a run ends: what cannot be sent any more is said, and an error of ours is not."""

import types

import jax
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.train import session


@pytest.mark.parametrize('error', [UserError('gs://b: gone'), OSError(28, 'full'), KeyError('run')])
@mutation(
  'session: an error of ours is shown as one of the service',
  'bertjax/train/session.py',
  'except (UserError, OSError) as error:',
  'except Exception as error:',
)
def test_what_cannot_be_sent_is_said_and_an_error_of_ours_is_raised(error):
  def send():
    raise error

  said: list[str] = []
  run = types.SimpleNamespace(
    _place=types.SimpleNamespace(send=send),
    _progress=types.SimpleNamespace(note=said.append),
    _workdir='runs/a',
  )
  if isinstance(error, KeyError):
    with pytest.raises(KeyError):
      session.Session._send(run)
  else:
    session.Session._send(run)
    assert 'is in runs/a alone' in said[0]


@mutation(
  'profile: a run that goes on in the window stops what it has not begun',
  'bertjax/train/session.py',
  'within = 0 <= done - self._window.start < self._window.steps',
  'within = done == self._window.start',
)
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
    profile = session.Profile(window, str(tmp_path))
    for done in steps:
      profile.step(done)
      assert (calls[-1:] == ['start']) == (100 <= done < 110)
    if closes:
      profile.close()
    assert calls == want
