"""The recurrence bench: its sweep, and its JSON line with the losses of a run's held-out text."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from mutation import mutation

from bertjax.bench.parts import recurrence_time


def sweep_of(monkeypatch, rates, limit=1000):
  """The sweep where 1, 2, 4 .. rows predict so many tokens per second, 5 tokens a row and call."""
  called = zip((2**i for i in itertools.count()), rates, strict=False)
  alternate = lambda arms, calls, warmup: dict(arm=np.full(3, arms['arm']()))
  monkeypatch.setattr(recurrence_time.timing, 'alternate', alternate)

  def make(rows):
    expected, rate = next(called)
    assert rows == expected
    return lambda: rows * 5 / rate

  return recurrence_time.sweep(make, 5, limit)


@mutation(
  'bench recurrence: the sweep ends at the first that is slower',
  'bertjax/bench/parts/recurrence_time.py',
  'slower < 2:',
  'slower < 1:',
)
def test_the_sweep_ends_after_two_that_are_slower(monkeypatch):
  assert sweep_of(monkeypatch, [10, 8, 30, 20, 25, 90]) == {1: 10, 2: 8, 4: 30, 8: 20, 16: 25}


def test_the_sweep_ends_at_its_limit_but_tries_one_row(monkeypatch):
  assert list(sweep_of(monkeypatch, [1, 2, 3, 4], 7)) == [1, 2, 4]
  assert list(sweep_of(monkeypatch, [1, 2, 3, 4], 0)) == [1]


@pytest.mark.full
def test_a_run_is_scored_with_each_memory(tmp_path):
  text = tmp_path / 'text.txt'
  lines = [f'{"ab" * i} bba {i}.\nc' * 9 for i in range(80)]
  text.write_text('\n\n'.join(lines))
  (tmp_path / 'held_out.txt').write_text('\n\n'.join(lines[::9]))
  run = tmp_path / 'run'

  def say(command):
    done = subprocess.run(
      [sys.executable, '-m', *command.split()], capture_output=True, text=True, check=True
    )
    return done.stdout

  say(f'bertjax.vocab --input={text} --type=characters --size=300 --output={tmp_path}/vocab')
  flags = (
    f'--config=configs/transformer_xl.py:test --config.data.input={text} '
    f'--config.data.vocab={tmp_path}/vocab --config.total_steps=20 --workdir={run} '
    f'--config.data.heldout={tmp_path}/held_out.txt '
    '--config.objective.unit=character --config.evals.held_out.model.same_length=False'
  )
  say(f'bertjax.main {flags}')
  scores = json.loads(say(f'bertjax.main {flags} --evaluate').splitlines()[-1])
  bench = '--lengths=32 --segment=16 --keys=64 --calls=2 --samples=2'
  found = json.loads(
    say(f'bertjax.bench recurrence {flags} {bench} --plot={run}/ratio.png').splitlines()[-1]
  )
  assert (run / 'ratio.png').stat().st_size > 1000
  each = {row['memory']: row for row in found['by_memory']}
  assert list(each) == [0, 16, 32, 48, 64]
  # config.eval has a memory of 64 places. The loss with 48 differs by 2e-6 of it.
  np.testing.assert_allclose(each[64]['lm'], scores['eval/lm'], rtol=3e-7)
  assert each[64]['bits_per_character'] == pytest.approx(each[64]['lm'] / np.log(2))
  length = found['lengths'][0]
  assert list(length['ratio']) == ['windows', 'dense', 'absolute']
  for arm, ratio in length['ratio'].items():
    rates = [length[name]['tokens_per_second'] for name in ('cached', arm)]
    np.testing.assert_allclose(ratio, rates[0] / rates[1], rtol=0.1)
