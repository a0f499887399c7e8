"""Logs: exact, cut back on resume, honest about time; the ledger, the curves."""

import errno
import json
import os
import sys
import time

import jax
import numpy as np
import pytest
from mutation import mutation
from slow_imports import event_pb2

from bertjax.metrics import curves, interval, ledger
from bertjax.metrics import lines as lines_lib
from bertjax.metrics import progress as progress_lib
from bertjax.metrics import writer as metrics_writer

mutation("row['step'] < step or row['step'] == step", "row['step'] or row['step'] == step")


def lines(workdir):
  return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


def write(workdir, resume_step, steps, value=lambda step: 0.5 * step):
  writer = metrics_writer.Writer(workdir, resume_step)
  for step in steps:
    writer.write(step, {'loss': value(step)})
  writer.close()


def test_floats_read_back_bit_for_bit(tmp_path):
  bits = np.random.default_rng(0).integers(0, 2**32, 500, np.uint32)
  values = bits.view(np.float32)
  values = values[np.isfinite(values)]
  write(tmp_path, 0, range(len(values)), lambda step: values[step])
  got = np.array([row['loss'] for row in lines(tmp_path)], np.float32)
  np.testing.assert_array_equal(got.view(np.uint32), values.view(np.uint32))
  write(tmp_path, len(values), [9999], lambda step: 0.1 + 0.2)
  assert lines(tmp_path)[-1] == {'step': 9999, 'loss': 0.1 + 0.2}


@mutation("name.startswith('eval/') or name == CHANGED", "name.startswith('eval/')")
def test_what_changed_after_a_checkpoint_is_written_again(tmp_path):
  write(tmp_path, 0, [1, 2])
  for _ in range(2):  # the second resume is from the same checkpoint
    writer = metrics_writer.Writer(tmp_path, 2)
    writer.note(2, {metrics_writer.CHANGED: {'seed': {'old': 1, 'new': 'two'}}})
    writer.close()
  assert [row.get('changed') for row in lines(tmp_path)] == [
    None, None, {'seed': {'old': 1, 'new': 'two'}},
  ]  # fmt: skip


@pytest.mark.parametrize('resume_step', [0, 25, 30, 100])
@pytest.mark.parametrize('torn', ['', '{"step": 60, "lo'])
def test_a_resume_leaves_the_file_of_an_uninterrupted_run(tmp_path, resume_step, torn):
  straight, cut = tmp_path / 'straight', tmp_path / 'cut'
  write(straight, 0, range(10, 101, 10))
  write(cut, 0, range(10, 101, 10))
  with open(cut / 'metrics.jsonl', 'a') as file:
    file.write(torn)
  write(cut, resume_step, range(10 * (resume_step // 10) + 10, 101, 10))
  assert (cut / 'metrics.jsonl').read_bytes() == (straight / 'metrics.jsonl').read_bytes()
  assert not (cut / 'metrics.jsonl.tmp').exists()


@pytest.mark.parametrize(
  'line', ['{"step": 20, "lo', '[]', '{}', '{"step": "x"}', '\xff\xfe', '\0\0', '']
)
@mutation(
  'except (ValueError, KeyError, TypeError) as error:',
  'except ZeroDivisionError as error:',
  file='bertjax/metrics/lines.py',
)
def test_a_torn_line_in_the_middle_is_named(tmp_path, line):
  write(tmp_path, 0, [10, 20, 30])
  rows = (tmp_path / 'metrics.jsonl').read_bytes().splitlines()
  rows[1] = line.encode('latin-1')
  (tmp_path / 'metrics.jsonl').write_bytes(b'\n'.join(rows) + b'\n')
  for read in (lambda: write(tmp_path, 30, []), lambda: lines_lib.of_run(tmp_path)):
    with pytest.raises(ValueError, match='metrics.jsonl, line 2: expected a JSON object with a st'):
      read()


def events(workdir):
  """(tag, step, value) of all TensorBoard events, in the order of the files, with the purges."""
  found = []
  for path in sorted((workdir / 'tensorboard').iterdir()):
    data, at = path.read_bytes(), 0
    while at < len(data):
      size = int.from_bytes(data[at : at + 8], 'little')
      event = event_pb2.Event.FromString(data[at + 12 : at + 12 + size])
      at += 12 + size + 4
      if event.HasField('session_log'):
        found.append(('purge', event.step, None))
      found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
  return found


def test_lines_of_the_restored_step_stay_and_its_scores_are_to_be_written_again(tmp_path):
  writer = metrics_writer.Writer(tmp_path, 0)
  for step in (1, 2, 2, 3):
    writer.write(step, {'loss': 1.0})
    writer.write(step, {'eval/mlm': 1.0, 'eval/next': 2.0})
  writer.close()
  write(tmp_path, 2, [])
  rows = [(row['step'], 'loss' in row) for row in lines(tmp_path)]
  assert rows == [(1, 1), (1, 0), (2, 1), (2, 1)]


def test_tensorboard_gets_the_same_names_and_forgets_what_a_resume_takes_back(tmp_path):
  write(tmp_path, 0, [10, 20, 30])
  time.sleep(1.1)  # the names of event files have seconds
  write(tmp_path, 20, [30])
  found = events(tmp_path)
  first = [('purge', 1, None), ('loss', 10, 5.0), ('loss', 20, 10.0), ('loss', 30, 15.0)]
  assert found == [*first, ('purge', 21, None), ('loss', 30, 15.0)]


def logged(workdir):
  """A run of 30 steps with a checkpoint after step 20, whose record of the lines is returned; a
  change of the config, scores after each tenth step, and lines after the checkpoint."""
  writer = metrics_writer.Writer(workdir, 0)
  writer.note(0, {metrics_writer.CHANGED: {'seed': {'old': 1, 'new': 2}}})
  saved = None
  for step in range(1, 31):
    writer.write(step, {'loss': 1 / step})
    if step == 20:
      saved = writer.sync(step)
    if step % 10 == 0:
      writer.write(step, {'eval/mlm': 2 / step})
  writer.close()
  return json.loads(json.dumps(saved))


def without(number):
  return lambda rows: rows[: number - 1] + rows[number:]


@mutation(
  "whole = hashlib.sha256(b''.join(own)).hexdigest() == saved['sha256']",
  "whole = len(own) == saved['lines']",
)
@mutation(' and not {*more} & {*own}', '')
@pytest.mark.parametrize(
  'change, got',
  [
    (None, 0),
    (lambda rows: [], 0),
    (lambda rows: rows[:7], 7),
    (lambda rows: [*rows[:7], rows[7][:9]], 7),  # cut within a line
    (without(1), 21),
    (without(12), 21),  # the scores of step 10
    (without(22), 21),  # of step 20, the last line of the checkpoint
    (lambda rows: [*rows[:5], rows[4], *rows[5:]], 23),
    (lambda rows: [*rows[:22], rows[21], *rows[22:]], 23),
    (lambda rows: [*rows[:22], rows[3], *rows[22:]], 23),
    (lambda rows: [*rows[:4], rows[4].replace(b'"step": 4', b'"step": 44'), *rows[5:]], 21),
    (lambda rows: [*rows[:4], rows[4].replace(b'"step": 4', b'"step": 3'), *rows[5:]], 22),
    (lambda rows: [*rows[:4], rows[4].replace(b'0.25', b'0.26'), *rows[5:]], 22),
    (lambda rows: [rows[1], rows[0], *rows[2:]], 22),
  ],
)
def test_lines_that_vanished_or_changed_are_said_at_the_next_start(
  tmp_path, monkeypatch, change, got
):
  saved, said = logged(tmp_path), []
  monkeypatch.setattr(metrics_writer.logging, 'warning', lambda text, *of: said.append(text % of))
  path = tmp_path / 'metrics.jsonl'
  rows = path.read_bytes().splitlines(keepends=True)
  path.unlink()
  if change is not None:
    path.write_bytes(b''.join(change(rows)))
  metrics_writer.Writer(tmp_path, 20, saved=saved).close()
  expected = f'{path}: expected the 22 lines that were written until step 20, got {got}: some were '
  assert said == [expected + 'removed or changed; the run goes on']
  # It is said once: the next checkpoint counts what there is.
  writer = metrics_writer.Writer(tmp_path, 20)
  writer.write(21, {'loss': 1.0})
  saved = writer.sync(21)
  writer.close()
  metrics_writer.Writer(tmp_path, 21, saved=saved).close()
  assert len(said) == 1


@pytest.mark.parametrize('number', ['"44"', '4.0', 'null', '[4]'])
def test_a_step_that_is_no_whole_number_is_named(tmp_path, number):
  logged(tmp_path)
  path = tmp_path / 'metrics.jsonl'
  path.write_bytes(path.read_bytes().replace(b'"step": 4,', f'"step": {number},'.encode()))
  with pytest.raises(ValueError, match='metrics.jsonl, line 5: expected a JSON object with a st'):
    metrics_writer.Writer(tmp_path, 20)


@mutation('self._since = self._since[len(kept) :]', 'self._since = []')
def test_what_a_kill_leaves_is_not_said(tmp_path, monkeypatch):
  said = []
  monkeypatch.setattr(metrics_writer.logging, 'warning', lambda *of: said.append(of))
  saved = logged(tmp_path)
  path = tmp_path / 'metrics.jsonl'
  rows = path.read_bytes().splitlines(keepends=True)
  for count in range(22, len(rows) + 1):  # at any moment after the checkpoint
    for torn in (b'', b'{"step": 2'):
      path.write_bytes(b''.join(rows[:count]) + torn)
      metrics_writer.Writer(tmp_path, 20, saved=saved).close()
  # Early stopping logs the last step behind its checkpoint; older checkpoints say nothing.
  path.write_bytes(b''.join([*rows[:22], b'{"step": 20, "loss": 0.125}\n']))
  metrics_writer.Writer(tmp_path, 20, saved=saved).close()
  path.unlink()
  metrics_writer.Writer(tmp_path, 20).close()
  # The next checkpoint counts the scores of the last one, and its own come behind it, even where an
  # error has it saved after them.
  writer = metrics_writer.Writer(tmp_path / 'next', 0)
  for step in (1, 2):
    writer.write(step, {'loss': 1.0})
    counted = writer.sync(step)
    writer.write(step, {'eval/mlm': 2.0})
  assert counted['lines'] == 3 and writer.sync(2) == counted
  writer.write(3, {'loss': 1.0})
  last = writer.sync(3)
  writer.close()
  for step, saved in ((3, last), (2, counted)):
    metrics_writer.Writer(tmp_path / 'next', step, saved=saved).close()
  assert last['lines'] == 5
  # A checkpoint before the first line counts none, whether the file is there or not.
  writer = metrics_writer.Writer(tmp_path / 'quiet', 0)
  none = writer.sync(1)
  writer.close()
  metrics_writer.Writer(tmp_path / 'quiet', 1, saved=none).close()
  (tmp_path / 'quiet' / 'metrics.jsonl').unlink()
  metrics_writer.Writer(tmp_path / 'quiet', 1, saved=none).close()
  assert none['lines'] == 0 and said == []


def test_other_processes_write_nothing(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(jax, 'process_index', lambda: 1)
  write(tmp_path / 'run', 0, [1])
  progress = progress_lib.Progress(10)
  progress.note('hello')
  progress.update(1, dict(loss=1.0, tokens_per_second=1.0))
  progress.close()
  assert not (tmp_path / 'run').exists() and capsys.readouterr().out == ''


class Gone:
  """A stream that can no longer be written to."""

  def __init__(self, number):
    self.number = number

  def write(self, text):
    raise OSError(self.number, os.strerror(self.number))

  flush = lambda self: self.write('')


@mutation('    if error.errno != errno.EIO:\n', '    if True:\n')
def test_a_terminal_that_was_closed_costs_a_run_nothing(monkeypatch):
  progress = progress_lib.Progress(10)
  monkeypatch.setattr(sys, 'stdout', Gone(errno.EIO))
  progress.note('hello')
  progress.step(2, 1.0)
  progress.update(5, dict(loss=1.0, tokens_per_second=1.0))
  progress.close()
  monkeypatch.setattr(sys, 'stdout', Gone(errno.EPIPE))  # `| head` ends it as a shell would
  with pytest.raises(BrokenPipeError):
    progress.note('hello')


def test_plain_lines_where_there_is_no_terminal(capsys, monkeypatch):
  clock = iter([0.0, 1.5, 10.0, 20.0])
  monkeypatch.setattr(progress_lib.time, 'perf_counter', lambda: next(clock))
  progress = progress_lib.Progress(1000)
  progress.note('Creating [bold] mesh')
  scalars = {'loss': 2.0, 'mlm_accuracy': 0.25, 'tokens_per_second': 12345.6}
  progress.update(100, scalars | {'time/compute': 9.0, 'time/input': 0.1})
  progress.update(200, scalars | {'time/compute': 5.0, 'time/input': 5.0})
  progress.close()
  assert capsys.readouterr().out.splitlines() == [
    '[    1.5 s] Creating [bold] mesh',
    'step 100/1,000  loss 2.0000  mlm_accuracy 0.250  12,346 tokens/s  ETA -',
    'step 200/1,000  loss 2.0000  mlm_accuracy 0.250  12,346 tokens/s  ETA 1:20  input-bound',
  ]


@pytest.fixture
def sleep(monkeypatch):
  """Moves the ledger's clock on."""
  now = [100.0]
  monkeypatch.setattr(ledger, 'perf_counter', lambda: now[0])

  def move(seconds):
    now[0] += seconds

  return move


def count(book, flops=0.0):
  book.count(dict(real=300, padding=20, predicted=45, dropped=1), flops)


def test_the_parts_add_up_to_the_wall_time(sleep):
  book = ledger.Ledger(jax.devices())
  parts = dict(compute=5.0, input=1.0, checkpoint=2.0, eval=0.0, compile=20.0)
  for part, seconds in parts.items():
    with book.time(part):
      sleep(seconds)
  with book.time('compute'):
    sleep(1.0)
  sleep(3.0)
  count(book)
  got = book.interval()
  expected = dict(parts, compute=6.0, other=3.0)
  assert {part: got[f'time/{part}'] for part in ledger.PARTS} == expected
  assert got['tokens_per_second'] == 300 / (6 + 1 + 3)  # real ones, while training
  assert [got[f'tokens/{kind}'] for kind in ledger.KINDS] == [300, 20, 45, 1]
  assert all(type(value) is float for value in got.values())
  assert 'mfu' not in got  # nobody knows the peak of this CPU
  sleep(2.0)
  got = book.interval()  # which starts empty
  assert got.pop('time/other') == 2.0 and got.pop('tokens/total') == 300
  assert set(got.values()) == {0.0}


def test_a_slow_reader_flips_the_verdict(sleep):
  def of(input_s):
    book = ledger.Ledger(jax.devices())
    with book.time('compute'):
      sleep(10.0)
    with book.time('input'):
      sleep(input_s)
    got = book.interval()
    return progress_lib.verdict({part: got[f'time/{part}'] for part in ledger.PARTS})

  assert of(1.0) == 'compute-bound'
  assert of(1.2) == 'input-bound'


def test_mfu_is_flops_over_the_peak_of_all_devices(monkeypatch, sleep):
  monkeypatch.setattr(ledger, 'PEAK_FLOPS', {'cpu': 1e6})
  book = ledger.Ledger(jax.devices())
  count(book, flops=2e5)
  count(book, flops=2e5)
  with book.time('compute'):
    sleep(0.5)
  with book.time('compile'):
    sleep(50.0)
  assert book.interval()['mfu'] == pytest.approx(4e5 / (0.5 * 1e6 * jax.device_count()))


def test_counts_are_summed_over_hosts_exactly(monkeypatch, sleep):
  def gather(own):
    assert own.dtype == np.uint32  # anything wider would be rounded on the way
    return np.stack([own, own])

  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  monkeypatch.setattr(ledger.multihost_utils, 'process_allgather', gather)
  book = ledger.Ledger(jax.devices())
  book.count(dict(real=2**40 + 1, padding=0, predicted=3, dropped=0), 1e15)
  sleep(1.0)
  assert book.interval()['tokens/real'] == 2.0 * (2**40 + 1)


@mutation(
  '    self._close()\n    seconds = dict(self._total_seconds)',
  '    seconds = dict(self._total_seconds)',
  file='bertjax/metrics/ledger.py',
)
def test_the_summary_has_what_came_after_the_last_line(capsys, sleep):
  """The last evaluation and the last checkpoint."""
  book = ledger.Ledger(jax.devices())
  count(book)
  with book.time('compute'):
    sleep(5.0)
  book.interval()
  with book.time('eval'):
    sleep(20.0)
  sleep(1.0)
  book.print_summary()
  out = capsys.readouterr().out
  assert '26.0 s, eval-bound' in out and ' 50 ' in out  # 300 tokens in 6 s


@mutation("self._ever, self._before = dict(saved['total']), dict(saved['open'])", 'pass')
def test_totals_and_what_was_not_logged_go_on_after_a_restart(sleep):
  book = ledger.Ledger(jax.devices())
  count(book, flops=2e5)
  sleep(1.0)
  assert book.interval()['flops/total'] == 2e5
  count(book, flops=1e5)
  book = ledger.Ledger(jax.devices(), json.loads(json.dumps(book.state())))
  count(book, flops=1e5)
  sleep(10.0)
  got = book.interval()
  assert (got['tokens/real'], got['tokens/total'], got['flops/total']) == (600, 900, 4e5)
  assert got['tokens_per_second'] == 30.0  # of this process alone


def steps(seed, phase='main'):
  """What some train steps return."""
  rng = np.random.default_rng(seed)
  for _ in range(7):
    loss, norm, total, weight = rng.random(4, np.float32)
    sums = dict(mlm=(total, weight), histogram=(rng.random((2, 3), np.float32), weight))
    yield phase, dict(loss=loss, grad_norm=norm, lr=np.float32(0.5), sums=sums)


def finish(sums):
  return dict(mlm=float(sums['mlm'][0] / sums['mlm'][1]), top=float(sums['histogram'][0].max()))


@mutation('self._of[name] += float(found[name])', 'self._of[name] = float(found[name])')
def test_training_metrics_are_means_over_the_interval():
  book = interval.Interval()
  found = list(steps(1))
  for phase, step in found:
    book.add(phase, step)
  got = book.close(dict(main=finish), interleaved=False)
  mean = lambda key: np.mean([step[key] for _, step in found], dtype=np.float64)
  assert got['loss'] == pytest.approx(mean('loss')) and got['grad_norm'] == mean('grad_norm')
  totals, weights = zip(*(step['sums']['mlm'] for _, step in found), strict=True)
  assert got['mlm'] == pytest.approx(sum(map(float, totals)) / sum(map(float, weights)))
  book.add(*found[3])
  assert book.close(dict(main=finish), False)['loss'] == float(found[3][1]['loss'])


@pytest.mark.parametrize('cut', [0, 3, 7])
def test_sums_that_were_saved_go_on_bit_for_bit(monkeypatch, cut):
  monkeypatch.setattr(interval, 'AT_ONCE', 2)
  straight, before = interval.Interval(), interval.Interval()
  found = list(steps(2))
  for step in found:
    straight.add(*step)
  for step in found[:cut]:
    before.add(*step)
  after = interval.Interval(json.loads(json.dumps(before.state())))
  for step in found[cut:]:
    after.add(*step)
  assert after.close(dict(main=finish), False) == straight.close(dict(main=finish), False)


def test_phases_that_take_turns_have_metrics_of_their_own():
  book = interval.Interval()
  for step in (*steps(1, 'clm'), *steps(2, 'tlm')):
    book.add(*step)
  got = book.close(dict(clm=finish, mlm=finish, tlm=finish), interleaved=True)
  assert set(got) == {'loss', 'grad_norm', 'lr', 'clm/mlm', 'clm/top', 'tlm/mlm', 'tlm/top'}


def run_with_metrics(workdir, offset=0.0):
  writer = metrics_writer.Writer(workdir, 0)
  for step in range(1, 41):
    scalars = dict(loss=offset + 9 / step, lr=1e-3 / step, tokens_per_second=1e4)
    writer.write(step, scalars | ({'eval/mlm_masked': 6.0} if step % 10 == 0 else {}))
  writer.close()
  return workdir


def test_curves_of_one_run_and_of_several(tmp_path, monkeypatch):
  one, two = run_with_metrics(tmp_path / 'one'), run_with_metrics(tmp_path / 'two', 1.0)
  assert curves.plot([one]) == one / 'curves.png'
  assert (one / 'curves.png').read_bytes().startswith(b'\x89PNG')
  monkeypatch.chdir(tmp_path)
  assert curves.plot([one, two]).resolve() == tmp_path / 'curves.png'
  assert curves.plot([one, two], tmp_path / 'both.png').exists()
  assert (tmp_path / 'both.png').read_bytes() != (one / 'curves.png').read_bytes()
  steps, values = curves.series(curves.read(one), 'eval/mlm_masked')
  assert steps == [10, 20, 30, 40] and values == [6.0] * 4
