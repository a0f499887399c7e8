"""The corpus that every Python carries."""

import re

import pytest

from bertjax.text import python_docs


@pytest.mark.full
def test_corpus_is_prose_in_a_fixed_order():
  documents = [document.decode() for document in python_docs.documents()]
  assert [d.encode() for d in documents[:5]] == [
    d for d, _ in zip(python_docs.documents(), range(5), strict=False)
  ]
  text = '\n'.join(documents)
  assert len(documents) > 400 and len(text) > 1_000_000
  assert any(d.startswith('Assignment statements are used to (re)bind names') for d in documents)
  paragraphs = text.split('\n')
  assert all(len(p.split()) >= 3 for p in paragraphs)
  code = [p for p in paragraphs if re.search(r'>>>|^\.\. |:func:|::=', p)]
  assert len(code) < 0.01 * len(paragraphs), code[:5]


def test_docstrings_are_reflowed_and_cleaned():
  text = (
    'Return the :class:`~pathlib.Path` of a\n   ``file``, or *None*.\n\n>>> x = 1\n1\n\n'
    'Options\n-------\n\n* the first one of\n  the list\n* the second of the list\n\n'
    '   a = f(b)[0] + {1}'
  )
  assert list(python_docs._paragraphs(text)) == [
    'Return the pathlib.Path of a file, or None.',
    'the first one of the list',
    'the second of the list',
  ]
