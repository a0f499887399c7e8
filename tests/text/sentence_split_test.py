"""The sentence splitter."""

import numpy as np
import pytest

from bertjax.text import sentence_split

CASES = (
  'Dr. A. Smith left.| "Why?" he asked.',
  'He lives in the U.S.| The weather (e.g. rain) is bad.| It cost $3.50.| Really?!| Yes.',
  'The U.S. Army came at 5 p.m. on Jan. 3.| Then it left.',
  'J. R. R. Tolkien wrote it.| See Fig. 3 and pp. 4.| The end',
  'Mr. Jones Jr. came.| (He left.)| She stayed.',
  'It was No. 5 of them.| No.| That is all.',
  '1. Introduction.| 2 more.',
  'Wait...| What?| "Go!" she said.| "Fine."| He left.',
  'It ended in 1999.| Then it began.',
  'Am 3. Oktober war es kalt.| Dann kam Prof. Müller, z.B. im Bus.',
  '¿Qué tal?| ¡Hola!| Son las 3.',
  'Он ушёл.| Она осталась!',
  'Am I. B. Singer?| He and I.| Yes',
  '今天天气很好。|我们去公园吧！|走？',
  '「はい。」と言った。|終わり。',
  'यह है।| वह है।',
  'هل هذا صحيح؟| نعم.',
  'Version 3.11.7 of foo.bar is out.| Get it at example.com today.',
  '他说：“我来了。”',
  '「はい。」',
  '真的吗？！| 是。」',
  'हाँ।।',
  'no end here',
  'A list: a) one; b) two! done',
)


@pytest.mark.parametrize('case', CASES)
def test_sentences_end_where_a_reader_ends_them(case):
  expected = [part.strip() for part in case.split('|')]
  assert sentence_split.split_sentences(case.replace('|', '')) == expected


@pytest.mark.parametrize('line', ['.' * 10**6, '!' * 10**6 + 'x', 'Fig. 1, ' * 10**5])
def test_a_million_marks_take_no_time_to_speak_of(line):
  """Minutes and hours where each end is looked for from every mark before it."""
  assert sentence_split.split_sentences(line) == [line.strip()]


def test_nothing_but_white_space_is_lost():
  draw = np.random.default_rng(0)
  alphabet = [*'aB1.!?…。！？।؟"\'()「」”»,;: \t\u3000\u00a0é漢あ', 'Dr.', 'e.g.', 'U.S.', ' The ']
  for _ in range(3000):
    text = ''.join(draw.choice(alphabet, draw.integers(0, 60)))
    sentences = sentence_split.split_sentences(text)
    assert ''.join(''.join(sentences).split()) == ''.join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_detection():
  lines = 'A sentence.\nAnother one.\nA third. Yes.\nA fourth one.'
  assert sentence_split.detect([lines]) == 'lines'
  assert sentence_split.detect(['A paragraph. It goes on.\nA title']) == 'sentences'


def test_decode_names_the_byte_and_replaces_on_request():
  with pytest.raises(ValueError, match=r'not UTF-8 at its byte 3 \(0xff'):
    sentence_split.decode(b'abc\xff', 'strict')
  assert sentence_split.decode(b'abc\xff', 'replace') == 'abc\ufffd'
