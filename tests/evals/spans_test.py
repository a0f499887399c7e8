"""Answers from hand-made scores of tokens, and SQuAD's scores of answers that can be counted."""

import numpy as np
import pytest
from mutation import mutation

from bertjax.evals.squad import decoding, programs, scores
from bertjax.examples.labelled.spans import Context, Window
from bertjax.types import Beam

WORDS = 'the cat sat on the mat and the dog sat by it'.split()


def context_of(words):
  """A text whose tokens are its words."""
  ends = np.cumsum([len(word) + 1 for word in words]) - 1
  begins = ends - [len(word) for word in words]
  return Context(' '.join(words), np.arange(len(words)), begins, ends)


def window(first, stop, question=0):
  """[CLS] who [SEP] words [SEP]"""
  size = 3 + stop - first + 1
  zeros = np.zeros(size, np.int32)
  return Window(question, first, stop, 3, 0, zeros, zeros, 0)


def logits_of(row, start=(), end=(), null=0.0):
  """Scores of the tokens of a window, by their numbers in the text; -9 of all others."""
  found_T2 = np.full((len(row.id_n) + 5, 2), -9.0, np.float32)  # five of padding, which score most
  found_T2[len(row.id_n) :] = 50
  found_T2[0] = null / 2
  for column, given in enumerate((start, end)):
    for token, score in dict(given).items():
      found_T2[row.column + token - row.first, column] = score
  return found_T2


def decode(rows, logits, best=20, longest=30):
  (found,) = decoding.decode(rows, [context_of(WORDS)], logits, decoding.Limits(best, longest))
  return found


@mutation('(start_n >= row.column) & (start_n <= end_n)', '(start_n >= row.column)')
@mutation('(start_n >= row.column) & (start_n <= end_n)', '(start_n <= end_n)')
@mutation('& (end_n < stop)', '& (end_n <= stop)')
def test_an_answer_is_in_the_text_and_begins_before_it_ends():
  row = window(0, 12)
  logits = logits_of(row, start={5: 4, 8: 3, -1: 9}, end={2: 9, 5: 3, 12: 9})
  found = decode([row], [logits])
  assert found.candidates[0] == decoding.Candidate('mat', WORDS_AT[5], 7.0)


WORDS_AT = context_of(WORDS).begin_n.tolist()


@mutation('end_n - start_n < longest', 'end_n - start_n <= longest')
def test_an_answer_has_no_more_tokens_than_allowed():
  row = window(0, 12)
  logits = logits_of(row, start={1: 5}, end={3: 5, 2: 4})
  assert decode([row], [logits], longest=3).answer(None) == 'cat sat on'
  assert decode([row], [logits], longest=2).answer(None) == 'cat sat'


@mutation("(-logits_T2, axis=0, kind='stable')[:best].T", "(-logits_T2, axis=0, kind='stable').T")
def test_only_the_best_of_each_window_are_paired():
  row = window(0, 12)
  logits = logits_of(row, start={8: 5, 1: 4}, end={2: 5, 3: 4})
  assert decode([row], [logits], best=2).answer(None) == 'cat sat'
  # 8 does not come before 2.
  assert decode([row], [logits], best=1) == decoding.Decoded((), 0.0, 0.0)
  assert decode([row], [logits], best=1).answer(None) == ''


@mutation('most_n = shown_n[start_n - row.column]', 'most_n = shown_n[start_n - row.column] | True')
@mutation("for i in np.argsort(-score_n, kind='stable'):", 'for i in range(len(score_n)):')
def test_a_token_begins_an_answer_where_it_has_most_context():
  rows = [window(0, 8), window(4, 12)]  # 5 has 5 and 2 around it, and 1 and 6; 6 has 1, and 2
  logits = [logits_of(rows[0], {6: 9, 5: 3}, {7: 3}), logits_of(rows[1], {6: 4, 5: 9}, {7: 4})]
  found = decode(rows, logits)
  assert [c.score for c in found.candidates[:2]] == [8.0, 6.0]
  assert [c.text for c in found.candidates[:2]] == ['and the', 'mat and the']


@mutation('inf, context_Wn + 0.01 * (stop_W1 - first_W1)', 'inf, context_Wn + 1e-3 * first_W1')
def test_most_context_is_that_of_the_original():
  rng = np.random.default_rng(0)
  for _ in range(50):
    size, room, stride = int(rng.integers(1, 60)), int(rng.integers(8, 20)), int(rng.integers(1, 8))
    begins = [0]
    while begins[-1] + room < size:
      begins.append(begins[-1] + stride)
    rows = [window(b, min(b + room, size)) for b in begins]
    found = decoding.most_context(rows)
    for token in range(size):  # run_squad.py:_check_is_max_context
      having = {n: row for n, row in enumerate(rows) if row.first <= token < row.stop}
      most = {
        n: min(token - row.first, row.stop - 1 - token) + 0.01 * (row.stop - row.first)
        for n, row in having.items()
      }
      shows = [n for n, row in having.items() if found[n][token - row.first]]
      assert shows == [max(most, key=most.__getitem__)]  # the first of the best


@mutation('candidates.setdefault(text, ', 'candidates.setdefault(text + str(i), ')
def test_equal_texts_are_one_candidate_and_ties_go_to_the_better_start():
  row = window(0, 12)
  logits = logits_of(row, start={0: 2, 4: 3, 7: 1}, end={0: 3, 4: 2, 7: 4})
  found = decode([row], [logits], best=3)
  # 4 to 7 scores 7, 0 to 7 scores 6; 'the' is 0, 4 and 7, 5 each
  assert [(c.text, c.score) for c in found.candidates] == [
    ('the mat and the', 7.0), ('the cat sat on the mat and the', 6.0), ('the', 5.0),
  ]  # fmt: skip
  assert found.candidates[2].begin == WORDS_AT[4]  # its start ranks above those of 0 and 7
  logits = logits_of(row, start={0: 2, 4: 3, 7: 1}, end={0: 6, 4: 2, 7: 4})  # 'the' is 8, 5 and 5
  found = decode([row], [logits], best=4)
  assert [c.score for c in found.candidates] == [8.0, 7.0, 6.0, 4.0]


@mutation('null = min(float(', 'null = max(float(')
@mutation('self.odds > threshold', 'self.odds >= threshold')
def test_no_answer_is_said_where_its_least_score_beats_the_best_by_more_than_the_threshold():
  rows = [window(0, 8), window(4, 12)]
  logits = [logits_of(rows[0], {1: 2}, {1: 3}, null=8), logits_of(rows[1], {}, {}, null=7)]
  found = decode(rows, logits)
  assert found.null == 7.0 and found.odds == 2.0
  assert found.answer(2.0) == 'cat' and found.answer(1.9) == '' and found.answer(None) == 'cat'


@mutation(
  'begin, end = int(context.begin_n[first_n[i]]),',
  "begin, end = context.text.rfind(' ', 0, int(context.begin_n[first_n[i]])) + 1,",
)
def test_an_answer_may_begin_and_end_inside_of_a_word():
  """run_squad.py:write_predictions takes the ## of any piece away before it looks for the text."""
  text, row = 'unplayable  games, here', window(0, 6)
  begin_n = np.array([0, 2, 6, 12, 17, 19])
  context = Context(text, np.arange(6), begin_n, np.array([2, 6, 10, 17, 18, 23]))

  def answer(first, last):
    logits, limits = logits_of(row, {first: 5}, {last: 5}), decoding.Limits(1, 30)
    (found,) = decoding.decode([row], [context], [logits], limits)
    assert text[found.candidates[0].begin :].startswith(found.answer(None))
    return found.answer(None)

  assert answer(0, 0) == 'un' and answer(1, 2) == 'playable' and answer(1, 1) == 'play'
  assert answer(2, 4) == 'able  games,'


def beam_of(rng, row, size):
  """A beam of random columns, those of padding too, with the scores of its starts in order."""
  columns = len(row.id_n) + 5
  order = lambda *shape: -np.sort(-rng.normal(size=shape).astype(np.float32), -1)
  ends = np.stack([rng.permutation(columns)[:size] for _ in range(size)])
  starts = rng.permutation(columns)[:size]
  return Beam(order(size), starts, order(size, size), ends, np.float32(rng.normal()))


def beam_answers(rows, context, beams, best, longest):
  """(text -> score, odds) by the definition: every start with each of its own ends."""
  found, shown = {}, decoding.most_context(rows)
  for row, most, beam in zip(rows, shown, beams, strict=True):
    for i in range(min(best, len(beam.start_BK))):
      for j in range(min(best, len(beam.start_BK))):
        first = beam.start_column_BK[i] - row.column + row.first
        last = beam.end_column_BKK[i, j] - row.column + row.first
        inside = row.first <= first <= last < row.stop and last - first + 1 <= longest
        if inside and most[first - row.first]:
          text = context.text[context.begin_n[first] : context.end_n[last]]
          score = float(beam.start_BK[i]) + float(beam.end_BKK[i, j])
          found[text] = max(score, found.get(text, -np.inf))
  return found, min(float(beam.none_B) for beam in beams)


@mutation('end_nn.ravel()', 'np.tile(end_nn[0], len(start_n))')
@mutation('[:best, None].astype(np.float64) + said', '[:best, None].astype(np.float64) + 0 * said')
@mutation('odds = min(float(beam.none_B)', 'odds = max(float(beam.none_B)')
def test_answers_of_a_beam_are_those_of_the_definition():
  rng, context = np.random.default_rng(0), context_of(WORDS)
  some = 0
  for _ in range(40):
    rows = [window(0, 8), window(4, 12)]
    size, best, longest = int(rng.integers(3, 7)), int(rng.integers(2, 8)), int(rng.integers(1, 6))
    beams = [beam_of(rng, row, size) for row in rows]
    found = decode(rows, beams, best, longest)
    want, odds = beam_answers(rows, context, beams, best, longest)
    ranked = sorted(want.items(), key=lambda each: -each[1])[:best]
    assert [(c.text, c.score) for c in found.candidates] == [
      (t, pytest.approx(s)) for t, s in ranked
    ]
    assert found.odds == odds and found.answer(odds) == (ranked[0][0] if ranked else '')
    assert found.answer(odds - 1e-6) == ''
    scores_n = np.array([*(s for _, s in ranked)] or [0.0])
    null = np.exp(found.null) / (np.exp(found.null) + np.exp(scores_n).sum())
    assert null == pytest.approx(1 / (1 + np.exp(-odds)))  # its share is what the head says
    some += len(ranked) > 1
  assert some > 10


# Gold, answer, exact match and F1 of SQuAD's evaluation program.
CASES = [
  ('the Cat', 'cat!', 1, 1.0),
  ('a an the', '', 1, 1.0),
  ('', 'the.', 1, 1.0),
  ('cat', '', 0, 0.0),
  ('', 'cat', 0, 0.0),
  ('cat sat', 'sat cat', 0, 1.0),
  ('the cat sat there', 'cat there', 0, 0.8),
  ('cat cat dog', 'cat cat', 0, 0.8),
  ('U.S.', 'us', 1, 1.0),
  ('well-known', 'well known', 0, 0.0),
  ('theater an', 'theater', 1, 1.0),
  ('1,000 \t km', '1000 km', 1, 1.0),
  ('«cat»', 'cat', 0, 0.0),
  ('dog', 'cat', 0, 0.0),
]


@pytest.mark.parametrize(('gold', 'text', 'exact', 'f1'), CASES)
@mutation(
  "_ENGLISH.sub(' ', text.lower().translate(_ASCII))",
  'text.lower().translate(_ASCII)',
  case='the Cat-cat!-1-1.0',
)
@mutation(
  '(collections.Counter(theirs) & collections.Counter(ours)).total()',
  'len(set(theirs) & set(ours))',
  case='cat cat dog-cat cat-0-0.8',
)
def test_answers_are_compared_as_words(gold, text, exact, f1):
  assert scores.exact(gold, text) == exact
  assert scores.f1(gold, text) == pytest.approx(f1)


# By hand from the programs: characters of the longest common run (CMRC), of the bag (MLQA).
PROGRAMS = [
  ('squad', '北京大学', '北京', 0, 0),
  ('cmrc', '北京大学', '北京', 0, 2 / 3),
  ('mlqa_zh', '北京大学', '北京', 0, 2 / 3),
  ('cmrc', '北京的大学', '北京大学', 0, 4 / 9),  # a run of two
  ('mlqa_zh', '北京的大学', '北京大学', 0, 8 / 9),
  ('cmrc', '《红楼梦》', '红楼梦。', 1, 1),
  ('cmrc', '《红楼梦》(上)', '红楼梦', 0, 2 * 3 / 9),  # drops no ASCII brackets
  ('mlqa_zh', '《红楼梦》(上)', '红楼梦', 0, 6 / 7),
  ('cmrc', '2018年 Nobel Prize', '2018年 nobel', 0, 6 / 7),
  ('mlqa_zh', 'BERT模型', 'bert', 0, 2 / 4),
  ('mlqa_de', 'das alte Haus', 'Haus, altes', 0, 2 / 4),
  ('mlqa_es', '¿la Casa?', 'una casa', 1, 1),
  ('mlqa_vi', 'những con mèo', 'con mèo', 1, 1),
  ('mlqa_hi', 'लाल किला।', 'लाल किला', 1, 1),
  ('mlqa_ar', 'البيت', 'بيت', 1, 1),
  ('mlqa_en', 'the “cat”', 'Cat', 1, 1),
]


@pytest.mark.parametrize(('program', 'gold', 'text', 'exact', 'f1'), PROGRAMS)
@mutation("' \\1 '", "'\\1'")
@mutation('_CMRC_PARTS.findall(whole(text)), _run', '_CMRC_PARTS.findall(whole(text)), _bag')
def test_programs_of_other_languages(program, gold, text, exact, f1):
  found = [scores.Answered(('nothing', gold), text, 0.0)]
  judged = scores.judge(found, None, programs.named(program))
  assert judged == dict(exact=exact, f1=pytest.approx(f1))
  assert scores.judge(found, 1.0, programs.named(program))['f1'] == pytest.approx(f1)


@mutation('max((score(g, each.text)', 'min((score(g, each.text)')
def test_an_answer_has_the_best_of_its_scores():
  found = [
    scores.Answered(('cat', 'the black cat'), 'black cat', 0.0),
    scores.Answered(('dog',), 'big dog', 0.0),
  ]
  assert scores.judge(found, None) == dict(exact=0.5, f1=(1 + 2 / 3) / 2)


@mutation('overlap(gold, text) if words(gold) else 0.0', 'overlap(gold, text)')
def test_where_all_questions_have_an_answer_one_without_words_is_judged_as_in_version_1():
  """Its program compares what is left, gives no f1 where no word is common, leaves no gold out."""
  found = [scores.Answered(('The', 'cat'), 'a', 0.0)]
  assert scores.judge(found, None) == dict(exact=1.0, f1=0.0)
  judged = scores.judge(found, 1.0)  # version 2.0 has 'cat' alone
  assert (judged['exact'], judged['f1']) == (0.0, 0.0)
  judged = scores.judge([scores.Answered(('The',), 'a', 0.0)], 1.0)
  assert (judged['exact'], judged['f1']) == (1.0, 1.0)


@mutation('where(odds_n > threshold, ~has_n, raw_n)', 'where(odds_n > threshold, True, raw_n)')
@mutation("np.argsort(odds_n, kind='stable')", "np.argsort(-odds_n, kind='stable')")
def test_scores_of_questions_without_answers():
  found = [
    scores.Answered(('cat',), 'cat', -3.0),
    scores.Answered(('cat',), 'dog', -2.0),
    scores.Answered((), 'cat', -1.0),
    scores.Answered(('cat',), 'cat', 1.0),
    scores.Answered((), 'cat', 2.0),
  ]
  judged = scores.judge(found, 0.0)
  assert judged == dict(
    exact=2 / 5, f1=2 / 5, has_answer_exact=1 / 3, has_answer_f1=1 / 3, no_answer=1 / 2,
    best_exact=3 / 5, best_f1=3 / 5, best_exact_threshold=-3.0, best_f1_threshold=-3.0,
  )  # fmt: skip
  assert judged.keys() == scores.names(True)
  assert scores.judge(found, -3.0)['exact'] == judged['best_exact']


def test_the_best_threshold_says_no_answer_where_all_answers_are_wrong():
  found = [scores.Answered((), 'cat', -1.0), scores.Answered(('cat',), 'dog', -2.0)]
  judged = scores.judge(found, 0.0)
  assert (judged['best_exact'], judged['best_exact_threshold']) == (0.5, 0.0)
  assert 'no_answer' not in scores.judge(found[1:], 0.0)
