"""Tasks as TensorFlow Datasets has them: nothing but the name of the task to be given.

  python -m bertjax.main --config=configs/finetune/tfds.py:glue/mrpc --workdir=runs/mrpc \
      --config.init_from=hf:DIR

glue/cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte and wnli; squad/v1.1 and v2.0; conll2003;
race/high and race/middle; xnli, which is learned from glue/mnli and judged in fifteen languages.
The recipes are those of glue.py, squad.py, tagging.py, choice.py and xnli.py; columns and classes
are those of TFDS, which downloads what it does not have. Other data sets of TFDS are named in the
other recipes: `--config.data.train=tfds:NAME:SPLIT`, with the columns and classes that they have.
"""

from collections.abc import Callable

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs.finetune import choice, glue, squad, tagging, xnli

CATALOG = 'the features of TFDS'
ENTAILMENT = ('entailment', 'neutral', 'contradiction')
PAIR, STATEMENTS = ('sentence1', 'sentence2'), ('premise', 'hypothesis')
GLUE = dict(
  cola=(('sentence',), ('unacceptable', 'acceptable')),
  sst2=(('sentence',), ('negative', 'positive')),
  mrpc=(PAIR, ('not_equivalent', 'equivalent')),
  stsb=(PAIR, ()),
  qqp=(('question1', 'question2'), ('not_duplicate', 'duplicate')),
  mnli=(STATEMENTS, ENTAILMENT),
  qnli=(('question', 'sentence'), ('entailment', 'not_entailment')),
  rte=(PAIR, ('entailment', 'not_entailment')),
  wnli=(PAIR, ('not_entailment', 'entailment')),
)
LANGUAGES = 'ar bg de el es fr hi ru sw th tr ur vi zh'.split()
OTHERS: dict[str, Callable[[], Recipe]] = {
  'squad/v1.1': lambda: squad.get_config('v1'),
  'squad/v2.0': lambda: squad.get_config('v2'),
  'conll2003': lambda: tagging.get_config('ner'),
  'race/high': lambda: choice.get_config('race'),
  'race/middle': lambda: choice.get_config('race'),
  'xnli': lambda: xnli.get_config(','.join(LANGUAGES)),
}


def get_config(arg: str | None = None) -> Recipe:
  """The recipe for the task that TFDS has under the name `arg` (default glue/sst2)."""
  name = defaults.parse_size(arg, [*(f'glue/{task}' for task in GLUE), *OTHERS], 'glue/sst2')
  c = OTHERS[name]() if name in OTHERS else _glue(name.removeprefix('glue/'))
  train, dev = name, 'validation'
  if name == 'conll2003':
    c.data.task.update(cited(CATALOG, tags='ner'))
  if name == 'glue/mnli':
    dev = 'validation_matched'
    c.evals.mm.update(cited(CATALOG, file=f'tfds:{name}:validation_mismatched'))
  if name == 'xnli':
    train, dev = 'glue/mnli', 'validation:en'
    c.data.task.update(cited(CATALOG, classes=ENTAILMENT))
    for language in LANGUAGES:
      c.evals[language].update(cited(CATALOG, file=f'tfds:xnli:validation:{language}'))
  c.data.update(cited(CATALOG, train=f'tfds:{train}:train', dev=f'tfds:{name}:{dev}'))
  return c


def _glue(task: str) -> Recipe:
  text, classes = GLUE[task]
  c = glue.get_config(task)
  c.data.task.update(cited(CATALOG, text=text, label='label', classes=classes, header=()))
  return c
