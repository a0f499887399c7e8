"""Texts with the texts that answer them."""

import dataclasses
import re

import numpy as np
import pytest
from letters import Letters
from mutation import mutation

from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.examples.labelled.common.records import Record
from bertjax.examples.labelled.common.rows import Rows
from bertjax.examples.labelled.write import TASK, Options
from bertjax.objectives import seq2seq
from configs.finetune import write as recipe

OPTIONS = Options('say {b} of {a}: {a}', 'c', 6)
RECORDS = [dict(a='xy', b='z', c='abc'), dict(a='x' * 20, b='{c}', c='abcde')]


LETTERS = Letters(dict(cls=None, sep=1, pad=3))


def encode(rows, options=OPTIONS, length=16):
  records = [Record(f'f.tsv, line {i}', row) for i, row in enumerate(rows, 2)]
  return TASK.encode(records, options, LETTERS, length)


def spelled(ids):
  return [chr(i) if i > 3 else int(i) for i in ids]


@mutation('*frame.before, *ids[:room], *frame.after', '*frame.before, *ids, *frame.after][:length')
@mutation('np.append(frame.begin, ids[:-1])', 'np.append(frame.begin, ids[1:])')
def test_both_texts_have_their_ends_and_the_decoder_reads_late():
  found = encode(RECORDS)
  assert [spelled(ids) for ids in found.id_n] == [
    [*'say z of xy: xy', 1], [*'say {c} of xxxx', 1]
  ]  # fmt: skip
  assert found.cut == 1 and found.truth == ['abc', 'abcde']
  served = Rows(LETTERS, found, 16, seed=0, together=2)  # pyright: ignore
  batch = served.batch(np.arange(2), shuffle=False)
  assert spelled(batch['out_token_BU'][0]) == [0, *'abc', 3, 3, 3, 3]
  assert spelled(batch['target_BU'][0]) == [*'abc', 1, 0, 0, 0, 0]
  np.testing.assert_array_equal(batch['weight_BU'].sum(1), [4, 6])
  np.testing.assert_array_equal(batch['out_example_BU'], batch['weight_BU'])
  assert batch['out_position_BU'][1].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
  assert served.template()['out_token_BU'].shape == (1, 8)


def test_framed_texts_begin_with_cls_and_the_decoder_with_sep():
  options = dataclasses.replace(OPTIONS, framed=True)
  found = TASK.encode(
    [Record('f.tsv, line 2', RECORDS[0])], options, Letters(dict(cls=0, sep=2, pad=1)), 9
  )
  assert spelled(found.id_n[0]) == [0, *'say z o', 2] and found.cut == 1
  assert spelled(found.second['out_token'][0]) == [2, 0, *'abc']
  assert spelled(found.second['target'][0]) == [0, *'abc', 2]
  with pytest.raises(UserError, match='the vocabulary has no cls'):
    encode(RECORDS, options)


@pytest.mark.parametrize(
  ('row', 'said'),
  [
    (dict(c=''), "line 2: expected a text in 'c', got '', which has no token"),
    (
      dict(c='abcdef'),
      "line 2: 'c' has 7 tokens with its special ones, expected .*target_length=6 at most",
    ),
    (dict(c=3), "line 2: expected a string in 'c', got 3"),
    (dict(a=None), "line 2: expected a string in 'a', got None"),
  ],
)
def test_what_is_wrong_is_named_by_its_line(row, said):
  with pytest.raises(UserError, match=said):
    encode([RECORDS[0] | row])


@pytest.mark.parametrize('read', ['no column', 'an {open', 'a {} b', '{0!r}', '{a:>8}'])
def test_a_form_without_columns_is_refused(read):
  with pytest.raises(UserError, match=re.escape('config.data.task.read')):
    TASK.check(dataclasses.replace(OPTIONS, read=read))


def test_a_table_is_read_by_the_columns_of_its_form(tmp_path):
  file = tmp_path / 'f.tsv'
  file.write_text('a\tb\tc\n1\t2\t3\n')
  (record,) = TASK.read(str(file), OPTIONS)
  assert record.values == dict(a='1', b='2', c='3')
  with pytest.raises(UserError, match='columns of'):
    list(TASK.read(str(file), dataclasses.replace(OPTIONS, read='{d}')))


@pytest.mark.parametrize('kind', ['t5', 'bart'])
@mutation("task.get('framed', False) != model.framed", 'False')
def test_a_frame_that_the_model_does_not_read_is_refused(kind):
  config = recipe.get_config(kind)
  sections.complete(config)
  config.model.update(vocab_size=9, **({'zero_row': None} if kind == 'bart' else {}))
  seq2seq.OBJECTIVE.make(config)
  config.data.task.framed = not config.data.task.framed
  with pytest.raises(UserError, match=f'framed: expected {kind == "bart"}, as the model reads'):
    seq2seq.OBJECTIVE.make(config)
