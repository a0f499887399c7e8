"""Tasks of TFDS, prepared on disk, and of seqio, from their names to the scores."""

import json
import sys

import finetune_runs
import pytest
from processes import exact

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
  done = finetune_runs.call([sys.executable, '-c', PREPARE, str(place)])
  assert done.returncode == 0, done.stderr
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
  said = finetune_runs.use('predict', workdir, '--input=tfds:glue/mrpc:test[:2]', '--json').stdout
  assert [json.loads(line)['label'] for line in said.splitlines()] == [
    'equivalent',
    'not_equivalent',
  ]


OPINIONS = """
import seqio
import tensorflow as tf

WORDS = dict(fine='yes', poor='no')

def source(split, shuffle_files=False, seed=None):
  rows = [(f'the film was {word}', WORDS[word]) for word in [*WORDS] * 16]
  return tf.data.Dataset.from_tensor_slices(dict(zip(('text', 'label'), map(list, zip(*rows)))))

words = seqio.Feature(
  seqio.PassThroughVocabulary(size=0), add_eos=False, dtype=tf.string, rank=0
)
seqio.TaskRegistry.add(
  'opinions', source=seqio.FunctionDataSource(source, splits=('train', 'dev')), preprocessors=[],
  output_features=dict(text=words, label=words),
)
"""


@pytest.mark.full
def test_a_task_of_seqio_is_learned_as_a_file_of_the_same_lines(tmp_path, monkeypatch):
  (tmp_path / 'opinions_of_mine.py').write_text(OPINIONS)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES.split()) + '\n')
  lines = ['the film was fine\tyes', 'the film was poor\tno'] * 16
  (tmp_path / 'table.tsv').write_text('\n'.join(['text\tlabel', *lines]) + '\n')
  size = [f'--config.model.{key}={value}' for key, value in finetune_runs.SIZE.items()]

  def run(name, train, dev):
    finetune_runs.run([
      *finetune_runs.main('configs/finetune/text.py', tmp_path / name),
      f'--config.data.vocab={tmp_path}/vocab.txt', '--config.epochs=10', '--config.batch_size=16',
      '--config.length=16', '--config.optimizer.schedule.peak=3e-3', '--config.log_steps=1',
      "--config.data.task.classes=('no','yes')", f'--config.data.train={train}',
      f'--config.data.dev={dev}', *size,
    ])  # fmt: skip
    return exact(tmp_path / name)

  task = 'seqio:opinions_of_mine:opinions'
  table = tmp_path / 'table.tsv'
  assert run('task', f'{task}:train', f'{task}:dev') == run('file', table, table)
  assert finetune_runs.last(tmp_path / 'task', 'eval/dev/accuracy') == 1
