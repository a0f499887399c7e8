"""Multiple choice: DREAM, RACE, SWAG, and files of your own.

  python -m bertjax.main --config=configs/finetune/choice.py:dream --workdir=runs/dream \
      --config.init_from=hf:DIR --config.data.train=train.json --config.data.dev=dev.json

  dream  DREAM's own files
  race   JSON lines, an article a line: jq -c . RACE/train/*/*.txt > train.jsonl
  swag   SWAG's own .csv: sent1, and sent2 with each of ending0 .. ending3

Your own files are .tsv, .csv or .jsonl: begin with swag, and name `config.data.task.context`,
`question` ('' where there is none), `choices` (one column with a list, or several), `label` and
`answer`, which says whether the label is an index from 0, a letter, or the text of the right one.
`config.length` is the length of one choice with its context; a row has all of them. The recipes are
BERT's for SWAG, and for RACE and DREAM, with the same form, RoBERTa's for RACE.
"""

from ml_collections import ConfigDict

from bertjax.cited import cited
from bertjax.config import defaults
from configs.finetune import text

ENDINGS = tuple(f'ending{number}' for number in range(4))
SWAG = dict(
  form='columns', context='sent1', question='sent2', choices=ENDINGS, label='label', answer='index'
)
OTHER = dict(context='', question='', choices=(), label='')
FILES = dict(
  dream=dict(form='dream', answer='text', **OTHER),
  race=dict(form='race', answer='letter', **OTHER),
  swag=SWAG,
)
PAPER = 'BERT paper, section 4.4'
ROBERTA = 'fairseq/examples/roberta/README.race.md'


def get_config(arg: str | None = None):
  """The recipe for `arg`: dream (the default), race or swag."""
  kind = defaults.parse_size(arg, FILES, 'dream')
  c = text.recipe((), '', (), 'accuracy')
  c.update(cited(defaults.NAMES, name=f'finetune-{kind}'))
  if kind == 'swag':
    c.update(cited(PAPER, batch_size=16, epochs=3.0))
    c.optimizer.schedule.update(cited(PAPER, peak=2e-5))
  else:
    c.update(cited(ROBERTA, batch_size=16, epochs=5.0, length=512))
    c.optimizer.schedule.update(cited(ROBERTA, peak=1e-5))
  c.model.update(cited(PAPER, labels=(('right', 1),)))
  c.objective = cited(PAPER, name='choose')
  task = cited("ours: the task's columns", name='choice', **FILES[kind])
  c.data.task = task
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='choice', batch_size=16)
  return c
