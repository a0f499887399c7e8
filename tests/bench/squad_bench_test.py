"""The bench of SQuAD's rows: both sides make the same ones of questions that fit one."""

import json
import subprocess
import sys

import numpy as np
import pytest
import toy_questions
from mutation import mutation

from bertjax.bench.parts import rival_squad, squad_rows
from bertjax.data.labelled import spans
from bertjax.data.vocab.vocabulary import load_vocabulary

OPTIONS = spans.Options(stride=16, question=8, no_answer=True, separators=1)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  return toy_questions.write(tmp_path_factory.mktemp('files'))


@pytest.fixture(scope='module')
def tools(files):
  vocabulary = load_vocabulary(files / 'vocab.txt')
  tokenizer = rival_squad.tokenizer_of(str(files / 'vocab.txt'), vocabulary.lowercase)
  return vocabulary, tokenizer


def rows_of(records, tools, length):
  """Ours, the numbers of their questions, and the rival's."""
  ours = spans.encode(records, OPTIONS, tools[0], length)
  found = spans.contexts(records, tools[0])
  number_n = [row.question for row in spans.windows(records, found, OPTIONS, tools[0], length)]
  theirs = rival_squad.prepare(tools[1], records, length, OPTIONS.stride)()
  return ours, theirs, number_n


@mutation(
  'bench squad: the answer of the rival ends a token too soon',
  'bertjax/bench/parts/rival_squad.py',
  'return first - 1, last + 1',
  'return first - 1, last',
)
@mutation(
  'bench squad: the rival has the answers of the first batch',
  'bertjax/bench/parts/rival_squad.py',
  '_batch(tokenizer, records[start : start + BATCH], start, length, overlap)',
  '_batch(tokenizer, records[:BATCH], start, length, overlap)',
)
def test_rows_of_questions_that_fit_are_the_same(files, tools, monkeypatch):
  monkeypatch.setattr(rival_squad, 'BATCH', 64)
  records = list(spans.read(str(files / 'train.json'), OPTIONS))
  ours, theirs, number_n = rows_of(records, tools, 64)
  assert len(theirs) == len(number_n) == len(records) == 300
  for row, ids_n in zip(theirs, ours.id_n, strict=True):
    assert row.ids == ids_n.tolist()
  ends = np.stack([ours.label[spans.START], ours.label[spans.END]], 1).tolist()
  assert [list(row.ends) for row in theirs] == ends
  assert squad_rows.alike(ours, theirs, number_n) == 1.0


@mutation(
  'bench squad: other ends are as good',
  'bertjax/bench/parts/squad_rows.py',
  'found.setdefault(number, []).append((ids.tolist(), tuple(ends.tolist())))',
  'found.setdefault(number, []).append((ids.tolist(), theirs[number].ends))',
)
def test_rows_that_differ_are_told(files, tools):
  records = list(spans.read(str(files / 'dev.json'), OPTIONS))
  ours, theirs, number_n = rows_of(records, tools, 64)
  theirs[3] = theirs[3]._replace(ends=(1, 1))
  theirs[5] = theirs[5]._replace(ids=[*theirs[5].ids, 9])
  assert squad_rows.alike(ours, theirs, number_n) == pytest.approx(58 / 60)


@mutation(
  'bench squad: the clock of the process stands still',
  'bertjax/bench/parts/squad_rows.py',
  'time.process_time() - before',
  '0.0 * before',
)
def test_both_sides_are_timed_by_the_clock_and_by_the_processor(files, tools):
  records = list(spans.read(str(files / 'dev.json'), OPTIONS))
  found = squad_rows.run(records, OPTIONS, 32, tools, (2, 1))
  assert found['questions'] == 60 and found['alike'] == 1.0
  assert found['windows']['ours'] > 60 < found['windows']['transformers']
  for side in ('ours', 'transformers'):
    assert found[side]['cpu_median_s'] > 0 < found[side]['questions_per_second']
  assert found['ratio'].keys() == {'seconds', 'cpu'} and min(found['ratio'].values()) > 0


@mutation(
  'bench squad: questions that ours leaves out are timed',
  'bertjax/bench/parts/squad_rows.py',
  "return [r for r, text in found if not r.values['answers'] or spans.answer_tokens(r, text)]",
  'return [r for r, text in found]',
)
def test_questions_that_are_kept_out_of_training_are_not_timed(files, tools):
  records = list(spans.read(str(files / 'dev.json'), OPTIONS))
  answered = next(n for n, record in enumerate(records) if record.values['answers'])
  answer = records[answered].values['answers'][0]
  records[answered].values['answers'] = (answer._replace(begin=answer.begin + 1),)
  assert squad_rows.learnable(records, tools[0]) == records[:answered] + records[answered + 1 :]


@pytest.mark.full
def test_the_command_prints_one_json_line(files):
  command = (
    f'bertjax.bench squad --input={files}/dev.json --vocab={files}/vocab.txt --length=32 '
    '--stride=16 --question=8 --calls=2'
  )
  done = subprocess.run(
    [sys.executable, '-m', *command.split()], capture_output=True, text=True, check=True
  )
  result = json.loads(done.stdout)
  assert result['bench'] == 'squad' and result['alike'] == 1.0 and result['ratio']['cpu'] > 0
