"""What GLUE is sent: predictions of its own test files, by the recipes of its tasks."""

import random

import finetune_runs
import pytest
from mutation import mutation
from processes import lines

pytestmark = pytest.mark.full
WORDS = ('the', 'film', 'was', 'a', 'very', 'one', 'of', 'all', 'fine', 'dull')
LABELS = ('contradiction', 'entailment', 'neutral')


def write(folder, tables):
  """FOLDER/NAME.tsv with some lines of fields, and FOLDER/vocab.txt."""
  folder.mkdir()
  pieces = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS)
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  for name, rows in tables.items():
    (folder / f'{name}.tsv').write_text('\n'.join('\t'.join(row) for row in rows) + '\n')
  return folder


def command(recipe, files, workdir, *more):
  """The command of a run of one epoch."""
  return finetune_runs.command(recipe, files, workdir, '--config.epochs=1', *more)


def check_sent(workdir, path, count, classes):
  """The submission that a run makes of a file has a prediction for each of its examples."""
  done = finetune_runs.use('predict', workdir, f'--input={path}', '--glue')
  assert done.returncode == 0, done.stderr
  said = [line.split('\t') for line in done.stdout.splitlines()]
  assert said[0] == ['index', 'prediction']
  assert [number for number, _ in said[1:]] == [str(n) for n in range(count)]
  assert {label for _, label in said[1:]} <= set(classes)


def text(draw):
  return ' '.join(draw.choices(WORDS, k=draw.randrange(2, 9)))


def test_cola_whose_test_file_alone_has_a_header(tmp_path):
  draw = random.Random(0)
  judged = lambda count: [('gj04', str(draw.randrange(2)), '', text(draw)) for _ in range(count)]
  asked = [('index', 'sentence'), *((str(n), text(draw)) for n in range(9))]
  files = write(tmp_path / 'CoLA', dict(train=judged(32), dev=judged(16), test=asked))
  finetune_runs.run(command('glue.py:cola', files, tmp_path / 'run'))
  check_sent(tmp_path / 'run', files / 'test.tsv', 9, '01')


@pytest.fixture(scope='module')
def mnli(tmp_path_factory):
  """MNLI's files and AX; the mismatched ones are all neutral."""
  draw, names = random.Random(0), ('index', 'sentence1', 'sentence2')
  pairs = lambda count: [(str(n), text(draw), text(draw)) for n in range(count)]
  judged = lambda count, labels: [
    (*names, 'gold_label'), *((*pair, draw.choice(labels)) for pair in pairs(count))
  ]  # fmt: skip
  tables = dict(train=judged(32, LABELS), dev=judged(16, LABELS))
  tables |= dict(dev_mismatched=judged(8, LABELS[2:]), diagnostic=[names, *pairs(11)])
  return write(tmp_path_factory.mktemp('glue') / 'MNLI', tables)


def test_mnli_is_judged_by_both_dev_files_and_predicts_ax(mnli, tmp_path):
  mismatched = f'--config.evals.mm.file={mnli}/dev_mismatched.tsv'
  finetune_runs.run(command('glue.py:mnli', mnli, tmp_path, mismatched))
  (found,) = [line for line in lines(tmp_path) if 'eval/mm/accuracy' in line]
  assert found['eval/mm/majority'] == 1 > found['eval/dev/majority']
  check_sent(tmp_path, mnli / 'diagnostic.tsv', 11, LABELS)


@mutation("file='dev_mismatched.tsv'", "file=''")
def test_mnli_without_its_second_dev_file_is_refused(mnli, tmp_path):
  said = 'config.evals.mm.file: there is no file dev_mismatched.tsv'
  finetune_runs.check_refused(
    command('glue.py:mnli', mnli, tmp_path / 'run'), tmp_path / 'run', said
  )
