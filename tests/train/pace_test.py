"""A run of some minutes: how many steps it finds room for, and that all of it has one schedule."""

import json
import re
import subprocess
import types

import pytest
from mutation import mutation
from processes import ROOT, command, environment, exact, lines, run, steps_logged, wait_for
from systems import tiny

from bertjax.checkpoint import resume
from bertjax.errors import UserError
from bertjax.machine import hosts
from bertjax.train import first_state, pace


def begun(workdir, **config):
  (workdir / resume.NAME).write_text(
    json.dumps(dict(format=resume.FORMAT, config=config, given={}))
  )


def test_total_steps_of_the_command_line_stand():
  c = tiny('quickstart', minutes=3.0)
  assert pace.check(c, {'total_steps'}) == ['config.total_steps=100, as given, and not 3 minutes']
  assert c.minutes == 0 and c.total_steps == 100
  c.minutes = 2.0
  assert pace.check(c, {'batch_size'}) == [] and c.minutes == 2


@pytest.mark.parametrize(
  ('name', 'more', 'key'), [('bert', {}, 'phases'), ('roberta', {'epochs': 2.0}, 'epochs')]
)
def test_minutes_of_steps_that_are_not_alike_are_refused(name, more, key):
  with pytest.raises(UserError, match=f'config.minutes=1 .* there are config.{key}: leave it at 0'):
    pace.check(tiny(name, minutes=1.0, **more), ())


@mutation(
  'pace: a run that goes on times its steps again',
  'bertjax/train/pace.py',
  "config.total_steps = stored['config']['total_steps']",
  'pass',
)
def test_a_run_that_has_begun_keeps_its_steps(tmp_path):
  c = tiny('quickstart', minutes=1.0)
  assert pace.recall(c, str(tmp_path)) == [] and c.total_steps == 100
  begun(tmp_path, total_steps=77)
  assert pace.recall(c, str(tmp_path)) == ['config.total_steps=77, as this run found when it began']
  assert c.total_steps == 77
  c = tiny('quickstart')
  assert pace.recall(c, str(tmp_path)) == [] and c.total_steps == 100


@mutation(
  'pace: minutes are seconds',
  'bertjax/train/pace.py',
  '60 * config.minutes',
  'config.minutes',
)
@mutation(
  'pace: every host goes by itself',
  'bertjax/train/pace.py',
  "max(map(float, hosts.gather('pace', repr(_seconds(config, run)))))",
  '_seconds(config, run)',
)
def test_the_slowest_host_says_how_many_steps_there_is_room_for(monkeypatch):
  clock, slow = [0.0], [9.0] * pace.WARMUP

  def train(state, batch):
    clock[0] += slow.pop() if slow else 0.25
    return state + batch, {}

  phase = types.SimpleNamespace(
    compile=lambda abstract: None, next_batch=lambda index: (1, {}), train=train
  )
  monkeypatch.setattr(first_state, 'seeded_state', lambda config, run: 0)
  monkeypatch.setattr(pace.time, 'perf_counter', lambda: clock[0])
  opened = types.SimpleNamespace(phases=[phase], abstract=None)
  said = []
  assert pace.measure(tiny('quickstart', minutes=2.0), opened, said.append) == 480
  assert said[1] == '250 ms a step: config.total_steps=480'
  monkeypatch.setattr(hosts, 'gather', lambda name, mine, *rest: [mine, '0.5'])
  slow += [9.0] * pace.WARMUP
  assert pace.measure(tiny('quickstart', minutes=2.0), opened, said.append) == 240


@pytest.mark.full
@mutation(
  'pace: the schedule is as long as the config first said',
  'bertjax/train/opening.py',
  'run = setup.make_run(config, path, fallback=plans)',
  'pass',
)
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
  given = run(rich_store, tmp_path / 'given', f'--config.total_steps={steps}', config=config)
  assert given.returncode == 0, given.stderr
  assert exact(tmp_path / 'run') == exact(tmp_path / 'given')
