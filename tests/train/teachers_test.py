"""Teachers of other families than BERT: what they teach over one vocabulary, and what not."""

import functools

import jax
import numpy as np
import pytest
import taught_runs
from adopting import adopt
from mutation import mutation
from processes import lines

from bertjax import models
from bertjax.errors import UserError
from bertjax.export import exporting
from bertjax.sources import runs
from bertjax.train import first_state, loop, phase, setup

pytestmark = pytest.mark.usefixtures('one_device')
ELECTRA_OF_TRANSFORMERS = 'ElectraForPreTraining'


@pytest.fixture(scope='module')
def teacher_of(rich_store, tmp_path_factory):
  """System -> the workdir of a run of it, or its export to transformers."""

  @functools.cache
  def find(system):
    workdir = tmp_path_factory.mktemp('teacher')
    if system == ELECTRA_OF_TRANSFORMERS:
      exporting.export(find('electra'), workdir / 'hf')
      return f'hf:{workdir}/hf'
    fields = {'model.init_std': 0.2}
    return taught_runs.write_teacher(workdir, rich_store, 0, system, **fields)

  return find


def student(recipe, store, source, **fields):
  """A BERT of one or two layers that learns from a teacher of two layers of width 64."""
  model = dict(layers=1, width=64, ffn=64, init_std=0.2, dropout=0.0, attention_dropout=0.0)
  c = taught_runs.student(recipe, store, source, 40, model, length=32, **fields)
  c.optimizer.schedule.update(dict(peak=3e-3))
  if c.optimizer.schedule.name != 'constant':
    c.optimizer.schedule.warmup_steps = 5
  return c


# Recipe and teacher, and the terms that must become smaller.
TAUGHT = [
  ('distilbert', 'roberta', ('soft', 'cosine')),
  ('distilbert', 'albert', ('soft', 'cosine')),
  ('distilbert', 'modernbert', ('soft',)),
  ('minilm:l6_h384', 'electra', ('query_key', 'value_value')),
  ('minilm:l6_h384,v2', 'ernie', ('query_query', 'value_value')),
  ('tinybert:4l_312', ELECTRA_OF_TRANSFORMERS, ('scores', 'states')),
]


@pytest.mark.full
@pytest.mark.parametrize(('recipe', 'system', 'terms'), TAUGHT)
@mutation(
  'Part(lambda model: net_of(model, bert',
  'tuned=Part(lambda model: net_of(model, bert',
  case='minilm:l6_h384-electra-terms3',
)
def test_a_bert_comes_closer_to_a_teacher_of_another_family(
  recipe, system, terms, rich_store, teacher_of, tmp_path
):
  loop.run(student(recipe, rich_store, teacher_of(system)), str(tmp_path))
  found = [line for line in lines(tmp_path) if 'loss' in line]
  for name in terms:
    values = [line[name] for line in found]
    assert np.mean(values[-5:]) < 0.9 * np.mean(values[:5]), name
  assert all(f'eval/{name}' in lines(tmp_path)[-1] for name in terms)


@pytest.mark.full
@pytest.mark.parametrize('system', ['roberta', 'electra'])
def test_the_teacher_says_in_a_run_what_its_own_model_says(system, rich_store, teacher_of):
  """Its positions, segments and projection are its own, on rows of another family."""
  recipe = 'distilbert' if system == 'roberta' else 'minilm:l6_h384'
  config, *_ = adopt(student(recipe, rich_store, teacher_of(system)), 'nowhere')
  run = setup.make_run(config, str(rich_store), jax.devices()[:1])
  variables = first_state.initial_state(run, print).variables
  batch = {k: v for k, v in run.phases[0].next_batch(0)[0].items() if k != 'dropped_B'}
  built = models.build(run.config.objective.teacher.model)
  theirs = built.apply(dict(params=variables['teacher']), batch, None, True)['last_BTD']
  whole = runs.open_run(teacher_of(system))
  own = models.build(whole.config.model)
  kept = own.apply(dict(params=whole.params()), batch, method='read')['last_BTD']
  real_BT = batch['example_BT'] > 0
  np.testing.assert_allclose(np.asarray(theirs)[real_BT], np.asarray(kept)[real_BT], atol=1e-5)


REFUSED = [
  ('distilbert', 'xlnet', "the kind TargetModel .*as BERT is, got 'xlnet'"),
  ('tinybert:4l_312', 'xlnet', "the kind AttendingModel .*as BERT is, got 'xlnet'"),
  ('distilbert', 'electra', 'teacher has no head for words, which the student is to learn from'),
  ('tinybert:4l_312', 'albert', r"teacher.model.sharing='none', got 'all'"),
]


@pytest.fixture(scope='module')
def any_teacher(rich_store, tmp_path_factory):
  """System -> the workdir of a run of it, whose parameters nobody looks at."""
  make = lambda name: taught_runs.write_teacher(
    tmp_path_factory.mktemp(name), rich_store, 0, name, begun=False
  )
  return functools.cache(make)


@pytest.mark.parametrize(('recipe', 'system', 'said'), REFUSED)
def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_compiled(
  recipe, system, said, rich_store, any_teacher, tmp_path, monkeypatch
):
  source = any_teacher(system)
  compiled = []
  monkeypatch.setattr(phase.Phase, 'compile', lambda *given: compiled.append(given))
  with pytest.raises(UserError, match=said):
    loop.run(student(recipe, rich_store, source), str(tmp_path))
  assert not compiled


@mutation("f'{name}_BT' not in", "f'{name}_BT' in", file='bertjax/objectives/teaching/__init__.py')
def test_a_teacher_that_reads_more_than_the_rows_have_is_named(rich_store, tmp_path):
  roles = {'model.extra': (('role', 2),)}
  source = taught_runs.write_teacher(tmp_path / 'teacher', rich_store, 0, begun=False, **roles)
  with pytest.raises(UserError, match='objective.teacher reads a role of each token, which this'):
    loop.run(student('distilbert', rich_store, source), str(tmp_path / 'student'))
