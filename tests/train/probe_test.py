"""A tagger on the encoder that a run left: it learns, the encoder stays."""

import finetune_runs
import jax
import numpy as np
import pytest
import tagged_files

from bertjax.sources import runs

FILES = tagged_files


@pytest.mark.full
def test_a_tagger_learns_on_an_encoder_that_stays(files, tmp_path):
  classes = "--config.data.task.classes=('PER','LOC')"
  encoder, probed, again = (tmp_path / name for name in ('encoder', 'probed', 'again'))
  finetune_runs.run(finetune_runs.command('tagging.py', files, encoder, classes))
  given = (classes, f'--config.init_from={encoder}', '--config.objective.width=16')
  command = lambda workdir: finetune_runs.command(
    'probe.py', files, workdir, *given, '--config.objective.features=mix'
  )
  finetune_runs.run(command(probed))
  assert finetune_runs.last(probed, 'eval/dev/f1') > 0.9
  before, after = (runs.open_run(workdir).params() for workdir in (encoder, probed))
  for name in ('embeddings', 'encoder'):
    jax.tree.map(np.testing.assert_array_equal, before[name], after[name])
  assert after['tagger'].keys() >= {'mix', 'factor', 'head', 'lstm_0_forward', 'lstm_1_backward'}
  finetune_runs.check_kill_and_resume(command(again), probed, again, 17)
