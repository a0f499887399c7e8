"""What the rival of the bench of fine-tuning learns and is judged by, looked up by hand."""

import json

import numpy as np
import pytest
from mutation import mutation

from bertjax.bench.parts import finetune_rows
from bertjax.data.labelled.common import from_config
from bertjax.data.seqio_tasks import row_stream
from configs.finetune import glue, squad, tagging

PIECES = (
  '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'who', 'won', 'then', 'ada', 'love', '##lace',
  'did',
)  # fmt: skip
ID = {piece: number for number, piece in enumerate(PIECES)}


def ids(text):
  return [ID[piece] for piece in text.split()]


@pytest.fixture
def rows_of(tmp_path):
  """The rows of a recipe whose train and dev are this text."""

  def make(config, name, text, **fields):
    (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES) + '\n')
    path = tmp_path / name
    path.write_text(text)
    config.data.train = config.data.dev = str(path)
    config.data.vocab, config.length = str(tmp_path / 'vocab.txt'), 24
    config.update_from_flattened_dict(fields)
    from_config.fill_labels(config.model, config.data.task)
    from_config.ensure_vocabulary(config.data, str(tmp_path))
    return finetune_rows.make(config, row_stream.open_vocabulary(str(tmp_path)))

  return make


@mutation(
  'bench finetune: the rival learns ends as starts',
  'bertjax/bench/parts/finetune_rows.py',
  'dict(start_positions=start_n, end_positions=end_n)',
  'dict(start_positions=end_n, end_positions=start_n)',
)
def test_spans_of_questions(rows_of):
  answers = [dict(text='Ada Lovelace', answer_start=5)]
  asked = dict(id='q', question='who won', answers=answers)
  paragraphs = [dict(context='then Ada Lovelace did', qas=[asked])]
  text = json.dumps(dict(data=[dict(title='all', paragraphs=paragraphs)]))
  task = {'data.task.question': 4, 'data.task.stride': 8}
  rows = rows_of(squad.get_config('v1'), 'squad.json', text, **task)
  (row,) = rows.train
  assert row['input_ids'] == ids('[CLS] who won [SEP] then ada love ##lace did [SEP]')
  assert row['token_type_ids'] == [0] * 4 + [1] * 6 and row['attention_mask'] == [1] * 10
  assert (row['start_positions'], row['end_positions']) == (5, 7)
  # Rows are judged in a batch, so logits may be longer than their row; at CLS is no answer.
  logits_T2 = np.full((12, 2), -5.0, np.float32)
  logits_T2[5, 0] = logits_T2[7, 1] = 5.0
  assert rows.judge([logits_T2])['exact'] == 1.0
  assert rows.judge([logits_T2[:, ::-1]])['exact'] == 0.0


@mutation(
  'bench finetune: the rival learns tags of pieces that begin no word',
  'bertjax/bench/parts/finetune_rows.py',
  'np.where(w_T > 0, tag_T, UNLABELLED)',
  'np.where(w_T < 1, tag_T, UNLABELLED)',
)
def test_tags_of_words(rows_of):
  text = 'then O\nAda B-PER\nLovelace I-PER\ndid O\n\n'
  rows = rows_of(tagging.get_config('ner'), 'tags.conll', text, **{'data.task.classes': ('PER',)})
  (row,) = rows.train
  assert row['input_ids'] == ids('[CLS] then ada love ##lace did [SEP]')
  none = finetune_rows.UNLABELLED
  assert row['labels'][0] == row['labels'][4] == row['labels'][-1] == none
  outside, begin, inside, again = np.array(row['labels'])[[1, 2, 3, 5]]
  assert outside == again and len({outside, begin, inside}) == rows.outputs == 3
  logits_TC = np.eye(3, dtype=np.float32)[np.maximum(row['labels'], 0)]
  assert rows.judge([logits_TC])['f1'] == 1.0
  assert rows.judge([np.roll(logits_TC, 1, -1)])['f1'] == 0.0


@mutation(
  'bench finetune: the rival learns numbers of other rows',
  'bertjax/bench/parts/finetune_rows.py',
  'dict(labels=examples.label[LABEL].tolist())',
  'dict(labels=examples.label[LABEL][::-1].tolist())',
)
def test_classes_of_texts(rows_of):
  text = 'sentence\tlabel\nada won\t1\nlove\t0\nthen\t0\n'
  rows = rows_of(glue.get_config('sst2'), 'train.tsv', text)
  assert [row['labels'] for row in rows.train] == [1, 0, 0] and rows.outputs == 2
  assert rows.train[0]['input_ids'] == ids('[CLS] ada won [SEP]')
  logits_nC = np.array([[0, 1], [1, 0], [0, 1]], np.float32)
  assert rows.judge(list(logits_nC))['accuracy'] == pytest.approx(2 / 3)
