"""Fine-tuning from files, from the first step to the scores and predictions."""

import json
import re

import finetune_runs
import jax
import labelled_cases
import pytest
import review_files
from mutation import mutation
from processes import lines

from bertjax.errors import UserError
from bertjax.train import setup

FILES = review_files


def command(files, workdir, *more):
  return finetune_runs.command(
    'text.py', files, workdir, '--config.data.task.label=stars',
    '--config.data.task.classes=infer', *more,
  )  # fmt: skip


@pytest.fixture(scope='module')
def straight(files, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('straight')
  return workdir, finetune_runs.run(command(files, workdir))


@mutation('return tuple(sorted({name for', 'return tuple(sorted({name * 2 for')
@mutation('sum(config.epochs * n / batch for', 'sum(n / batch for')
@mutation("config.data.dev, 'config.data.dev'", "config.data.train, 'config.data.dev'")
def test_a_run_lasts_its_epochs_and_learns(files, straight):
  workdir, said = straight
  assert "config.data.task.classes=('bad', 'good'), those of the examples" in said
  assert '10 epochs of 200 examples: 125 steps' in said
  found = lines(workdir)
  assert [x['step'] for x in found if 'loss' in x] == list(range(1, 126))
  scores = {x['step']: x['eval/dev/accuracy'] for x in found if 'eval/dev/accuracy' in x}
  assert list(scores) == [*range(13, 125, 13), 125]
  with open(files / 'dev.tsv', encoding='utf-8') as file:
    said = [line.split('\t')[0] for line in file][1:]
  majority = max(said.count(name) for name in review_files.WORDS) / len(said)
  assert scores[125] > 0.9 > majority == pytest.approx(found[-1]['eval/dev/majority'])


COMPILED = re.compile(r"'main' for rows of (\d+)")


def test_a_short_run_compiles_for_one_length(straight):
  workdir, said = straight
  assert COMPILED.findall(said) == ['40']
  assert json.loads((workdir / 'config.json').read_text())['facts']['lengths'] == dict(main=1)


@pytest.mark.full
@mutation("kept['lengths'] = kept['lengths'] or {}", '')
@mutation('phase.compile(self._run.abstract, batch)', 'phase.compile(self._run.abstract)')
@mutation('if phase.takes(batch):', 'if phase._abstract:')
def test_an_older_run_keeps_its_lengths_and_compiles_for_each(files, straight, tmp_path):
  """Its config.json says of none, and the digests of its batches are of these lengths."""
  record = json.loads((straight[0] / 'config.json').read_text())
  del record['facts']['lengths']
  (tmp_path / 'checkpoints').mkdir()
  (tmp_path / 'config.json').write_text(json.dumps(record))
  said = finetune_runs.run(command(files, tmp_path, '--config.total_steps=13'))
  lengths = COMPILED.findall(said)
  assert sorted(lengths, key=int) == ['8', '16', '40']
  compiling = [x['step'] for x in lines(tmp_path) if x.get('time/compile', 0) > 0.05]
  assert len(compiling) == len(lengths) and compiling[0] == 1


def ask(workdir, *more):
  return finetune_runs.use('predict', workdir, *more)


@mutation('else max(p, key=', 'else min(p, key=')
def test_predictions_are_as_right_as_the_evaluation_says(files, straight):
  workdir, _ = straight
  found = finetune_runs.predicted(workdir, f'--input={files}/dev.tsv')
  with open(files / 'dev.tsv', encoding='utf-8') as file:
    labels, texts = zip(*(line.rstrip('\n').split('\t') for line in list(file)[1:]), strict=True)
  assert tuple(each['text'] for each in found) == texts
  right = sum(each['label'] == label for each, label in zip(found, labels, strict=True))
  want = [x for x in lines(workdir) if 'eval/dev/accuracy' in x][-1]['eval/dev/accuracy']
  assert right / len(labels) == pytest.approx(want)
  assert all(sum(each['probabilities'].values()) == pytest.approx(1) for each in found)


@pytest.mark.full
@mutation('if not mode:\n    raise', 'if False:\n    raise')
@mutation("min(self.net.room or 1 << 30, self.task['length'])", 'self.net.room or 1 << 30')
@mutation('if _GLUE.value and beside:', 'if False:')
def test_predictions_for_glue_and_what_is_refused(files, straight, tmp_path):
  workdir, _ = straight
  said = ask(workdir, '--text=the film was great', '--text=awful', '--glue').stdout
  assert said.splitlines() == ['index\tprediction', '0\tgood', '1\tbad']
  pair = ask(workdir, '--text=a', '--second=b')
  assert 'was fine-tuned on 1 text an example (text)' in pair.stderr
  assert '--second is for pairs' in ask(workdir, '--text=a', '--text=b', '--second=b').stderr
  long = ask(workdir, f'--text={"the " * 70}')
  assert 'has 72 tokens' in long.stderr and 'takes 40' in long.stderr  # config.length
  both = ask(workdir, f'--input={files}/dev.tsv', '--glue', f'--soft_labels={files}/soft.jsonl')
  assert 'expected no --soft_labels beside it' in both.stderr
  assert not (files / 'soft.jsonl').exists()
  lost = ask(workdir, f'--input={files}/dev.tsv', '--soft_labels=nowhere/soft.jsonl')
  assert lost.stderr.endswith('there is no directory nowhere\n')
  assert 'expected the name of a file' in ask(workdir, '--input=-').stderr
  (tmp_path / 'null.jsonl').write_text('{"text": "a"}\n{"text": null}\n')
  null = ask(workdir, f'--input={tmp_path}/null.jsonl')
  assert "null.jsonl, line 2: expected a string in 'text', got None" in null.stderr
  (tmp_path / 'long.tsv').write_text(f'text\n{"the " * 70}\nawful\n')
  sent = ask(workdir, f'--input={tmp_path}/long.tsv', '--glue')
  assert [line[:2] for line in sent.stdout.splitlines()[1:]] == ['0\t', '1\t']
  assert 'it is cut to 40, and so is all that is longer' in sent.stderr
  (tmp_path / 'none.tsv').write_text('label\ttext\n')
  none = ask(workdir, f'--input={tmp_path}/none.tsv', '--glue')
  assert none.stderr.endswith('none.tsv has no texts: expected one at least\n') and not none.stdout


def test_columns_that_no_length_of_rows_divides_are_refused(files, tmp_path):
  (tmp_path / 'stars').symlink_to(files)
  divided = {'length': 60, 'data.length_block': 8, 'mesh.data': 1, 'mesh.sequence': 3}
  config = labelled_cases.config('texts', tmp_path, **divided)
  opened = labelled_cases.ensured(config, tmp_path / 'run')
  with pytest.raises(UserError, match='multiples of 8, which config.mesh.sequence=3 does not divi'):
    setup.make_run(config, opened, jax.devices()[:3])


@pytest.mark.parametrize(
  ('changes', 'said'),
  [
    (['--config.data.dev={}/odd.tsv'], "odd.tsv, line 2: expected one of 'bad', 'good'"),
    *(
      pytest.param(*row, marks=pytest.mark.full)
      for row in [
        (['--config.data.task.label=star'], "did you mean 'stars'"),
        (["--config.model.labels=(('label',3),)"], "3 classes for 'label', config.data.task 2"),
        (['--config.data.vocab='], 'config.data.vocab is empty'),
      ]
    ),
  ],
)
@mutation('      for path in ours:\n', '      for path in []:\n')
def test_what_cannot_work_is_said_in_one_line(files, tmp_path, changes, said):
  workdir = tmp_path / 'run'
  changed = command(files, workdir, *(x.format(files) for x in changes))
  finetune_runs.check_refused(changed, workdir, said)
