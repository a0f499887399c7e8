"""The config of every step of a run that was resumed with other values."""

from mutation import mutation

from bertjax.checkpoint import history


def run(history_=(), **config):
  return dict(config=config, history=list(history_))


def resumed(found, start, **config):
  return dict(config=config, history=history.extended(found, config, start))


OLD = run(peak=1.0, model=dict(width=8), evals={})
NEW = resumed(OLD, 10, peak=0.5, model=dict(width=8, dropout=0.1), evals={})


@mutation('if old.get(key) != new.get(key):', 'if old.get(key, 0) != new.get(key, 0):')
def test_a_change_says_when_and_both_values():
  changes = {'peak': dict(old=1.0, new=0.5), 'model.dropout': dict(new=0.1)}
  assert NEW['history'] == [dict(step=10, changes=changes)]
  assert resumed(OLD, 10, **OLD['config'], limit=None)['history'] == []  # as if it were not there


@mutation("if change['step'] < step:", "if change['step'] <= step:")
def test_each_step_has_the_config_of_its_time():
  again = resumed(NEW, 20, peak=0.25, model=dict(width=8, dropout=0.1), evals={})
  assert history.config_of(again, 10) == OLD['config']
  assert history.config_of(again, 11) == history.config_of(again, 20) == NEW['config']
  assert history.config_of(again, 21) == again['config']
  assert history.stretches(again, 1, 30) == [(1, 10), (11, 20), (21, 30)]
  assert history.stretches(again, 11, 20) == [(11, 20)]


@mutation("min(each['step'], start)", "each['step']")
def test_a_resume_from_before_a_change_moves_it_there():
  back = resumed(NEW, 6, **NEW['config'])
  assert [change['step'] for change in back['history']] == [6]
  assert history.config_of(back, 7) == NEW['config']
  assert history.changed_from(back['history'], 6) == NEW['history'][0]['changes']
  assert history.changed_from(back['history'], 7) == {}
  further = resumed(back, 6, **dict(NEW['config'], peak=0.1))
  assert history.changed_from(further['history'], 6)['peak'] == dict(old=1.0, new=0.1)


def test_the_store_is_where_it_is_today():
  moved = resumed(run(data=dict(store='a')), 5, data=dict(store='b'))
  assert history.config_of(moved, 1) == dict(data=dict(store='b'))
