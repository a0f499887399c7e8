"""A run of some minutes: how many steps it finds room for, and that all of it has one schedule."""

import re
import subprocess
import types
from typing import Any

import pytest
from mutation import mutation
from processes import ROOT, command, environment, exact, finish, lines, steps_logged, wait_for
from systems import tiny

from bertjax.checkpoint import resume
from bertjax.errors import UserError
from bertjax.machine import hosts
from bertjax.train import facts as facts_lib
from bertjax.train import first_state, pace, resolve
from bertjax.train.facts import Facts


def resolved(config, *given, **facts):
  spec = resolve.resolve(config, Facts(given, **facts))
  return spec.said, spec.config.total_steps, spec.config.minutes


def test_total_steps_of_the_command_line_stand():
  c, said = tiny('quickstart', minutes=3.0), 'config.total_steps=100, as given, and not 3 minutes'
  assert resolved(c, 'total_steps') == ((said,), 100, 0.0)
  assert resolved(c, 'batch_size') == ((), 100, 3.0) and c.minutes == 3


@mutation("if 'share' not in phase", 'if False', case='xlm-more0-phases.clm')
@pytest.mark.parametrize(
  ('name', 'more', 'key'), [('xlm', {}, 'phases.clm'), ('roberta', {'epochs': 2.0}, 'epochs')]
)
def test_minutes_of_steps_that_have_no_share_are_refused(name, more, key):
  with pytest.raises(UserError, match=f'config.minutes=1 .* there are config.{key}: leave it at 0'):
    resolved(tiny(name, minutes=1.0, **more))


@mutation('    config.total_steps = facts.steps\n', '    pass\n')
def test_a_run_that_has_begun_keeps_its_steps(tmp_path):
  c = tiny('quickstart', minutes=1.0)
  said = 'config.total_steps=77, as this run found when it began'
  assert resolved(c, steps=77) == ((said,), 77, 1.0)
  assert resolved(c) == ((), 100, 1.0)
  assert resolved(tiny('quickstart'), steps=77) == ((), 100, 0.0)
  resume.claim_workdir(tmp_path, tiny('quickstart', total_steps=77, minutes=1.0), {})
  assert facts_lib.recalled(resume.stored(tmp_path), tmp_path).steps == 77


@mutation('60 * minutes', 'minutes')
@mutation('share(steps) * _seconds', '_seconds')
@mutation("max(map(float, hosts.gather('pace', repr(mine))))", 'mine')
def test_the_slowest_host_says_how_many_steps_there_is_room_for(monkeypatch):
  clock, slow = [0.0], [9.0] * pace.WARMUP

  def train(state, batch):
    clock[0] += slow.pop() if slow else 0.25
    return state + batch, {}

  phase = types.SimpleNamespace(
    name='main', compile=lambda abstract: None, next_batch=lambda index: (1, {}), train=train
  )
  monkeypatch.setattr(first_state, 'seeded_state', lambda run: 0)
  monkeypatch.setattr(pace.time, 'perf_counter', lambda: clock[0])
  minutes = types.SimpleNamespace(minutes=2.0)
  opened: Any = types.SimpleNamespace(
    phases=[phase], timeline=types.SimpleNamespace(lengths=(7,)), abstract=None, config=minutes
  )
  said = []
  assert pace.measure(opened, said.append) == 480
  assert said[1] == '250 ms a step: config.total_steps=480'
  monkeypatch.setattr(hosts, 'gather', lambda name, mine, *rest: [mine, '0.5'])
  slow += [9.0] * pace.WARMUP
  assert pace.measure(opened, said.append) == 240
  long = types.SimpleNamespace(
    **vars(phase) | dict(train=lambda *given: train(*train(*given)[:1], 0))
  )
  opened.phases.append(long)
  opened.timeline.lengths = (3, 1)
  monkeypatch.setattr(hosts, 'gather', lambda name, mine, *rest: [mine])
  assert pace.measure(opened, said.append) == round(120 / (0.75 * 0.25 + 0.25 * 0.5))


@pytest.mark.full
@mutation('spec = resolve.resolve(spec.given, spec.facts._replace(steps=steps))', 'pass')
def test_a_killed_run_of_minutes_goes_on_with_its_schedule(rich_store, tmp_path):
  config, quick = 'roberta.py:test', '--config.minutes=0.01'
  timed = [x for x in command(rich_store, tmp_path / 'run', quick, config=config)
           if 'total_steps' not in x]  # fmt: skip
  own = dict(cwd=ROOT, env=environment(), text=True)
  with subprocess.Popen(timed, **own, stdout=subprocess.PIPE) as process:
    wait_for(lambda: steps_logged(tmp_path / 'run') >= 8, process)
    process.kill()
    said = process.stdout.read()
  steps = int(re.search(r'ms a step: config.total_steps=(\d+)', said).group(1))
  done = subprocess.run(timed, **own, capture_output=True, check=True)
  assert f'config.total_steps={steps}, as this run found when it began' in done.stdout
  assert 'Timing' not in done.stdout
  assert lines(tmp_path / 'run')[-1]['step'] == steps
  finish(rich_store, tmp_path / 'given', f'--config.total_steps={steps}', config=config)
  assert exact(tmp_path / 'run') == exact(tmp_path / 'given')
