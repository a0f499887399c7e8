"""Several labelled tasks in one run: an encoder that they share, and a head for each (MT-DNN).

  python -m bertjax.main --config=configs/finetune/tasks.py:sst2,mrpc --workdir=runs/many \
      --config.init_from=hf:DIR --config.temperature=2 \
      --config.phases.sst2.data.train=sst2/train.tsv --config.phases.sst2.data.dev=sst2/dev.tsv \
      --config.phases.mrpc.data.train=mrpc/train.tsv --config.phases.mrpc.data.dev=mrpc/dev.tsv

Tasks are those of glue.py, and under names of your own those of the other recipes of this folder,
NAME=FILE:ARGUMENT, as in tasks.py:sst2,stars=text,points=text:number,names=tagging:ner. What a
recipe says of its task, columns, head and scores, is below config.phases.NAME; how is trained is
one for all.

Each step is of one task, drawn with a probability ~ n^(1/T) of n examples, T config.temperature.
Scores are eval/NAME/dev/..; the best checkpoint is that with the best eval/mean, the mean over the
tasks of the score that each is known by, or another: --config.best.metric=eval/sst2/dev/accuracy.
Epochs are of all examples together. The recipe is that of MT-DNN (Liu et al. 2019), without Adamax
and its answer modules: heads are BERT's. There an epoch shows each batch once; here the task of
each step is drawn anew. Tasks of write.py, which have no heads, are learned by its recipe.
"""

import copy

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults, sections
from bertjax.errors import UserError, choose
from configs.finetune import choice, glue, squad, tagging, text, tfds, write, xnli

PAPER = 'MT-DNN paper, section 4.2 (unverified)'
OWN = "ours: what is a task's own"
RECIPES = dict(
  choice=choice, glue=glue, squad=squad, tagging=tagging, text=text, tfds=tfds, write=write,
  xnli=xnli,
)  # fmt: skip
HEADS = ('labels', 'token_labels')


def get_config(arg: str | None = None) -> Recipe:
  """The recipe for the tasks named by `arg`, with commas between them (default sst2,mrpc,stsb).

  Raises:
    UserError: an unknown task or recipe, two tasks of one name, or a name that is none.
  """
  tasks = _tasks(arg or 'sst2,mrpc,stsb')
  c = _shared(tasks)
  c.update(cited(defaults.NAMES, name=f'finetune-{"-".join(tasks)}'))
  c.update(cited('ours: by size, as the batches of MT-DNN', temperature=1.0))
  c.phases = ConfigDict()
  for name, task in tasks.items():
    c.phases[name] = _phase(c, task)
  scores = [f'eval/{name}/{task.best.metric.removeprefix("eval/")}' for name, task in tasks.items()]
  c.best.update(
    cited("ours: as GLUE's score is a mean", metric='eval/mean', mode='max', mean=tuple(scores))
  )
  return c


def _shared(tasks: dict[str, Recipe]) -> Recipe:
  """Returns what all tasks share: how is trained, and the kind of model."""
  kinds = {name: task.model.name for name, task in tasks.items()}
  if len({*kinds.values()}) > 1:
    raise UserError(
      f'tasks.py: expected tasks of one kind of model, got {kinds}; a class can be written, '
      'too, by its name (write.py)'
    )
  first = next(iter(tasks.values()))
  if first.data.task.name == 'write':
    return copy.deepcopy(first)
  c = text.recipe(('text',), 'label', (), 'accuracy')
  c.update(cited(PAPER, batch_size=32, epochs=5.0, length=512))
  c.optimizer.schedule.update(cited(PAPER, peak=5e-5))
  return c


def _phase(c: Recipe, task: Recipe) -> Recipe:
  """Returns the values that the phase of a task changes."""
  sections.complete(task)
  data = dict(train=task.data.train, dev=task.data.dev)
  data['language'] = task.data.language or c.data.get_ref('language')
  phase = Recipe(cited(OWN, drawn=0, data=data))
  phase.data.task, phase.objective = task.data.task, task.objective
  if task.objective.name != 'seq2seq':
    phase.model = Recipe(cited(OWN, **{key: task.model.get(key, ()) for key in HEADS}))
  phase.evals = Recipe()
  for name, judged in task.evals.items():
    fields = dict(judged.items(), every=c.get_oneway_ref('eval_steps'))
    phase.evals[name] = Recipe(cited(OWN, **fields))
  return phase


def _tasks(arg: str) -> dict[str, Recipe]:
  """Name -> the recipe of the task alone."""
  found: dict[str, Recipe] = {}
  for given in arg.split(','):
    name, equals, recipe = given.partition('=')
    if name in found or not name.isidentifier():
      raise UserError(
        f'tasks.py: expected names of tasks, each once, as in sst2,mrpc,stars=text; got {arg!r}: '
        f'give {name!r} another name'
      )
    if not equals:
      found[name] = glue.get_config(choose(name, glue.TASKS, 'tasks of tasks.py'))
      continue
    file, _, argument = recipe.partition(':')
    choose(file, RECIPES, f'tasks.py:{name}=RECIPE')
    found[name] = RECIPES[file].get_config(argument or None)
  return found
