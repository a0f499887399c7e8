"""Chinese tasks in the files of ERNIE 1.0: ChnSentiCorp (opinions), MSRA-NER (entities), XNLI.

  python -m bertjax.main --config=configs/finetune/chinese.py:msra_ner --workdir=runs/msra \
      --config.init_from=hf:DIR --config.data.train=msra_ner/train.tsv \
      --config.data.dev=msra_ner/dev.tsv

Files are .tsv with the columns text_a and label; of MSRA-NER the characters, and their tags, are
joined by the character U+0002, and XNLI's second texts are in text_b. CMRC 2018 is squad.py:v1
with --config.evals.dev.program=cmrc.
The rest of the recipe is BERT's.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs.finetune import tagging, text
from configs.finetune.glue import ENTAILMENT
from configs.finetune.xnli import README

FILES = "ERNIE 1.0's task_data: columns of the files"
SCRIPTS = 'ERNIE/script/zh_task/ernie_base (unverified)'


def chnsenticorp() -> Recipe:
  """Builds the recipe of a judgement of opinions: good, 1, or bad, 0."""
  c = text.recipe(('text_a',), 'label', ('0', '1'), 'accuracy')
  c.update(cited(SCRIPTS, batch_size=24, epochs=10.0, length=256))
  c.optimizer.schedule.update(cited(SCRIPTS, peak=5e-5))
  c.data.task.update(cited(FILES, text=('text_a',), label='label', classes=('0', '1')))
  return c


def msra_ner() -> Recipe:
  """Names of persons, organisations and places among characters."""
  classes = ('PER', 'ORG', 'LOC')
  c = tagging.recipe('iob2', classes, 'f1')
  c.update(cited(SCRIPTS, batch_size=16, epochs=6.0, length=256))
  c.optimizer.schedule.update(cited(SCRIPTS, peak=5e-5))
  columns = dict(words='text_a', tags='label', separator='\x02', classes=classes)
  c.data.task.update(cited(FILES, **columns))
  return c


def xnli() -> Recipe:
  """Builds the recipe of entailment: does the second of two texts follow from the first?"""
  c = text.recipe(('text_a', 'text_b'), 'label', ENTAILMENT, 'accuracy')
  c.update(cited(README, batch_size=32, epochs=2.0, length=128))
  c.optimizer.schedule.update(cited(README, peak=5e-5))
  columns = dict(text=('text_a', 'text_b'), label='label', classes=ENTAILMENT)
  c.data.task.update(cited(FILES, **columns))
  return c


TASKS = dict(chnsenticorp=chnsenticorp, msra_ner=msra_ner, xnli=xnli)


def get_config(arg: str | None = None):
  """The recipe for the task named by `arg` (default chnsenticorp)."""
  name = defaults.parse_size(arg, TASKS, 'chnsenticorp')
  c = TASKS[name]()
  c.update(cited(defaults.NAMES, name=f'finetune-{name}'))
  return c
