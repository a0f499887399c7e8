"""NT-ASGD: when averaging begins, what is averaged, judged and kept, and a resume of it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from mutation import mutation
from systems import tiny

from bertjax.checkpoint import reading
from bertjax.config.keys import Best
from bertjax.errors import UserError
from bertjax.optim import averaging
from bertjax.train import evaluation, loop, resolve, setup
from bertjax.train.step import State
from bertjax.train.watch.patience import Patience

BEST = Best('eval/lm', 'min')


@pytest.fixture(scope='module')
def golden(shared):
  return np.load(shared / 'golden' / 'family' / 'ulmfit_schedules.npz')


@mutation('self._before[: -self._lag]', 'self._before')
@mutation('sign * score < max(old)', 'sign * score <= max(old)')
def test_averaging_begins_where_the_original_switches(golden):
  """The rule of awd-lstm-lm, of 40 curves; each evaluation is that of a run that was resumed."""
  for losses, epoch in zip(golden['ntasgd/losses'], golden['ntasgd/switch_epoch'], strict=True):
    saved, found = None, -1
    for step, loss in enumerate(losses):
      patience = Patience(BEST, saved, average=5)
      patience.look(step + 1, {'eval/lm': float(loss)})
      saved = json.loads(json.dumps(patience.saved(step, None)['patience']))
      found = step if patience.averages and found < 0 else found
    assert found == epoch
  equal = Patience(BEST, average=1)
  for step in range(1, 5):
    equal.look(step, {'eval/lm': 1.0})
  assert not equal.averages


@mutation('1 / jnp.maximum(state.count, 1)', '1 / (state.count + 1)')
def test_the_mean_is_that_of_torch(golden):
  tx, w_SD = averaging.average(), golden['asgd/w']
  state = tx.init(jnp.zeros(3))._replace(count=jnp.int32(0))
  for before_D, w_D, mean_D in zip([0 * w_SD[0], *w_SD], w_SD, golden['asgd/ax'], strict=False):
    _, state = tx.update(w_D - before_D, state, before_D)
    np.testing.assert_allclose(state.params, mean_D, rtol=1e-6)


@mutation('int(last.count) < 1', 'int(last.count) < 0')
def test_mean_and_parameters_change_places_once_there_is_a_mean():
  tx, params = optax.chain(averaging.average()), dict(a=jnp.ones(2))
  state = State(jnp.int32(1), dict(params=params), tx.init(dict(a=jnp.zeros(2))), {})
  same = lambda one, other: jax.tree.map(np.testing.assert_array_equal, one, other)
  begun = averaging.begun(averaging.begun(state))
  for each in (state, begun):
    same(averaging.exchanged(each), each)
  _, opt_state = tx.update(dict(a=jnp.ones(2)), begun.opt_state, params)
  later = begun._replace(opt_state=opt_state)
  judged = averaging.exchanged(later)
  assert judged.variables['params']['a'].tolist() == [2, 2] and opt_state[-1].count == 1
  same(averaging.exchanged(judged), later)
  assert averaging.begun(later) is later


class Killed(BaseException):
  pass


def run(store, workdir, monkeypatch, average=1, kill_at=0):
  """Trains for seven steps; the scores are made up, and averaging may begin after the fourth step.
  Returns what was judged after each step."""
  config = tiny('ulmfit', length=16, batch_size=8, total_steps=7)
  config.model.update(dict(layers=1, width=8, cells=8))
  config.data.plan.drawn = 0
  config.data.store = str(store)
  config.optimizer = dict(
    name='sgd', schedule=dict(name='constant', peak=1.0), decay=((r'.*', 1.0),), average=average,
    weight_decay=1e-3,
  )  # fmt: skip
  config.update(dict(eval_steps=1, checkpoint_steps=1, log_steps=1, keep_checkpoints=7))
  judged = {}

  def scores(run, done, last, variables, progress, before=None):
    if done == kill_at:
      raise Killed
    judged[done] = jax.device_get(variables['params'])
    return {'eval/lm': (5.0, 4.0, 3.0, 6.0, 6.0, 6.0, 6.0)[done - 1]}

  monkeypatch.setattr(evaluation, 'scores', scores)
  loop.run(config, str(workdir))
  return judged


@pytest.mark.full
@mutation('averaging.exchanged(self._state).variables', 'self._state.variables')
@mutation('state = averaging.exchanged(state)\n  state = state._replace', 'state = state._replace')
@mutation('  state = averaging.exchanged(state)\n  return', '  return')
@mutation('      self._state = averaging.begun(self._state)\n', '')
def test_the_mean_is_judged_and_kept_and_a_resume_changes_no_bit(rich_store, tmp_path, monkeypatch):
  same = lambda one, other: jax.tree.map(np.testing.assert_array_equal, one, other)
  plain = run(rich_store, tmp_path / 'plain', monkeypatch, average=0)
  found = run(rich_store, tmp_path / 'averaged', monkeypatch)
  for step in range(1, 7):
    same(found[step], plain[step])
  mean = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6)
  jax.tree.map(mean, found[7], jax.tree.map(lambda a, b: (a + b) / 2, plain[6], plain[7]))
  kept = reading.read_variables(tmp_path / 'averaged' / 'checkpoints' / '7')['params']
  same(kept, found[7])
  for kill_at in (4, 7):  # the evaluation after which averaging begins, and one of a mean
    workdir = tmp_path / str(kill_at)
    with pytest.raises(Killed):
      run(rich_store, workdir, monkeypatch, kill_at=kill_at)
    same(run(rich_store, workdir, monkeypatch)[7], found[7])


@mutation("asks['optimizer.average'] = config.optimizer.average", 'pass')
def test_averaging_without_anything_to_evaluate_on_is_refused():
  config = tiny('bert')
  config.optimizer.average = 5
  with pytest.raises(UserError, match='config.optimizer.average=5 follows the scores of a run'):
    setup._check_best(config, ())


@mutation('(own := part.config.optimizer.average) != config.optimizer.average', 'own := 0')
def test_a_phase_that_averages_otherwise_than_the_run_is_refused():
  config = tiny('bert', **{'optimizer.average': 5})
  setup._check_average(config, resolve.resolve(config).timeline.parts)
  config.phases.phase2.optimizer = dict(average=3)
  with pytest.raises(UserError, match='config.phases.phase2.optimizer.average=3, .*average=5 in'):
    setup._check_average(config, resolve.resolve(config).timeline.parts)
