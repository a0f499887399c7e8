"""What tests of faults ask is asked to the bit, and of a process that ends."""

import subprocess

import pytest
from mutation import mutation

from tests.faults import bench


@mutation('  assert found == expected,', '  assert found,', file='tests/faults/bench.py')
def test_metrics_are_compared_to_the_bit(tmp_path):
  for name, loss in (('a', 1.0), ('b', 1.0), ('c', 1.0000001)):
    (tmp_path / name).mkdir()
    line = f'{{"step": 1, "loss": {loss}, "time/input": {hash(name)}}}\n'
    (tmp_path / name / 'metrics.jsonl').write_text(line)
  bench.bit_equal(tmp_path / 'a', tmp_path / 'b')
  with pytest.raises(AssertionError, match='1.0000001'):
    bench.bit_equal(tmp_path / 'a', tmp_path / 'c')


def test_a_process_that_does_not_end_is_ended():
  process = subprocess.Popen(['sleep', '600'])
  with pytest.raises(subprocess.TimeoutExpired):
    bench.ended(process, 0.1)
  assert process.poll() is not None
