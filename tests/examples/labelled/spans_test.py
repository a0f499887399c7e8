"""Questions as rows: windows that leave nothing out, and the spans of answers in them."""

import dataclasses

import numpy as np
import published
import pytest
import tokenizers
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled import spans
from bertjax.examples.labelled.common.records import Record
from bertjax.examples.labelled.common.squad_json import Answer
from bertjax.vocab.vocabulary import load_vocabulary

OPTIONS = spans.Options(stride=3, question=4, no_answer=True, separators=1)
WORDS = 'who was it ada love ##lace ( 1815 – 52 ) wrote notes on the engine of mr babbage , 春 晚'


@pytest.fixture(scope='module')
def wordpiece(tmp_path_factory):
  path = tmp_path_factory.mktemp('vocab') / 'vocab.txt'
  path.write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS.split()]) + '\n')
  return load_vocabulary(path)


@pytest.fixture(scope='module')
def byte_level(tmp_path_factory):
  folder = tmp_path_factory.mktemp('bytes')
  trained = tokenizers.ByteLevelBPETokenizer()
  special = ['<s>', '<pad>', '</s>', '<unk>', '<mask>']
  trained.train_from_iterator([WORDS] * 3, vocab_size=300, special_tokens=special)
  trained.save_model(str(folder))
  return load_vocabulary(folder / 'vocab.json')


CONTEXT = 'Ada Lovelace (1815–52)  wrote notes on the engine of Mr Babbage, 春晚.'


def record(text, begin=None, context=CONTEXT, name='q', question='who was it'):
  answers = () if text is None else (Answer(text, context.find(text) if begin is None else begin),)
  return Record(
    f'f.json, question {name}', dict(id=name, question=question, context=context, answers=answers)
  )


@pytest.mark.parametrize('kind', ['wordpiece', 'byte_level'])
@pytest.mark.parametrize(
  'text', ['Ada', 'Lovelace', '1815', '52', 'wrote notes', 'Babbage', '春', '晚', CONTEXT]
)
@mutation("end_n, begin, side='right'", "end_n, begin, side='left'", case='52-wordpiece')
@mutation("begin_n, end, side='left'", "begin_n, end, side='right'", case='1815-wordpiece')
@mutation('np.minimum(next_c[begin_n], end_n)', 'begin_n', case='wrote notes-byte_level')
def test_the_span_of_an_answer_is_its_text(kind, text, request):
  vocabulary = request.getfixturevalue(kind)
  asked = record(text)
  (context,) = spans.contexts([asked], vocabulary)
  first, last = spans.answer_tokens(asked, context)
  assert CONTEXT[context.begin_n[first] : context.end_n[last]] == text


@pytest.mark.parametrize('text', ['notes\u0301', 'wrote\u0303\u0323 notes\u0301', 'Ada\u0652'])
@pytest.mark.parametrize('kind', ['wordpiece', 'byte_level'])
@mutation('_with_marks(text, begins, end_n[part])', 'end_n[part]', case='wordpiece-notes\\u0301')
def test_an_answer_keeps_the_marks_that_the_vocabulary_strips(kind, text, request):
  context = f'Who {text} on, {text}'
  asked = record(text, context=context)
  (found,) = spans.contexts([asked], request.getfixturevalue(kind))
  first, last = spans.answer_tokens(asked, found)
  assert context[found.begin_n[first] : found.end_n[last]] == text


def shown(window, context):
  """The tokens of the text in a window, by their numbers."""
  numbers = {int(i): n for n, i in enumerate(context.id_n)}
  assert len(numbers) == len(context.id_n)
  stop = window.column + window.stop - window.first
  return [numbers[int(i)] for i in window.id_n[window.column : stop]]


@mutation('beyond + options.stride, options.stride', 'beyond + options.stride, options.stride + 1')
@mutation('range(0, beyond + options.stride,', 'range(0, max(beyond, 1),')
@pytest.mark.parametrize('size', range(1, 17))
def test_windows_follow_each_other_by_the_stride(wordpiece, size):
  context_words = WORDS.split()[6:]  # 17 tokens, none twice
  asked = record(None, context=' '.join(context_words[:size]))
  found = spans.contexts([asked], wordpiece)
  rows = spans.windows([asked], found, OPTIONS, wordpiece, length=12)
  # google-research/bert: from 0 by the stride, until one reaches the end
  room, begins = 12 - 3 - 3, [0]
  while begins[-1] + room < size:
    begins.append(begins[-1] + 3)
  assert [(row.first, row.stop) for row in rows] == [(b, min(b + room, size)) for b in begins]
  cls, sep = wordpiece.special['cls'], wordpiece.special['sep']
  asked_n = wordpiece.encode_batch(['who was it'])[0].tolist()
  for row in rows:
    assert shown(row, found[0]) == list(range(row.first, row.stop))
    assert row.id_n[:5].tolist() == [cls, *asked_n, sep] and row.id_n[-1] == sep
    assert row.type_n.tolist() == [0] * 5 + [1] * (len(row.id_n) - 5)


@mutation('if first < row.first or last >= row.stop:', 'if first < row.first or first >= row.stop:')
@mutation('row.column + first - row.first, row.column + last', 'first - row.first, last')
@mutation('((START, END), label_n2.T, strict=True)', '((END, START), label_n2.T, strict=True)')
def test_windows_without_the_whole_answer_learn_the_first_token(wordpiece):
  asked = [record('wrote notes', name='a'), record(None, name='b'), record('Ada', name='c')]
  found = spans.encode(asked, OPTIONS, wordpiece, 12)
  spelled = []
  for id_n, start, end in zip(
    found.id_n, found.label['span_start'], found.label['span_end'], strict=True
  ):
    spelled.append(' '.join(wordpiece.pieces[i] for i in id_n[start : end + 1]))
  windows = len(spelled) // 3
  answer = ['wrote notes' in ' '.join(wordpiece.pieces[i] for i in id_n) for id_n in found.id_n]
  assert 0 < sum(answer[:windows]) < windows
  assert spelled[:windows] == ['wrote notes' if has else '[CLS]' for has in answer[:windows]]
  assert spelled[windows : 2 * windows] == ['[CLS]'] * windows
  assert spelled[2 * windows :] == ['ada'] + ['[CLS]'] * (windows - 1)
  assert found.label['span_start'].dtype == np.int32


@mutation('([text_n, head_n[1:], head_n[:1]])', '([head_n[1:], text_n, head_n[:1]])')
@mutation('return row.cls, row.cls', 'return 0, 0')
@mutation(
  "not asked[row.question].values['answers'] for row in rows",
  'start == row.cls for row, (start, _) in zip(rows, label)',
)
def test_rows_of_xlnet_are_text_question_cls(wordpiece):
  """zihangdai/xlnet, run_squad.py:convert_examples_to_features."""
  asked = [record('wrote notes', name='a'), record(None, name='b')]
  found = spans.TASK.encode_cls_last(asked, OPTIONS, wordpiece, 12)
  other = spans.encode(asked, OPTIONS, wordpiece, 12)
  question = 'who was it [SEP]'
  for id_n, type_n, first_n in zip(found.id_n, found.type_n, other.id_n, strict=True):
    words = [wordpiece.pieces[i] for i in id_n]
    shown = [wordpiece.pieces[i] for i in first_n[5:]]
    assert words == [*shown, *question.split(), '[CLS]']
    assert type_n.tolist() == [0] * len(shown) + [1] * 4 + [2]
  label = found.label
  for n, id_n in enumerate(found.id_n):
    start, end = int(label['span_start'][n]), int(label['span_end'][n])
    if (
      'wrote notes' in ' '.join(wordpiece.pieces[i] for i in id_n)
      and not label['span_impossible'][n]
    ):
      assert [wordpiece.pieces[i] for i in id_n[start : end + 1]] == ['wrote', 'notes']
    else:
      assert start == end == len(id_n) - 1
  assert label['span_impossible'].tolist() == [0] * (n // 2 + 1) + [1] * (n // 2 + 1)
  assert other.label['span_impossible'].tolist() == label['span_impossible'].tolist()


@mutation('context.text[begin:end] != text', 'False')
def test_answers_that_are_not_in_their_text_are_kept_out(wordpiece, caplog):
  asked = [record('Ada', name='a'), record('Ada', 1, name='b'), record('Ada', -1, name='c')]
  with caplog.at_level('WARNING'):
    found = spans.encode(asked, OPTIONS, wordpiece, 40)
  assert len(found.id_n) == 1
  assert '2 of 3 questions' in caplog.text and 'question b, f.json, question c:' in caplog.text
  with pytest.raises(UserError, match='2 of 2 questions .* expected answer_start in characters'):
    spans.encode(asked[1:], OPTIONS, wordpiece, 40)


@mutation('*question_n[: options.question]', '*question_n')
def test_long_questions_are_cut_and_counted(wordpiece):
  asked = [record('Ada', question='who was it ' * 3), record('Ada')]
  found = spans.encode(asked, OPTIONS, wordpiece, 40)
  assert found.cut == 1 and len(found.id_n[0]) == len(found.id_n[1]) + 1
  two = spans.encode(asked, dataclasses.replace(OPTIONS, separators=2), wordpiece, 40)
  sep = wordpiece.special['sep']
  assert two.id_n[0][5:7].tolist() == [sep, sep] and two.type_n[0][:8].tolist() == [0] * 7 + [1]


def test_what_cannot_work_is_refused(wordpiece, tmp_path, shared):
  with pytest.raises(UserError, match='leaves 2 tokens for the text .* fewer than .*stride=3'):
    spans.encode([record('Ada')], OPTIONS, wordpiece, 9)
  path = shared / 'downstream/squad/derived-v2.0-dev.json.gz'
  strict = spans.Options(128, 64, no_answer=False, separators=1)
  with pytest.raises(UserError, match=r'question \w+ has no answer: .*squad\.py:v2'):
    list(spans.read(str(path), strict))
  words = published.vocabulary(shared, 't5')
  with pytest.raises(UserError, match='sentencepiece does not keep'):
    spans.contexts([record('Ada')], words)


@pytest.mark.parametrize('name', ['squad/derived-v1.1-dev', 'xquad/xquad.zh'])
def test_real_answers_are_spans_of_tokens(shared, name):
  vocabulary = published.vocabulary(shared, 'bert-base-multilingual-cased')
  options = spans.Options(128, 64, no_answer=False, separators=1)
  asked = list(spans.read(str(shared / f'downstream/{name}.json.gz'), options))
  same = 0
  for each, context in zip(asked, spans.contexts(asked, vocabulary), strict=True):
    first, last = spans.answer_tokens(each, context)
    found = context.text[context.begin_n[first] : context.end_n[last]]
    assert each.values['answers'][0].text in found
    same += found == each.values['answers'][0].text
  assert same / len(asked) > 0.99
