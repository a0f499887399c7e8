"""Zero-shot similarity of texts, against a plain account of it, one text after the other."""

import jax
import numpy as np
import pytest
import text_means
from mutation import mutation
from systems import tiny

from bertjax.errors import UserError
from bertjax.evals import similarity
from bertjax.evals.held_out import vectors
from bertjax.train import evaluation, first_state, setup


def text(*numbers):
  return ' '.join(f'piece{number}' for number in numbers)


LONG = text(*range(20, 34))
PAIRS = [
  (text(5, 6, 7, 8), text(5, 8, 6)), (text(9, 10), LONG), (LONG, text(11, 12, 5)),
  (text(14, 5, 15), text(14, 5, 16)), (text(17, 5, 18), text(5, 20, 19)),
  (text(21, 22), text(23, 24, 25)), (text(27, 9, 28), text(29, 5, 28, 27, 9)),
]  # fmt: skip
SAID = [4.5, 1.0, 0.5, 5.0, 2.5, 0.0, 2.0]


@pytest.fixture
def file(tmp_path):
  rows = [f'{one}\t{other}\t{said}' for (one, other), said in zip(PAIRS, SAID, strict=True)]
  path = tmp_path / 'pairs.tsv'
  path.write_text('\n'.join(['one\tother\tsaid', *rows]) + '\n')
  return path


def config(system, file, **more):
  sets = {'file': str(file), 'text': ('one', 'other'), 'score': 'said', 'batch_size': 4} | more
  return tiny(system, **{f'evals.similarity.{key}': value for key, value in sets.items()})


def ranks(values):
  return np.argsort(np.argsort(values)).astype(float)


def correlation(one, other):
  one, other = one - np.mean(one), other - np.mean(other)
  return float(one @ other / np.sqrt((one @ one) * (other @ other)))


@pytest.mark.parametrize('system', ['bert', pytest.param('electra', marks=pytest.mark.full)])
@mutation(
  'similarity: padding counts as a token',
  'bertjax/evals/held_out/vectors.py',
  '(example_BT > 0).astype',
  '(example_BT >= 0).astype',
  case='bert',
)
@mutation(
  'similarity: products of means that are not of length 1',
  'bertjax/evals/similarity.py',
  ' / np.maximum(norms_n, 1e-12)',
  '',
  case='bert',
)
def test_it_is_the_correlation_of_cosines_of_means(system, file, rich_store):
  c = config(system, file)
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  variables = first_state.initial_state(c, run).variables
  mean = text_means.mean_of(run, variables)

  cosines = []
  for one, other in PAIRS:
    a, b = mean(one), mean(other)
    cosines.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
  found, _ = evaluation.run(run.phases, False, variables, 1, True)
  assert found['eval/similarity/pearson'] == pytest.approx(correlation(cosines, SAID), abs=1e-4)
  spearman = correlation(ranks(cosines), ranks(SAID))
  assert found['eval/similarity/spearman'] == pytest.approx(spearman, abs=1e-6)
  assert found['eval/similarity/cut'] == 0


@mutation(
  'vectors: texts are in language 0, whatever they are in',
  'bertjax/evals/held_out/vectors.py',
  '0, batch_size, extra_ids=ids)',
  '0, batch_size)',
)
def test_texts_are_in_the_language_that_is_said(file, rich_store):
  more = {'model.extra': (('language', 3),), 'model.init_std': 0.5}
  found = {}
  for language in ('de', 'en', '1'):
    c = tiny('bert', **more)
    c.evals.similarity.update(config('bert', file, language=language).evals.similarity)
    run = setup.make_run(c, rich_store, jax.devices()[:1])
    variables = first_state.initial_state(c, run).variables
    found[language] = evaluation.run(run.phases, False, variables, 1, True)[0]
  score = {name: each['eval/similarity/pearson'] for name, each in found.items()}
  assert score['en'] == score['1'] != score['de']
  c.evals.similarity.language = ''
  with pytest.raises(UserError, match='or in language of an evaluation, .* one of de, en, fr'):
    setup.make_run(c, rich_store, jax.devices()[:1])


def test_what_cannot_be_judged_is_refused(file, rich_store):
  (file.parent / 'empty.tsv').write_text('one\tother\tsaid\n')
  for more, said in (
    (dict(score='sayd'), "did you mean 'said'"),
    (dict(file=str(file.parent / 'none.tsv')), 'none.tsv'),
    (dict(file=str(file.parent / 'empty.tsv')), 'has no examples'),
    (dict(score='one'), 'piece5'),
  ):
    with pytest.raises(UserError, match=said):
      setup.make_run(config('bert', more.pop('file', file), **more), rich_store, jax.devices()[:1])


def test_without_a_file_nothing_is_judged(rich_store):
  run = setup.make_run(tiny('bert'), rich_store, jax.devices()[:1])
  assert 'similarity' not in [s.name for s in run.phases[0].evals]


def test_an_empty_row_has_no_direction():
  found = vectors.masked_mean(np.ones((2, 3, 4), np.float32), np.array([[1, 1, 0], [0, 0, 0]]))
  assert not np.asarray(found[1]).any()
  np.testing.assert_allclose(similarity.cosines(found, np.ones((2, 4))), [1, 0])
