"""A run that distils, from its teacher's run on: what is saved, and what is not."""

import shutil

import jax
import numpy as np
import pytest
import taught_runs
from adopting import adopt
from mutation import mutation

from bertjax.errors import UserError
from bertjax.sources import init_from, runs
from bertjax.train import first_state, loop, setup
from bertjax.vocab.vocabulary import load_vocabulary

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def taught(rich_store, tmp_path_factory):
  """The workdir of a teacher."""
  workdir = tmp_path_factory.mktemp('teacher')
  return taught_runs.write_teacher(workdir, rich_store, 0, begun=False)


def student(store, source, **fields):
  model, path = dict(layers=1, width=64, ffn=256, dropout=0.1, attention_dropout=0.1), str(source)
  c = taught_runs.student('distilbert', store, source, 12, model, checkpoint_steps=6)
  parts = ('embeddings/word', 'embeddings/position', 'embeddings/norm', 'mlm')
  c.init_from = (
    *((path, f'params/{part}', f'params/{part}', ()) for part in parts),
    (path, 'params/encoder', 'params/encoder', (1,)),
  )
  c.update_from_flattened_dict(fields)
  return c


@mutation("if known and known['sha256'] != found['sha256']:", 'if False:')
@pytest.mark.full
def test_a_teacher_that_went_on_is_refused_at_a_resume(rich_store, taught, tmp_path):
  source, workdir = tmp_path / 'teacher', tmp_path / 'student'
  shutil.copytree(taught, source)
  config = student(rich_store, source, total_steps=2)
  loop.run(config, str(workdir))
  shutil.rmtree(source)
  source.mkdir()
  taught_runs.write_teacher(source, rich_store, 1)
  with pytest.raises(UserError, match='has other parameters.*name that checkpoint'):
    loop.run(config, str(workdir))
  config.objective.teacher.source = str(source / 'checkpoints' / '2')
  with pytest.raises(UserError, match='config.objective.teacher.source: expected'):
    loop.run(config, str(workdir))


@mutation(
  'return dict(variables, teacher=teacher.read(run.config, run.vocabulary, abstract))',
  'return dict(variables, teacher=jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), '
  'abstract))',
)
def test_a_student_begins_as_layers_of_its_teacher(rich_store, taught, one_device):
  config, *_ = adopt(student(rich_store, taught), 'nowhere')
  run = setup.make_run(config, str(rich_store), one_device[:1])
  variables = first_state.initial_state(run, print).variables
  whole = runs.open_run(taught).params()
  jax.tree.map(np.testing.assert_array_equal, dict(variables['teacher']), whole)
  jax.tree.map(
    lambda ours, theirs: np.testing.assert_array_equal(ours, theirs[1:2]),
    variables['params']['encoder'], whole['encoder'],
  )  # fmt: skip


@mutation('not subtrees.same_ids(source.vocabulary, vocabulary)', 'source.vocabulary is vocabulary')
def test_another_vocabulary_and_no_teacher_are_refused(
  rich_store, taught, one_device, tmp_path, monkeypatch
):
  config = student(rich_store, '')
  with pytest.raises(UserError, match='config.objective.teacher.source is empty'):
    adopt(config, tmp_path)
  with pytest.raises(UserError, match='teacher.source: there is nothing at nowhere; expected'):
    adopt(student(rich_store, 'nowhere'), tmp_path)
  lines = (rich_store / 'vocab' / 'vocab.txt').read_text().split('\n')
  (tmp_path / 'vocab.txt').write_text('\n'.join([*lines[:5], *reversed(lines[5:])]))
  other = load_vocabulary(str(tmp_path / 'vocab.txt'))
  open_source = init_from.open_source
  monkeypatch.setattr(
    init_from, 'open_source', lambda *given: open_source(*given)._replace(vocabulary=other)
  )
  config, *_ = adopt(student(rich_store, taught), tmp_path)
  run = setup.make_run(config, str(rich_store), one_device[:1])
  with pytest.raises(UserError, match='has another vocabulary'):
    first_state.with_teacher(run, run.abstract.variables)
