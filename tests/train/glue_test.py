"""What GLUE is sent: predictions of its own test files, by the recipes of its tasks."""

import random

import finetune_runs
import pytest

pytestmark = pytest.mark.full
WORDS = ('the', 'film', 'was', 'a', 'very', 'one', 'of', 'all', 'fine', 'dull')


def write(folder, lines):
  """FOLDER/NAME with some lines of fields, and FOLDER/vocab.txt."""
  folder.mkdir()
  pieces = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS)
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  for name, rows in lines.items():
    (folder / name).write_text('\n'.join('\t'.join(row) for row in rows) + '\n')
  return folder


def sent(recipe, files, workdir, name, *more):
  """The lines of the submission that a run of one epoch makes of FILES/NAME."""
  finetune_runs.run(finetune_runs.command(recipe, files, workdir, '--config.epochs=1', *more))
  done = finetune_runs.use('predict', workdir, f'--input={files / name}', '--glue')
  assert done.returncode == 0, done.stderr
  return [line.split('\t') for line in done.stdout.splitlines()]


def text(draw):
  return ' '.join(draw.choices(WORDS, k=draw.randrange(2, 9)))


def check(lines, count, classes):
  assert lines[0] == ['index', 'prediction']
  assert [number for number, _ in lines[1:]] == [str(n) for n in range(count)]
  assert {label for _, label in lines[1:]} <= set(classes)


def test_cola_whose_test_file_alone_has_a_header(tmp_path):
  draw = random.Random(0)
  learned = lambda count: [('gj04', str(draw.randrange(2)), '', text(draw)) for _ in range(count)]
  asked = [('index', 'sentence'), *((str(n), text(draw)) for n in range(9))]
  files = write(
    tmp_path / 'CoLA', {'train.tsv': learned(32), 'dev.tsv': learned(16), 'test.tsv': asked}
  )
  check(sent('glue.py:cola', files, tmp_path / 'run', 'test.tsv'), 9, '01')
