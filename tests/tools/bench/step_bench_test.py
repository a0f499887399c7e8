"""bench step on a store: padding is no work done, and rows that texts share have less of it."""

import json

import forks
import pytest
from mutation import mutation
from processes import ROOT, environment


def measured(store, *flags):
  command = ('step', '--config=configs/bert.py:test', f'--config.data.store={store}', *flags)
  sizes = ('--batch_size=16', '--length=64', '--calls=1')
  done = forks.run('bertjax.bench', *command, *sizes, cwd=ROOT, env=environment())
  return json.loads(done.stdout)


@pytest.mark.full
@mutation("int(np.count_nonzero(batch['example_BT']))", "batch['example_BT'].size")
def test_real_tokens_are_those_that_are_no_padding(rich_store):
  alone, packed = measured(rich_store), measured(rich_store, '--config.data.pack=8')
  assert alone['text'] == str(rich_store)
  assert alone['real_tokens'] < packed['real_tokens'] <= 16 * 64
  for found in (alone, packed):
    share = found['ours']['real_tokens_per_second'] / found['ours']['tokens_per_second']
    assert share == pytest.approx(found['real_tokens'] / (16 * 64), rel=0.01)
