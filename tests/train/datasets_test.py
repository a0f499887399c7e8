"""Tasks of TFDS, prepared on disk, and of seqio, from their names to the scores."""

import subprocess
import sys

import finetune_runs
import pytest
from processes import ROOT

PREPARE = """
import sys
from bertjax.examples.seqio_tasks.loaded import tfds

builder = tfds.builder('glue/mrpc', data_dir=sys.argv[1])
words = dict(fine=1, poor=0)
examples = lambda: (
  (n, dict(sentence1=f'the {word} film', sentence2='was seen', label=words[word], idx=n))
  for n, word in enumerate([*words] * 32)
)
type(builder)._split_generators = lambda self, manager: dict(
  train=examples(), validation=examples(), test=examples()
)
builder.download_and_prepare(download_config=tfds.download.DownloadConfig(register_checksums=True))
"""
PIECES = '[PAD] [UNK] [CLS] [SEP] [MASK] the film was seen fine poor'


@pytest.mark.full
def test_a_task_of_tfds_is_learned_by_its_name(tmp_path, monkeypatch):
  place = tmp_path / 'tfds'
  subprocess.run([sys.executable, '-c', PREPARE, str(place)], cwd=ROOT, check=True)
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES.split()) + '\n')
  monkeypatch.setenv('TFDS_DATA_DIR', str(place))
  workdir = tmp_path / 'run'
  size = [f'--config.model.{key}={value}' for key, value in finetune_runs.SIZE.items()]
  finetune_runs.run([
    sys.executable, '-m', 'bertjax.main', '--config=configs/finetune/tfds.py:glue/mrpc',
    f'--workdir={workdir}',
    f'--config.data.vocab={tmp_path}/vocab.txt', '--config.epochs=30', '--config.batch_size=16',
    '--config.length=16', '--config.optimizer.schedule.peak=3e-3', *size,
  ])  # fmt: skip
  assert finetune_runs.last(workdir, 'eval/dev/f1') == 1
  found = finetune_runs.predicted(workdir, '--input=tfds:glue/mrpc:test[:2]')
  assert [each['label'] for each in found] == ['equivalent', 'not_equivalent']
