"""What every kind of fine-tuning and of distillation must keep: see contract_test."""

import functools
import json

import contract
import jax
import labelled_cases
import pytest
import taught_runs
from adopting import adopt
from mutation import mutation
from tiers import in_tiers

from bertjax.sources import runs
from bertjax.train import setup

# Weights so large that attention is no mean of all tokens, whose relations would not differ.
SMALL = dict(layers=2, width=64, heads=8, ffn=128, init_std=0.2)
RECIPES = (
  'kd:kd', 'kd:pkd', 'soft_labels:', 'distilbert:', 'minilm:l6_h384', 'minilm:l6_h384,v2',
  'tinybert:4l_312', 'tinybert:4l_312,task', 'tinybert:4l_312,answers',
)  # fmt: skip
ON_A_TASK = ('kd', 'soft_labels', 'tinybert:4l_312,')
# Of heads for tokens the quick tier has the gradients in tests/objectives/heads_test.
QUICK = ('pairs', 'kd:pkd')
NAMES = (*labelled_cases.CASES, *RECIPES)
# How parameters begin that learn nothing: what is frozen, and what the loss does not reach.
BEHIND_ATTENTION = tuple(
  f'encoder/layers/{name}, layer 1'
  for name in (
    'attention/out/kernel', 'attention/out/bias', 'attention_norm/scale', 'attention_norm/bias',
    'ffn_up/kernel', 'ffn_up/bias', 'ffn_down/kernel', 'ffn_down/bias', 'ffn_norm/scale',
    'ffn_norm/bias',
  )
)  # fmt: skip
UNTAUGHT = {
  'features of a frozen encoder': ('embeddings/', 'encoder/'),
  'features of ELMo': ('forwards_', 'backwards_', 'spelled/'),
  'distilbert:': ('embeddings/position',),
  'minilm:l6_h384': ('pooler/', *BEHIND_ATTENTION),
  'minilm:l6_h384,v2': ('pooler/', *BEHIND_ATTENTION),
  'tinybert:4l_312': ('pooler/',),
  'tinybert:4l_312,task': ('pooler/',),
}


def of_task(name, files, source):
  """A student that learns from the texts of a task, or from what its teacher said of them."""
  c, own = taught_runs.recipe(name, source), labelled_cases.config('texts', files)
  soft = name.startswith('soft_labels')
  c.data.train = str(files / 'soft.jsonl') if soft else own.data.train
  c.data.dev, c.data.vocab = own.data.dev, own.data.vocab
  c.update(dict(length=own.length, epochs=0.0, total_steps=20))
  c.model.update(SMALL)
  c.data.length_block = 1
  c.data.task.update(dict(text=('text',), label='stars', classes=('bad', 'good')))
  return c


def write_soft_labels(files):
  """What a teacher may have said of each text."""
  lines = (files / 'stars/train.tsv').read_text().splitlines()[1:]
  soft = lambda n: dict(bad=(n % 7 + 1) / 9, good=1 - (n % 7 + 1) / 9)
  rows = [
    dict(zip(('stars', 'text'), line.split('\t'), strict=True), soft_label=soft(n))
    for n, line in enumerate(lines)
  ]
  (files / 'soft.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')


@pytest.fixture(scope='module')
def reference_of(rich_store, tmp_path_factory):
  """Name -> the first steps of a run."""
  files = labelled_cases.write(tmp_path_factory.mktemp('files'))
  write_soft_labels(files)

  @functools.cache
  def teacher_of(labelled):
    workdir = tmp_path_factory.mktemp('teacher')
    if not labelled:
      return taught_runs.write_teacher(workdir, rich_store, 0, **{'model.init_std': 0.2})
    # Of larger weights its logits, and so the loss, round by 5e-6 from mesh to mesh.
    config = labelled_cases.config('texts', files, **{'model.init_std': 0.05})
    path = labelled_cases.ensured(config, tmp_path_factory.mktemp('run'))
    run = setup.make_run(config, path, jax.devices()[:1])
    params = jax.jit(lambda: run.phases[0].initial_variables(1))()['params']
    runs.write_run(workdir, run.config, params, run.vocabulary, {})
    return workdir

  def student(recipe, labelled, workdir):
    source = teacher_of(labelled)
    if labelled:
      config = of_task(recipe, files, source)
    else:
      config = taught_runs.student(recipe, rich_store, source, 20, SMALL)
    if 'state_layers' in config.objective and config.objective.state_layers:
      config.objective.state_layers = (1,)
    return adopt(config, workdir)[0]

  @functools.cache
  def make(name):
    workdir = tmp_path_factory.mktemp('run')
    labelled = name not in RECIPES or name.startswith(ON_A_TASK)
    if name in RECIPES:
      config = student(name, labelled, workdir)
    else:
      config = labelled_cases.config(name, files)
    path = labelled_cases.ensured(config, workdir) if labelled else rich_store
    return contract.steps_of(config, path)

  return make


@pytest.fixture(params=in_tiers(NAMES, {*NAMES} - {*QUICK}))
def name(request):
  return request.param


@pytest.fixture
def reference(name, reference_of):
  return reference_of(name)


def test_the_loss_is_finite_and_moves(reference):
  contract.check_moves(reference)


@mutation('(name, classes)(read)', '(name, classes)(jax.lax.stop_gradient(read))', case='pairs')
@mutation("freeze=('embeddings/position',)", 'freeze=()', case='distilbert:')
def test_every_parameter_learns_but_those_that_are_named(name, reference):
  contract.check_learns(reference, UNTAUGHT.get(name, ()))


def test_save_and_resume_is_bitwise(reference, tmp_path):
  contract.check_resume(reference, tmp_path)


@pytest.mark.full
@mutation('jax.lax.psum(x, axes) if axes else x', 'x', case='texts, pooled')
def test_a_divided_model_and_microbatches_change_nothing(name, reference):
  alone = reference.config.model.name == 'awd_lstm'  # the rows of a batch know of each other
  fields = contract.MIXED | {'microbatches': 1 if alone else 2}
  contract.check_agrees(reference, fields, rtol=5e-6 if name in RECIPES else 2e-6)
