"""A run that goes on over other devices and other processes reads the same batches."""

import signal

import numpy as np
import pytest
from processes import finish, lines, start, start_pair, steps_logged, wait_for

STEPS = 50
FLAGS = (f'--config.total_steps={STEPS}', '--config.eval_steps=1000')


@pytest.mark.full
def test_devices_and_processes_come_and_go(rich_store, tmp_path):
  """8, 4 and 1 devices, two processes of two, and 8 again; each but the last is stopped."""
  straight, workdir = tmp_path / 'straight', tmp_path / 'run'
  finish(rich_store, straight, *FLAGS, devices=8)
  until = 0
  for devices in (8, 4, 1, 'two processes'):
    until += 8
    if devices == 'two processes':
      running = start_pair(rich_store, workdir, *FLAGS)
    else:
      running = [start(rich_store, workdir, *FLAGS, devices=devices)]
    wait_for(lambda goal=until: steps_logged(workdir) >= goal, *running)
    running[-1].send_signal(signal.SIGTERM)
    assert [p.wait(120) for p in running] == [0] * len(running)
  assert steps_logged(workdir) < STEPS
  finish(rich_store, workdir, *FLAGS, devices=8)
  found, wanted = ([x for x in lines(w) if 'loss' in x] for w in (workdir, straight))
  assert [x['step'] for x in found] == [*range(1, STEPS + 1)]
  np.testing.assert_allclose([x['loss'] for x in found], [x['loss'] for x in wanted], rtol=1e-5)
  # The rows are the same to the bit: what is counted of them is.
  assert [x['tokens/real'] for x in found] == [x['tokens/real'] for x in wanted]
