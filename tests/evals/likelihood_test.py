"""Answers are ranked by their likelihood, as `Model.score` gives it of whole texts."""

import json

import jax
import numpy as np
import pytest
from mutation import mutation
from systems import tiny

import bertjax
from bertjax.errors import UserError
from bertjax.evals import likelihood
from bertjax.examples.labelled.common.questions import Question
from bertjax.sources import runs
from bertjax.train import evaluation, first_state, setup
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import read_vocabulary


def questions(count=12):
  """Questions in HellaSwag's form, of words that the store knows or does not."""
  draw, words = np.random.default_rng(0), ['the', 'a', 'of', 'in', 'and', 'it', 'was', 'one']
  said = lambda low, high: ' '.join(draw.choice(words, draw.integers(low, high)))
  return [
    dict(ctx=said(1, 40), endings=[said(1, 6) for _ in range(3)], label=int(draw.integers(3)))
    for _ in range(count)
  ]


@mutation('range(len(ids) - len(own_n) - 1, len(ids) - 1)', 'range(1, 1 + len(own_n))')
@mutation('by(nll_n / size_n)', 'by(nll_n)')
def test_the_likeliest_answer_is_chosen(rich_store, tmp_path):
  asked = questions()
  (tmp_path / 'dev.jsonl').write_text('\n'.join(map(json.dumps, asked)))
  c = tiny('gpt', **{'evals.zero': dict(type='likelihood', file=str(tmp_path / 'dev.jsonl'))})
  c.evals.zero.batch_size = 8
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  state = first_state.initial_state(run)
  grown = jax.tree.map(lambda x: x * (8.0 if x.ndim > 1 else 1.0), state.variables)
  scores, _ = evaluation.run_due(run.evals(1), grown, 1, True)
  vocabulary = read_vocabulary(f'{rich_store}/vocab')
  (tmp_path / 'run').mkdir()
  params = jax.device_get(grown['params'])
  runs.write_run(tmp_path / 'run', run.timeline.phases[0].config, params, vocabulary, {})
  model = bertjax.Model.load(tmp_path / 'run')
  texts = [text for x in asked for text in (x['ctx'], *(f'{x["ctx"]} {e}' for e in x['endings']))]
  likely = dict(zip(texts, model.score(texts), strict=True))
  right = {'accuracy': 0, 'accuracy_norm': 0}
  for each in asked:
    whole = [likely[f'{each["ctx"]} {ending}'] for ending in each['endings']]
    before = likely[each['ctx']]
    found = [(s.log_likelihood - before.log_likelihood, s.tokens - before.tokens) for s in whole]
    right['accuracy'] += int(np.argmax([x for x, _ in found]) == each['label'])
    right['accuracy_norm'] += int(np.argmax([x / n for x, n in found]) == each['label'])
  for name, count in right.items():
    assert scores[f'eval/zero/{name}'] == pytest.approx(count / len(asked))
  assert right['accuracy'] != right['accuracy_norm']  # or one of the two proves nothing


@mutation('  model.require_forward()\n', '')
def test_a_model_that_reads_backward_is_refused_before_the_first_step(rich_store):
  c = tiny('ulmfit', **{'evals.zero': dict(type='likelihood', file='dev.jsonl')})
  c.model.backward = True
  with pytest.raises(UserError, match='backward=True predicts the token before'):
    setup.make_run(c, rich_store, jax.devices()[:1])


@mutation('context_n[-room:]', 'context_n[:room]')
def test_a_long_context_loses_its_beginning(rich_store):
  vocabulary = read_vocabulary(f'{rich_store}/vocab')
  asked = Question('line 1', 'a of the the in', '', ['one', 'it was'], 0)
  whole, _ = likelihood.rows_of([asked], vocabulary, (7,), 100)
  rows, cut = likelihood.rows_of([asked], vocabulary, (7,), 5)
  assert cut == 2
  for row, long in zip(rows, whole, strict=True):
    assert row.id_n.tolist() == [7, *long.id_n[-4:]]
    assert row.targets == long.targets
    assert list(row.columns) == [c + 5 - len(long.id_n) for c in long.columns]
  with pytest.raises(UserError, match='line 1: expected answers of 1 to 1 tokens'):
    likelihood.rows_of([asked], vocabulary, (7,), 3)


@mutation('ids[:-1] if self.ends_lines', 'ids[:-1] if False')
def test_lines_that_a_vocabulary_ends_go_on_in_the_answer(tmp_path):
  TRAINERS['words'](['the cat saw a dog', 'a dog sat'], 300, False, tmp_path)
  vocabulary = read_vocabulary(tmp_path)
  asked = Question('line 1', 'the cat', '', ['saw a', 'sat'], 0)
  rows, _ = likelihood.rows_of([asked], vocabulary, (), 9)
  ids = lambda text: vocabulary.encode_batch([text])[0][:-1].tolist()
  assert [row.id_n.tolist() for row in rows] == [ids('the cat saw a'), ids('the cat sat')]
  assert [row.targets for row in rows] == [ids('saw a'), ids('sat')]
