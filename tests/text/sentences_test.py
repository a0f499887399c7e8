"""Texts in their frames, with blanks."""

import types

import pytest
from mutation import mutation

from bertjax.text import sentences
from bertjax.text.sentences import Frame

FRAME = Frame((1,), (2,))
# An id for each character, as a vocabulary over bytes.
LETTERS = types.SimpleNamespace(
  encode_batch=lambda parts: [[ord(c) for c in part] for part in parts],
  special=dict(mask=9), pieces={9: '<mask>'},
)  # fmt: skip


@mutation(r"rf'\s*{re.escape(each)}'", r"rf'{re.escape(each)}'")
@pytest.mark.parametrize('spelled', ['[MASK]', '<mask>'])
def test_the_space_before_a_blank_goes_with_it(spelled):
  (found,) = sentences.encode_blanks([f'ab  {spelled} c{spelled}'], LETTERS, FRAME)
  assert found.id_n.tolist() == [1, *map(ord, 'ab'), 9, *map(ord, ' c'), 9, 2]
  assert found.blanks == (3, 6) and (found.begin, found.end) == (1, 7)


@mutation('  end = room - len(frame.after)\n', '  end = room\n')
def test_a_cut_keeps_the_frame():
  (long,) = sentences.encode_blanks(['ab[MASK]cd[MASK]'], LETTERS, FRAME)
  cut = sentences.cut(long, 6, FRAME)
  assert cut.id_n.tolist() == [1, *map(ord, 'ab'), 9, ord('c'), 2]
  assert cut.blanks == (3,) and cut.end == 5
  assert sentences.cut(long, 8, FRAME) is long


@mutation('if (i := special.get(role)) is not None)', 'if (i := special.get(role)))')
def test_the_end_that_stands_before_a_causal_text_may_have_the_id_0():
  """<eos> of Transformer-XL's vocabulary, which is sorted by frequency."""
  assert sentences.causal_frame(dict(eos=0, sep=None, cls=3)) == Frame((0,))
  assert sentences.causal_frame(dict(sep=None, cls=3)) == Frame((3,))
  assert sentences.causal_frame(dict(sep=None, cls=None)) == Frame()


def test_a_causal_row_asks_at_the_token_before():
  for frame, columns, targets in (
    (FRAME, [0, 1, 2], [97, 98, 99]),
    (Frame(), [0, 1], [98, 99]),  # nothing stands before the first
  ):
    row = sentences.continued(sentences.encode(['abc'], LETTERS, frame)[0])
    assert (row.columns, row.targets) == (columns, targets)
