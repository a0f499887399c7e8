"""What a run logs: exact, and cut back on resume."""

import json
import time

import jax
import numpy as np
import pytest
from mutation import mutation
from slow_imports import event_pb2

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


@pytest.mark.parametrize(
  'resume_step, torn', [(0, ''), (25, '{"step": 60, "lo'), (30, '{"step": 60, "lo'), (100, '')]
)
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
  'line',
  ['{"step": 20, "lo', '[]', '{}', '\xff\xfe', '', '{"step": "44"}', '{"step": 4.0}'],
)
@mutation('(ValueError, KeyError, TypeError)', 'ZeroDivisionError', file='bertjax/metrics/lines.py')
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


@mutation("hashlib.sha256(b''.join(own)).hexdigest() == saved['sha256", "len(own) == saved['lines")
@mutation(' and not {*more} & {*own}', '')
@pytest.mark.parametrize(
  'change, got',
  [
    (None, 0),
    (lambda rows: [], 0),
    (lambda rows: rows[:7], 7),
    (lambda rows: [*rows[:7], rows[7][:9]], 7),  # cut within a line
    (without(12), 21),  # the scores of step 10
    (without(22), 21),  # of step 20, the last line of the checkpoint
    (lambda rows: [*rows[:22], rows[21], *rows[22:]], 23),
    (lambda rows: [*rows[:22], rows[3], *rows[22:]], 23),
    (lambda rows: [*rows[:4], rows[4].replace(b'"step": 4', b'"step": 44'), *rows[5:]], 21),
    (lambda rows: [*rows[:4], rows[4].replace(b'0.25', b'0.26'), *rows[5:]], 22),
    (lambda rows: [rows[1], rows[0], *rows[2:]], 22),
  ],
)
def test_lines_that_vanished_or_changed_are_said_at_the_next_start(tmp_path, caplog, change, got):
  saved = logged(tmp_path)
  path = tmp_path / 'metrics.jsonl'
  rows = path.read_bytes().splitlines(keepends=True)
  path.unlink()
  if change is not None:
    path.write_bytes(b''.join(change(rows)))
  metrics_writer.Writer(tmp_path, 20, saved=saved).close()
  expected = f'{path}: expected the 22 lines that were written until step 20, got {got}: some were '
  assert caplog.messages == [expected + 'removed or changed; the run goes on']
  # It is said once: the next checkpoint counts what there is.
  writer = metrics_writer.Writer(tmp_path, 20)
  writer.write(21, {'loss': 1.0})
  saved = writer.sync(21)
  writer.close()
  metrics_writer.Writer(tmp_path, 21, saved=saved).close()
  assert len(caplog.messages) == 1


@mutation('self._since = self._since[len(kept) :]', 'self._since = []')
def test_what_a_kill_leaves_is_not_said(tmp_path, caplog):
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
  assert none['lines'] == 0 and not caplog.messages


def test_other_processes_write_nothing(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(jax, 'process_index', lambda: 1)
  write(tmp_path / 'run', 0, [1])
  progress = progress_lib.Progress(10)
  progress.note('hello')
  progress.update(1, dict(loss=1.0, tokens_per_second=1.0))
  progress.close()
  assert not (tmp_path / 'run').exists() and capsys.readouterr().out == ''
