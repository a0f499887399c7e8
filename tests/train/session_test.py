"""How a run ends: what cannot be sent any more is said, and an error of ours is not."""

import types

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.train import loop


@pytest.mark.parametrize('error', [UserError('gs://b: gone'), OSError(28, 'full'), KeyError('run')])
@mutation('except (UserError, OSError) as error:', 'except Exception as error:')
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
      loop.Session._send(run)
  else:
    loop.Session._send(run)
    assert 'is in runs/a alone' in said[0]
