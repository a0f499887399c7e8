"""TinyBERT (Jiao et al. 2020): the layers of a small BERT learn from every m-th of a large one.

  python -m bertjax.main --config=configs/distill/tinybert.py:4l_312 --workdir=runs/tinybert \
      --config.objective.teacher.source=hf:BERT --config.data.input='wiki/*.txt'

This is the general distillation, of attention scores and states, on text without labels. Sizes:
4l_312 and 6l_768, whose layers must divide the teacher's. The student has no head for words and
exports as BertModel; the dense layer that its states go through is training's alone.

The distillation of a task is the same on its examples, with the teacher that was fine-tuned on them
(4l_312,task), and then its answers (4l_312,answers), each with the one before as `init_from`:

  python -m bertjax.main --config=configs/distill/tinybert.py:4l_312,task --workdir=runs/layers \
      --config.objective.teacher.source=runs/teacher --config.init_from=runs/tinybert \
      --config.data.train=train.tsv --config.data.task.text="('review',)"
  python -m bertjax.main --config=configs/distill/tinybert.py:4l_312,answers \
      --workdir=runs/student --config.objective.teacher.source=runs/teacher \
      --config.init_from=runs/layers --config.data.train=train.tsv --config.data.dev=dev.tsv \
      --config.data.task.text="('review',)" --config.data.task.label=stars \
      --config.data.task.classes="('bad','good')"

Sources name huawei-noah/Pretrained-Language-Model.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from configs import bert
from configs.distill import kd
from configs.finetune import text

CODE = 'Pretrained-Language-Model/TinyBERT/general_distill.py'
TASK = 'Pretrained-Language-Model/TinyBERT/task_distill.py'
HEAD = 'TinyBERT/transformer/modeling.py:TinyBertForSequenceClassification'
README = 'Pretrained-Language-Model/TinyBERT/README.md'
SIZES = {
  '4l_312': dict(layers=4, width=312, ffn=1200),
  '6l_768': dict(layers=6, width=768, ffn=3072),
}


def recipe(size: str) -> Recipe:
  """The general distillation.

  Args:
    size: of the student, a key of `SIZES`.
  """
  c = bert.recipe('base')
  c.update(cited(defaults.NAMES, name=f'tinybert-{size}'))
  c.update(cited(README, batch_size=256) | cited(CODE, length=128))
  c.update(cited('ours: as long as you like; theirs are 3 epochs', total_steps=100_000))
  c.phases = ConfigDict()
  _shape(c, size)
  _layers(c, CODE)
  c.optimizer.schedule.update(cited(CODE, peak=5e-5, warmup_steps=c.get_ref('total_steps') // 10))
  c.data.mask = recipes.CAUSAL_MASK  # nothing is hidden, as for the second version of the models
  c.best.update(cited('ours: the one that fine-tuning begins with', metric='eval/states'))
  del c.evals.pseudo_perplexity  # there is no head for words
  return c


def of_task(size: str) -> Recipe:
  """The distillation of scores and states on the examples of a task, whose labels are not read."""
  c = text.recipe(('text',), 'label', (), 'accuracy')
  c.update(cited(defaults.NAMES, name=f'tinybert-{size}-task') | cited(README, epochs=10.0))
  _shape(c, size)
  _layers(c, TASK)
  c.optimizer.schedule = cited(f'{TASK}: schedule', name='constant') | cited(TASK, peak=5e-5)
  c.data.task.update(cited('ours: no label is read', unlabelled=True))
  c.evals = ConfigDict()  # nothing of a task can be told before it has answers
  return c


def of_answers(size: str) -> Recipe:
  """The distillation of a task's answers, after `of_task`."""
  c = kd.recipe('kd')
  c.update(cited(defaults.NAMES, name=f'tinybert-{size}-answers') | cited(README, epochs=3.0))
  _shape(c, size)
  c.objective.update(
    cited(f'{TASK}:soft_cross_entropy', hard=0.0, soft=1.0, kl='mean')
    | cited(TASK, temperature=1.0)
  )
  c.optimizer.schedule.update(cited(README, peak=3e-5))
  c.model.update(cited(HEAD, head_dropout=0.0))
  return c


def _shape(c: Recipe, size: str) -> None:
  """Sets the size of the student."""
  shape = SIZES[size]
  c.model.update(
    cited(f'{README}: the models', layers=shape['layers'], width=shape['width'])
    | cited('TinyBERT paper, section 4.2 (unverified)', heads=12, ffn=shape['ffn'])
  )


def _layers(c: Recipe, code: str) -> None:
  """Learning scores and states, and nothing else."""
  c.model.update(
    cited('ours: nothing scores words or labels', words=False, labels=())
    | cited('ours: BertModel has one; fine-tuning trains it', pooler=True)
  )
  c.objective = cited('ours: the run names it', name='layerwise')
  c.optimizer.update(
    cited(f'{code}: optimizer_grouped_parameters', weight_decay=0.01)
    | cited('ours: nothing is learned of it', freeze=(r'pooler/.*',))
  )


KINDS = {'': recipe, ',task': of_task, ',answers': of_answers}


def get_config(arg: str | None = None):
  """The recipe named by `arg` (default 4l_312), a size and perhaps `,task` or `,answers`."""
  names = [f'{size}{kind}' for size in SIZES for kind in KINDS]
  size, comma, kind = defaults.parse_size(arg, names, '4l_312').partition(',')
  return KINDS[comma + kind](size)
