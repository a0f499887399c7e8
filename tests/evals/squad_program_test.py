"""Answers and scores against the program that transformers 4 had for SQuAD, on the real files.

Its `squad_metrics.py` is google-research/bert's decoding, but for how pieces become words, which is
here as there (`Joined`), and scores as SQuAD's evaluation program for version 2.0; transformers 5
has it no more, so it is read from the wheel of the last that did.
"""

import collections
import hashlib
import json
import types
import zipfile

import numpy as np
import pytest
import wheels
from mutation import mutation

from bertjax.evals.squad import decoding, scores
from bertjax.examples.labelled import spans
from bertjax.vocab.vocabulary import load_vocabulary

WHEEL = 'transformers-4.57.1-py3-none-any.whl'
SHA256 = 'b10d05da8fa67dc41644dbbf9bc45a44cb86ae33da6f9295f5fbf5b7890bd267'
PROGRAM = 'transformers/data/metrics/squad_metrics.py'
LIMITS = decoding.Limits(20, 30)


@pytest.fixture(scope='module')
def program():
  """The module; what it imports from its package lies elsewhere in transformers 5."""
  wheel = wheels.fetched('transformers==4.57.1', WHEEL)
  assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256
  with zipfile.ZipFile(wheel) as archive:
    source = archive.read(PROGRAM).decode()
  source = source.replace('from ...models.bert import', f'from {LEGACY} import')
  source = source.replace('from ...utils import', 'from transformers.utils import')
  module = types.ModuleType('squad_metrics')
  exec(compile(source, PROGRAM, 'exec'), module.__dict__)
  return module


LEGACY = 'transformers.models.bert.tokenization_bert_legacy'


class Joined:
  """What the program asks a tokenizer for: run_squad.py:write_predictions, which takes the ## of a
  first piece away, too. transformers leaves it, finds no such text and takes whole words."""

  def convert_tokens_to_string(self, tokens):
    return ' '.join(tokens).replace(' ##', '').replace('##', '').strip()


def words_of(text):
  """The words between blanks, and the number of the word of each character."""
  words, number_c, before = [], [], True
  for c in text:
    blank = c in ' \t\r\n\u202f'
    if not blank and before:
      words.append('')
    if not blank:
      words[-1] += c
    number_c.append(len(words) - 1)
    before = blank
  return words, number_c


def most_context(rows, row, token):
  """run_squad.py:_check_is_max_context."""
  score = lambda r: min(token - r.first, r.stop - 1 - token) + 0.01 * (r.stop - r.first)
  among = [r for r in rows if r.first <= token < r.stop]
  return max(among, key=score) is row


def features(rows, found, vocabulary):
  """The windows as the program takes them."""
  by_question = collections.defaultdict(list)
  for row in rows:
    by_question[row.question].append(row)
  for number, row in enumerate(rows):
    context = found[row.question]
    _, word_c = words_of(context.text)
    columns = range(row.column, row.column + row.stop - row.first)
    token = lambda column, row=row: row.first + column - row.column
    yield types.SimpleNamespace(
      unique_id=number,
      example_index=row.question,
      tokens=[vocabulary.pieces[i] for i in row.id_n],
      token_to_orig_map={c: word_c[context.begin_n[token(c)]] for c in columns},
      token_is_max_context={
        c: most_context(by_question[row.question], row, token(c)) for c in columns
      },
    )


def random_logits(rows, found, records):
  """Normal scores of all tokens; of every second question its answer has higher ones."""
  rng = np.random.default_rng(0)
  for row in rows:
    logits_T2 = rng.normal(size=(len(row.id_n), 2)).astype(np.float32)
    record = records[row.question]
    if row.question % 2 and record.values['answers']:
      for end, token in enumerate(spans.answer_tokens(record, found[row.question])):
        if row.first <= token < row.stop:
          logits_T2[row.column + token - row.first, end] += 6
    yield logits_T2


def open_file(shared, name, length=384):
  vocabulary = load_vocabulary(shared / 'tokenizers/bert-base-uncased/vocab.txt')
  options = spans.Options(128, 64, no_answer=True, separators=1)
  records = list(spans.read(str(shared / f'downstream/squad/{name}.json.gz'), options))
  found = spans.contexts(records, vocabulary)
  rows = spans.windows(records, found, options, vocabulary, length)
  return vocabulary, records, found, rows


@mutation(
  'begin, end = int(context.begin_n[first_n[i]]),',
  "begin, end = context.text.rfind(' ', 0, int(context.begin_n[first_n[i]])) + 1,",
  case='derived-v1.1-dev',
)
@pytest.mark.full
@pytest.mark.weights
@pytest.mark.parametrize('name', ['derived-v1.1-dev', 'derived-v2.0-dev'])
def test_answers_and_scores_are_those_of_the_program(program, shared, name, tmp_path):
  # Short rows, so that most texts take several windows.
  vocabulary, records, found, rows = open_file(shared, name, length=192 + 64)
  logits = list(random_logits(rows, found, records))
  decoded = decoding.decode(rows, found, logits, LIMITS)
  some = 'v2' in name
  results = [
    types.SimpleNamespace(unique_id=n, start_logits=x[:, 0].tolist(), end_logits=x[:, 1].tolist())
    for n, x in enumerate(logits)
  ]
  examples = [
    types.SimpleNamespace(
      qas_id=record.values['id'],
      doc_tokens=words_of(record.values['context'])[0],
      answers=[dict(text=answer.text) for answer in record.values['answers']],
    )
    for record in records
  ]
  odds = tmp_path / 'null_odds.json'
  theirs = program.compute_predictions_logits(
    examples, list(features(rows, found, vocabulary)), results, 20, 30, True, None, None, str(odds),
    False, some, 0.0, Joined(),
  )  # fmt: skip
  ours = {
    record.values['id']: each.answer(0.0 if some else None)
    for record, each in zip(records, decoded, strict=True)
  }
  assert theirs.keys() == ours.keys()
  # Words that the program cuts at single blanks, the text as it stands may have further apart.
  assert {name: text.split() for name, text in ours.items()} == {
    name: text.split() for name, text in theirs.items()
  }
  said = json.loads(odds.read_text()) if some else dict.fromkeys(ours, 0.0)
  if some:
    assert list(said.values()) == pytest.approx([each.odds for each in decoded])
  check_scores(program, examples, records, decoded, said if some else None)


def check_scores(program, examples, records, decoded, odds):
  """Ours beside the program's, for the best answers whatever their odds."""
  best = [each.answer(None) for each in decoded]
  theirs = program.squad_evaluate(
    examples, dict(zip((e.qas_id for e in examples), best, strict=True)), odds, 0.0
  )
  golds = [[answer.text for answer in record.values['answers']] for record in records]
  answered = [
    scores.Answered(gold, text, each.odds)
    for gold, text, each in zip(golds, best, decoded, strict=True)
  ]
  ours = scores.judge(answered, 0.0 if odds else None)
  names = dict(exact='exact', f1='f1')
  if odds:
    names |= dict(
      has_answer_exact='HasAns_exact', has_answer_f1='HasAns_f1', no_answer='NoAns_exact',
      best_exact='best_exact', best_f1='best_f1',
    )  # fmt: skip
    for name in ('exact', 'f1'):
      assert ours[f'best_{name}_threshold'] == pytest.approx(theirs[f'best_{name}_thresh'])
  for name, other in names.items():
    assert 100 * ours[name] == pytest.approx(theirs[other]), name
  assert 0.1 < ours['f1'] < 0.9
