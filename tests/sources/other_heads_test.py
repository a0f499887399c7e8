"""Heads of a warm start that were for other classes."""

import jax
import numpy as np
import pytest
from adopting import begun
from mutation import mutation
from systems import tiny

from bertjax.sources import head_classes, init_from, runs
from bertjax.train import first_state, setup


class Source:
  """A run whose parameters are those of the seed, and 1 more each."""

  def __init__(self, store, workdir):
    self.workdir = workdir
    run = setup.make_run(tiny('bert'), store, jax.devices()[:1])
    self.fresh = jax.device_get(first_state.initial_state(run).variables['params'])
    self.params = jax.tree.map(lambda x: x + 1, self.fresh)
    runs.write_run(workdir, run.config, self.params, run.vocabulary, {})

  def config(self, **more):
    return tiny('bert', init_from=str(self.workdir), **more)


@pytest.fixture(scope='module')
def source(rich_store, tmp_path_factory):
  return Source(rich_store, tmp_path_factory.mktemp('source'))


@mutation('classes or shapes(params[key]) != shapes(mine.get(key))', 'False')
def test_a_head_for_other_classes_is_made_anew_and_the_encoder_is_taken(source):
  """RTE after MNLI: two classes behind three."""
  c = source.config()
  c.model.labels = (('next', 3),)
  other = np.full((64, 3), 7.0, np.float32)
  ours = dict(source.fresh, next=dict(source.fresh['next'], kernel=other))
  new, said = begun(c, None, dict(params=jax.device_put(ours)))
  assert 'has them for other classes: next' in said[-1]
  np.testing.assert_array_equal(new['params']['next']['kernel'], other)
  jax.tree.map(np.testing.assert_array_equal, new['params']['encoder'], source.params['encoder'])


@mutation("h.kind in ('text', 'token', 'answers')", "h.kind in ('text', 'token')")
def test_another_form_of_the_head_of_answers_is_made_anew_and_none_is_left_out(source):
  c = source.config(**{'model.answers': 'electra'})
  theirs = dict(source.params, answers=dict(end_hidden=dict(kernel=np.ones((128, 64)))))
  opened = init_from.open_source(str(source.workdir))._replace(params=lambda: theirs)
  ours = dict(source.fresh, answers=dict(end_hidden=dict(kernel=np.full((128, 16), 7.0))))
  new, said = begun(c, None, dict(params=jax.device_put(ours)), opened)
  assert 'has them for other classes: answers' in said[-1]
  np.testing.assert_array_equal(new['params']['answers']['end_hidden']['kernel'], 7.0)
  c.model.answers = 'none'
  new, said = begun(c, None, dict(params=jax.device_put(source.fresh)), opened)
  assert 'Left out' in said[-1] and 'answers' in said[-1] and 'answers' not in new['params']


@mutation("if head.startswith(f'{path}/')", 'if head.startswith(path)')
def test_the_classes_of_a_subtree_are_those_of_the_heads_in_it():
  theirs = dict(topic=('a', 'b'), topic_fine=('c', 'd'), other=('e', 'f'))
  assert head_classes.moved(theirs, 'params/topic', 'params/mood') == dict(mood=('a', 'b'))
  assert head_classes.moved(theirs, 'params/encoder', 'params/encoder') == {}
  assert head_classes.moved(theirs, 'params', 'params') == theirs
