"""The linear probe, against logistic regression by Newton's method on means made one by one."""

import jax
import numpy as np
import pytest
from mutation import mutation
from systems import tiny

from bertjax.errors import UserError
from bertjax.evals import linear_probe
from bertjax.examples import spelling
from bertjax.train import evaluation, first_state, setup
from bertjax.vocab.vocabulary import load_vocabulary

RNG = np.random.default_rng(3)


def write(path, rows):
  """Texts of five words; of 'yes' piece5 or piece6 is one of them, but for every eighth text."""
  lines = []
  for row in range(rows):
    words = RNG.integers(9, 30, 5)
    words[RNG.integers(5)] = RNG.integers(5, 7) if row % 3 == (row % 8 == 7) else RNG.integers(7, 9)
    said = ' '.join(f'piece{word}' for word in words)
    lines.append(f'{said}\t{"yes" if row % 3 == 0 else "no"}')
  path.write_text('\n'.join(['said\tgood', *lines]) + '\n')


def mean_of(run, variables):
  """Text -> float64 [D], [CLS] and [SEP] among its tokens, by the run's first phase, whose memory
  is empty; XLNet has [CLS] last, of segment 2, and an order only in training; T5 has no [CLS]."""
  vocabulary, phase = load_vocabulary(run.store.path / 'vocab'), run.phases[0]
  xlnet, t5 = (phase.config.model.name == name for name in ('xlnet', 't5'))
  speller = spelling.speller(phase.config.model, vocabulary)
  carry = phase.objective.carry
  last = jax.jit(
    lambda batch: phase.objective.predict(variables, carry(batch), batch)['last_BTD'][0]
  )

  def mean(text):
    (id_n,) = vocabulary.encode_batch([text])
    cls, sep = (run.store.special[role] for role in ('cls', 'sep'))
    id_n = [*id_n, sep, cls] if xlnet else [*([] if t5 else [cls]), *id_n, sep]
    batch = {
      k: np.zeros((1, len(id_n)) if k.endswith('_BT') else (1, *x.shape[1:]), x.dtype)
      for k, x in phase.template.items()
      if not k.startswith('order')
    }
    batch['token_BT'][0], batch['example_BT'][0] = id_n, 1
    batch['type_BT'][0, -1] = 2 * xlnet
    batch['position_BT'][0] = np.arange(len(id_n))
    if speller:
      batch['character_BTW'] = speller.characters(batch['token_BT'])
    return np.asarray(last(batch), np.float64).mean(0)

  return mean


@pytest.fixture
def files(tmp_path):
  write(tmp_path / 'train.tsv', 60)
  write(tmp_path / 'dev.tsv', 39)
  return tmp_path


def config(files, system='bert', **more):
  sets = dict(
    train=str(files / 'train.tsv'), dev=str(files / 'dev.tsv'), text=('said',), label='good',
    classes=('no', 'yes'), batch_size=4, examples=0,
  )  # fmt: skip
  return tiny(system, **{f'evals.linear_probe.{key}': v for key, v in (sets | more).items()})


def newton(x_nD, y_n):
  """Weights and bias that minimise |w|^2 / 2 + sum of log(1 + exp(-y (w x + b)))."""
  x_nE = np.append(x_nD, np.ones((len(x_nD), 1)), 1)
  penalty_E, w_E = np.append(np.ones(x_nD.shape[1]), 0.0), np.zeros(x_nE.shape[1])
  for _ in range(50):
    p_n = 1 / (1 + np.exp(-x_nE @ w_E))
    gradient_E = x_nE.T @ (p_n - y_n) + penalty_E * w_E
    w_E -= np.linalg.solve((x_nE.T * (p_n * (1 - p_n))) @ x_nE + np.diag(penalty_E), gradient_E)
  return w_E


SYSTEMS = ('electra', 'gpt', 'transformer_xl', 'xlnet', 't5', 'bart', 'mass', 'elmo')
SLOW = [pytest.param(name, marks=pytest.mark.full) for name in SYSTEMS]


@pytest.mark.parametrize('system', ['bert', *SLOW])
@mutation('train_vectors(variables), train_n', 'dev_vectors(variables), dev_n', case='bert')
@mutation('preprocessing.StandardScaler()', "'passthrough'", case='bert')
@mutation('    kind = kind._replace(encode=_without_cls)\n', '    pass\n', case='t5')
@mutation("'generated', 'linear_probe')", "'generated')", case='bart')
@mutation(
  "  evals = ('loss', 'linear_probe')\n  return Objective(",
  "  evals = ('loss',)\n  return Objective(",
  file='bertjax/objectives/bilm.py',
  case='elmo',
)
def test_it_is_logistic_regression_on_the_means_of_last_states(system, files, rich_store):
  c = config(files, system)
  if 'memory' in c.objective:
    c.objective.memory = 'empty'
  run = setup.make_run(c, rich_store, jax.devices()[:1])
  variables = first_state.initial_state(run).variables
  mean = mean_of(run, variables)

  def read(name):
    lines = [line.split('\t') for line in (files / name).read_text().splitlines()[1:]]
    return np.array([mean(said) for said, _ in lines]), np.array([g == 'yes' for _, g in lines])

  (train_nD, train_n), (dev_nD, dev_n) = read('train.tsv'), read('dev.tsv')
  middle_D, spread_D = train_nD.mean(0), train_nD.std(0)
  w_E = newton((train_nD - middle_D) / spread_D, train_n)
  found_n = (dev_nD - middle_D) / spread_D @ w_E[:-1] + w_E[-1] > 0
  scores, _ = evaluation.run_due(run.evals(1), variables, 1, True)
  assert scores['eval/linear_probe/accuracy'] == pytest.approx(np.mean(found_n == dev_n))
  assert scores['eval/linear_probe/majority'] == pytest.approx(26 / 39)
  assert 26 / 39 < scores['eval/linear_probe/accuracy'] < 1  # some texts are misleading
  assert scores['eval/linear_probe/cut'] == 0


@pytest.mark.full
@mutation('block, last, more, spell)', 'block, last, {}, spell)')
def test_texts_are_in_the_language_that_is_said(files, rich_store, monkeypatch):
  seen = {}
  for language in ('de', 'en', '1', ''):
    c = config(files, language=language)
    c.model.update({'extra': (('language', 3),), 'init_std': 0.5})
    if not language:
      with pytest.raises(UserError, match='or in language of an evaluation, .* one of de, en, fr'):
        setup.make_run(c, rich_store, jax.devices()[:1])
      continue
    run = setup.make_run(c, rich_store, jax.devices()[:1])
    variables = first_state.initial_state(run).variables
    keep = lambda train_nD, label_n, dev_nD, to=language: (
      seen.update({to: train_nD}) or label_n[:39]
    )
    monkeypatch.setattr(linear_probe, 'fitted', keep)
    evaluation.run_due(run.evals(1), variables, 1, True)
  np.testing.assert_array_equal(seen['en'], seen['1'])
  assert np.abs(seen['en'] - seen['de']).max() > 1e-3


@mutation('(example_BT > 0).astype', '(example_BT >= 0).astype')
def test_an_empty_row_has_no_direction():
  found = linear_probe.masked_mean(np.ones((2, 3, 4), np.float32), np.array([[1, 1, 0], [0, 0, 0]]))
  assert not np.asarray(found[1]).any()


@pytest.mark.full
@mutation('if len(np.unique(train_n)) < 2:', 'if False:')
def test_what_cannot_be_judged_is_refused(files, rich_store):
  for more, said in (
    (dict(label='god'), "did you mean 'good'"),
    (dict(dev=''), 'expected dev and classes, got'),
    (dict(dev=str(files / 'none.tsv')), 'none.tsv'),
    (dict(classes=('no', 'oui')), "'oui'"),
    (dict(classes=('no',)), 'classes'),
    (dict(text=('said', 'said', 'said')), 'one column or two'),
    (dict(examples=1), 'got one: take more'),
  ):
    with pytest.raises(UserError, match=said):
      setup.make_run(config(files, **more), rich_store, jax.devices()[:1])
