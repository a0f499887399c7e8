"""Answers as JSON has them."""

import pytest
from mutation import mutation

from bertjax.use import answers


@mutation('places[behind - 1][1]', 'places[first][1]')
@mutation('text.index(word, end)', 'text.index(word)')
@pytest.mark.parametrize(
  'text, tags, spans',
  [
    ('de  Anna Noor lebt in Berlin', 'O B-PER I-PER O O B-LOC', ['Anna Noor', 'Berlin']),
    ('\tin Berlin, Berlin', 'O B-LOC B-LOC', ['Berlin,', 'Berlin']),
    ('ab b b', 'O O I-X', ['b']),
    ('zu lang hier', 'B-X _ _', ['zu']),
    ('東京 に', 'B-LOC O', ['東京']),
    ('', '', []),
    ('he runs', 'PRON VERB', None),
  ],
)
def test_entities_have_their_characters(text, tags, spans):
  found = [answers.Tag(tag, 0.5) for tag in tags.split()]
  said = answers.tagged_text(text, text.split(), found)
  assert said['tags'] == tags.split() and said['tokens'] == text.split()
  if spans is None:
    assert 'spans' not in said
    return
  assert [each['text'] for each in said['spans']] == spans
  assert all(text[each['begin'] : each['end']] == each['text'] for each in said['spans'])
  if text.startswith('ab'):
    assert said['spans'][0]['begin'] == 5
