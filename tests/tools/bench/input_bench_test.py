"""The input bench prints one JSON line with both sides and their ratio."""

import json
import subprocess
import sys

import pytest
from mutation import mutation


@mutation("mask.rate if 'rate' in mask else recipes.BERT_MASK['rate']", 'mask.rate')
@pytest.mark.full
@pytest.mark.parametrize('config', ['transformer_xl', 'xlnet'])
def test_times_rows_that_follow_each_other(config):
  command = f'bertjax.bench input --config=configs/{config}.py:test --batch_size=16 --length=96'
  command += ' --calls=2'
  done = subprocess.run(
    [sys.executable, '-m', *command.split()], capture_output=True, text=True, check=True
  )
  result = json.loads(done.stdout)
  assert result['real_tokens_per_batch'] == 16 * 96 and result['plan'].endswith('_columns')


@pytest.mark.full
def test_prints_one_json_line():
  command = (
    'bertjax.bench input --config=configs/bert.py:test --batch_size=64 --length=128 --calls=10'
  )
  done = subprocess.run(
    [sys.executable, '-m', *command.split()], capture_output=True, text=True, check=True
  )
  result = json.loads(done.stdout)
  # How fast either side is depends on who else is at work here, so no figure is asserted.
  speeds = [result[k]['real_tokens_per_second'] for k in ('ours', 'transformers')]
  assert min(*speeds, result['ratio'], result['ratio_numpy']) > 0
  assert 64 * 64 < result['real_tokens_per_batch'] <= 64 * 128
