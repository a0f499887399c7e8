"""Goodput over restarts: kept steps, redone steps, stalls and the time away."""

import json

import pytest
from mutation import mutation

from bertjax.metrics import goodput


def start(began, last, step, done, **seconds):
  return dict(began=began, last=last, step=step, done=done, seconds=seconds)


def test_one_start_that_is_not_disturbed():
  found = goodput.total([start(100.0, 200.0, 0, 50, compute=80.0, input=5.0, eval=0.0)])
  assert found == (1, 100.0, 80.0, 0.0, 0, {'input': 5.0, 'eval': 0.0}, 15.0)
  assert '80.0 % of 1:40 over 1 start' in found.lines()[0]
  assert 'input 5.0 s;' in found.lines()[1] and 'eval' not in found.lines()[1]


@mutation('lost = min(steps, start[', 'lost = 0 * min(steps, start[')
def test_a_kill_makes_steps_redone_and_time_away():
  found = goodput.total([
    start(0.0, 100.0, 0, 40, compute=80.0, checkpoint=10.0),  # its last checkpoint was of step 30
    start(150.0, 250.0, 30, 60, compute=90.0),
  ])  # fmt: skip
  assert found.steps_redone == 10 and found.redone == pytest.approx(20.0)
  assert found.productive == pytest.approx(60.0 + 90.0)
  assert found.stalls == {'checkpoint': 10.0}
  assert found.away == pytest.approx(250 - 150 - 20 - 10)


def test_a_run_that_goes_back_behind_two_starts():
  found = goodput.total([
    start(0.0, 10.0, 0, 10, compute=10.0),
    start(10.0, 20.0, 10, 20, compute=10.0),
    start(20.0, 45.0, 5, 30, compute=25.0),  # both checkpoints between were damaged
  ])  # fmt: skip
  assert found.steps_redone == 15 and found.redone == pytest.approx(15.0)
  assert found.productive == pytest.approx(30.0)


@mutation("f'{max(numbers, default=0) + 1:05}.json'", "'00001.json'")
def test_each_start_has_its_file(tmp_path):
  said = []
  for step in (0, 4):
    record = goodput.Record(tmp_path, step, said.append)
    record.update(step + 3, {'loss': 1.0, 'time/compute': 0.5, 'time/input': 0.25})
    record.update(step + 6, {'time/compute': 0.5})
  rows = [json.loads(p.read_text()) for p in sorted((tmp_path / 'starts').glob('*.json'))]
  assert [(row['step'], row['done']) for row in rows] == [(0, 6), (4, 10)]
  assert rows[0]['seconds'] == {'compute': 1.0, 'input': 0.25}
  assert rows[0]['began'] < rows[0]['last'] <= rows[1]['last']
  found = goodput.read(tmp_path)
  assert found is not None and found.steps_redone == 2 and not said
  assert goodput.read(tmp_path / 'none') is None


@pytest.mark.parametrize('torn', ['', '{"began": 1', '{}', '[]', '\0\0'])
@mutation(
  '    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:',
  '    except FileNotFoundError as error:',
)
def test_a_torn_file_is_left_out(tmp_path, torn):
  """A power cut may leave one, and nothing that is for people alone ends a run."""
  (tmp_path / 'starts').mkdir()
  (tmp_path / 'starts/00001.json').write_text(torn)
  assert goodput.read(tmp_path) is None
  whole = start(0.0, 10.0, 0, 4, compute=5.0)
  (tmp_path / 'starts/00002.json').write_text(json.dumps(whole))
  assert goodput.read(tmp_path) == goodput.total([whole])
