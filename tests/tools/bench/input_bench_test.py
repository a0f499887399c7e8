"""The input bench prints one JSON line with both sides and their ratio."""

import json

import forks
import pytest
from mutation import mutation


def measured(config, rows, length, calls):
  sizes = (f'--batch_size={rows}', f'--length={length}', f'--calls={calls}')
  return json.loads(forks.run('bertjax.bench', 'input', f'--config={config}', *sizes).stdout)


@mutation("mask.rate if 'rate' in mask else recipes.BERT_MASK['rate']", 'mask.rate')
@pytest.mark.full
@pytest.mark.parametrize('config', ['transformer_xl', 'xlnet'])
def test_times_rows_that_follow_each_other(config):
  result = measured(f'configs/{config}.py:test', 16, 96, 2)
  assert result['real_tokens_per_batch'] == 16 * 96 and result['plan'].endswith('_columns')


@pytest.mark.full
def test_prints_one_json_line():
  result = measured('configs/bert.py:test', 64, 128, 10)
  # How fast either side is depends on who else is at work here, so no figure is asserted.
  speeds = [result[k]['real_tokens_per_second'] for k in ('ours', 'transformers')]
  assert min(*speeds, result['ratio'], result['ratio_numpy']) > 0
  assert 64 * 64 < result['real_tokens_per_batch'] <= 64 * 128
