"""Where time and tokens went: the ledger, what people see of it, means over an interval, curves."""

import errno
import json
import os
import sys

import jax
import numpy as np
import pytest
import rich.console
from mutation import mutation

from bertjax.metrics import curves, interval, ledger
from bertjax.metrics import progress as progress_lib
from bertjax.metrics import writer as metrics_writer


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


@pytest.mark.parametrize('is_terminal', [True, False])
@mutation('  @to_the_screen()\n  def show(self, text', '  def show(self, text')
@mutation('    with to_the_screen():\n', '    if True:\n', case='True')
@mutation('  @to_the_screen()\n  def __exit__', '  def __exit__', case='True')
def test_a_terminal_that_was_closed_costs_a_pass_nothing(monkeypatch, is_terminal):
  monkeypatch.setattr(sys, 'stderr', Gone(errno.EIO))
  monkeypatch.setattr(progress_lib, '_SECONDS', -1.0)
  monkeypatch.setattr(rich.console.Console, 'is_terminal', is_terminal)
  with progress_lib.Bar('prepare') as bar:
    bar.show('10 documents', 0.5)


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


@mutation('now - said > _SECONDS', 'now - started > _SECONDS')
@mutation('      said, left = now, max(total', '      _, left = now, max(total')
def test_what_takes_long_says_how_far_it_is_every_ten_seconds(capsys, monkeypatch):
  times = iter([0.0, 0.0, 6.0, 12.0, 18.0, 24.0])
  monkeypatch.setattr(progress_lib.time, 'monotonic', lambda: next(times))
  progress = progress_lib.Progress(1000)
  assert list(progress_lib.passing('Timing', range(5), 5)) == list(range(5))
  said = [line.partition('] ')[2] for line in capsys.readouterr().out.splitlines()]
  assert said == ['Timing: 2 of 5, 0:18 left', 'Timing: 4 of 5, 0:06 left']
  progress.close()
  times = iter([0.0, 0.0, 60.0])
  assert list(progress_lib.passing('Timing', 'ab', 2)) == ['a', 'b']  # no run goes on
  assert not capsys.readouterr().out


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


@mutation('    self._close()\n    seconds = dict', '    seconds = dict')
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
  progress_lib.Progress(1).show(book.summary())
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
  assert (tmp_path / 'curves.png').read_bytes() != (one / 'curves.png').read_bytes()
  steps, values = curves.series(curves.read(one), 'eval/mlm_masked')
  assert steps == [10, 20, 30, 40] and values == [6.0] * 4
