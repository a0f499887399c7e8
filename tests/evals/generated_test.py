"""Scores of texts that were written, on cases that can be counted by hand."""

import math
import types
from typing import Any

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.evals import generated


@mutation('list(found), [list(wanted)]', 'list(wanted), [list(found)]')
@mutation('scores.f1(*pair, how)', 'scores.exact(*pair, how)')
def test_scores_of_one_text():
  found = generated.judged(['The cat, on the mat'], ['the cat, sat on the mat'])
  assert found['exact'] == 0 and found['f1'] == pytest.approx(2 * 3 / (3 + 4))  # without articles
  assert found['rouge_l'] == pytest.approx(2 * 5 / (5 + 6))  # without punctuation
  # Of 6, 5, 4, 3 grams 5, 4, 2, 1 are in the text that was wanted, which has 7 words.
  shares = (5 / 6) * (3 / 5) * (1 / 4) * (1 / 6)
  assert found['bleu'] == pytest.approx(math.exp(1 - 7 / 6) * shares**0.25)


def test_an_answer_is_right_but_for_capitals_and_articles():
  found = generated.judged(['The red house!', ''], ['red house', 'blue'])
  assert found['exact'] == found['f1'] == 0.5
  assert generated.judged(['a b c d'], ['a b c d']) == pytest.approx(
    dict(exact=1, f1=1, rouge_l=1, bleu=1)
  )


def test_a_task_without_texts_to_be_written_is_refused():
  task = types.SimpleNamespace(name='classify')
  config = types.SimpleNamespace(data=types.SimpleNamespace(task=task))
  subject: Any = types.SimpleNamespace(config=config, key='config.evals.dev')
  with pytest.raises(UserError, match="config.evals.dev judges .* expected .*'write', got 'cl"):
    generated.make(subject, generated.Options())
