"""Runs whose layers are taught: resumed, divided, exported and fine-tuned."""

import json
import shutil

import numpy as np
import pytest
import taught_runs
from mutation import mutation
from processes import exact, lines
from slow_imports import transformers

from bertjax import Model
from bertjax.checkpoint import manifest, resume
from bertjax.config import sections
from bertjax.export import exporting
from bertjax.sources import runs, teacher
from bertjax.train import loop
from configs.finetune import text

TERMS = {'minilm:l6_h384': {'query_key', 'value_value'}, 'tinybert:4l_312': {'scores', 'states'}}


pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def taught(rich_store, tmp_path_factory):
  """The workdir of a teacher."""
  workdir = tmp_path_factory.mktemp('teacher')
  return taught_runs.write_teacher(workdir, rich_store, 0, **{'model.init_std': 0.2})


def finetuned(store, source, files):
  """A run of two steps on a few labelled texts."""
  c = text.get_config(None)
  sections.complete(c)
  (files / 'train.tsv').write_text('text\tlabel\n' + 'piece9 piece8\tgood\npiece7\tbad\n' * 8)
  c.update(dict(batch_size=8, length=16, epochs=0.0, total_steps=2, init_from=str(source)))
  c.data.update(dict(vocab=str(store / 'vocab' / 'vocab.txt')))
  c.data.train = c.data.dev = str(files / 'train.tsv')
  c.data.task.update(dict(text=('text',), label='label', classes=('bad', 'good')))
  c.evals.dev.batch_size = 8
  return c


@mutation('if name != TEACHER}', "if name != 'none'}", case='minilm:l6_h384')
@mutation(
  'found[0], restored(run, found[1]), found[2]',
  'found[0], found[1], found[2]',
  case='minilm:l6_h384',
)
@mutation('pooler=True)', 'pooler=False)', file='configs/distill/minilm.py', case='minilm:l6_h384')
@mutation(
  'if name != FIT}', "if name != 'none'}", file='bertjax/sources/runs.py', case='tinybert:4l_312'
)
@pytest.mark.full
@pytest.mark.parametrize('recipe', TERMS)
def test_a_student_is_resumed_exported_and_fine_tuned(recipe, rich_store, taught, tmp_path, capsys):
  """To the same bits; its checkpoints hold it alone; its pooler stays as it began."""
  workdir = tmp_path / 'student'
  model = dict(layers=2, width=32, ffn=64, init_std=0.2)
  config = taught_runs.student(recipe, rich_store, taught, 12, model, checkpoint_steps=6)
  loop.run(config, str(workdir))
  assert f'The teacher {taught} has' in capsys.readouterr().out
  digest = teacher.digest(runs.open_run(taught).params())
  assert resume.stored_config(workdir).objective.teacher.sha256 == digest
  straight = exact(workdir)
  assert TERMS[recipe] <= straight[0].keys()
  assert all(straight[-1][f'eval/{name}'] > 0 for name in TERMS[recipe])
  arrays = manifest.read(workdir / 'checkpoints' / '12')['arrays']
  assert not [name for name in arrays if 'teacher' in name]
  shutil.rmtree(workdir / 'checkpoints' / '12')
  loop.run(config, str(workdir))
  assert 'Resuming after step 6' in capsys.readouterr().out
  assert exact(workdir) == straight
  loop.evaluate(resume.stored_config(workdir), str(workdir))
  scores, name = json.loads(capsys.readouterr().out.splitlines()[-1]), f'eval/{min(TERMS[recipe])}'
  assert scores[name] == pytest.approx(straight[-1][name], rel=1e-6)
  said = exporting.export(workdir, tmp_path / 'hf')
  assert said['model_class'] == 'BertModel'
  theirs = transformers.AutoModel.from_pretrained(tmp_path / 'hf')
  params = runs.open_run(workdir).params()
  pooler = theirs.pooler.dense.weight.detach().numpy()
  np.testing.assert_array_equal(pooler, np.asarray(params['pooler']['kernel']).T)
  before = runs.open_run(workdir, 6).params()['pooler']['kernel']
  np.testing.assert_array_equal(params['pooler']['kernel'], before)
  loop.run(finetuned(rich_store, workdir, tmp_path), str(tmp_path / 'tuned'))
  assert 'config.init_from' in capsys.readouterr().out
  assert 'eval/dev/accuracy' in lines(tmp_path / 'tuned')[-1]
  tuned = runs.open_run(tmp_path / 'tuned')
  assert tuned.config.model.width == 32
  drift = tuned.params()['encoder']['layers']['attention']['query']['kernel']
  drift = drift - params['encoder']['layers']['attention']['query']['kernel']
  assert 0 < np.abs(drift).max() < 1e-3
  assert Model.load(workdir).embed(['piece9']).shape == (1, 32)


def of_a_task(kind, store, source, begun, file, **fields):
  """A student of one layer that learns a task on pairs of texts from its teacher."""
  c = taught_runs.recipe(f'tinybert:4l_312,{kind}', source)
  c.update(dict(length=16, epochs=0.0, total_steps=60, init_from=begun))
  c.update(dict(log_steps=1, eval_steps=60, checkpoint_steps=60))
  c.model.update(dict(layers=1, width=16, heads=8, ffn=32, init_std=0.2))
  c.model.update(dict(dropout=0.0, attention_dropout=0.0, head_dropout=0.0))
  c.optimizer.schedule.peak = 1e-2
  c.data.train = c.data.dev = str(file)
  c.data.task.update(dict(text=('text', 'other'), classes=('bad', 'good')))
  if kind == 'answers':
    c.evals.dev.batch_size = 8
  c.update_from_flattened_dict(fields)
  return c


@pytest.mark.full
@mutation('hard=0.0, soft=1.0', 'hard=1.0, soft=0.0')
@mutation(
  "name='constant') | cited(TASK, peak=5e-5)",
  "name='linear') | cited(TASK, peak=5e-5, warmup_steps=10**6, total_steps=10**7)",
)
def test_a_task_on_pairs_is_learned_by_layers_and_then_by_answers(rich_store, taught, tmp_path):
  """The teacher was taught that piece9 is bad; the file that the student has says good, and it
  learns what its teacher says."""
  file = tmp_path / 'pairs.tsv'
  pairs = 'piece9 piece6\tpiece8\t{}\npiece8\tpiece7 piece5\t{}\n' * 8
  write = lambda *labels: file.write_text('text\tother\tlabel\n' + pairs.format(*labels * 8))
  given = finetuned(rich_store, taught, tmp_path)
  given.update(dict(total_steps=60, eval_steps=60, checkpoint_steps=60))
  given.optimizer.schedule.peak = 1e-2
  given.model.update(dict(dropout=0.0, attention_dropout=0.0, head_dropout=0.0))
  given.data.task.text = ('text', 'other')
  given.data.train = given.data.dev = str(file)
  write('bad', 'good')
  loop.run(given, str(tmp_path / 'teacher'))
  assert lines(tmp_path / 'teacher')[-1]['eval/dev/accuracy'] == 1.0

  write('good', 'bad')
  layers = of_a_task('task', rich_store, tmp_path / 'teacher', (), file)
  loop.run(layers, str(tmp_path / 'layers'))
  found = lines(tmp_path / 'layers')
  assert all(found[-1][key] < 0.7 * found[0][key] for key in ('scores', 'states'))
  last = of_a_task('answers', rich_store, tmp_path / 'teacher', str(tmp_path / 'layers'), file)
  loop.run(last, str(tmp_path / 'student'))
  assert lines(tmp_path / 'student')[-1]['eval/dev/accuracy'] == 0.0
