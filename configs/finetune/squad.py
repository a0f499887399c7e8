"""Question answering: SQuAD 1.1 (Rajpurkar et al. 2016) and 2.0 (2018), and files in their form.

  python -m bertjax.main --config=configs/finetune/squad.py:v1 --workdir=runs/squad \
      --config.init_from=hf:DIR --config.data.train=train-v1.1.json --config.data.dev=dev-v1.1.json

v1: every question has its answer in the text. v2: some have none. The recipe is BERT's (Devlin et
al. 2019, section 4.2; google-research/bert, run_squad.py); that of another family is
squad.py:v1,roberta, or albert, electra, electra_large, xlnet, xlnet_base (families.py), with the
head of its original (config.model.answers). XQuAD and CMRC 2018 are files of the form of v1; CMRC's
and DRCD's f1 is that of --config.evals.dev.program=cmrc, MLQA's in Chinese of mlqa_zh.

Languages behind it, squad.py:v1,de,zh or v1,roberta,de,zh, are judged zero-shot, as XQuAD is
(Artetxe et al. 2020): by a file each, --config.evals.de.file=xquad.de.json, at the end alone. The
best checkpoint is that of the language that is learned; `--evaluate --step=best` judges it in all.
Scores are SQuAD's: of Chinese, which has no spaces, f1 is that of whole answers.

Steps are questions / batch_size * epochs, as in the original; a question whose text takes several
windows has as many rows, so that an epoch of rows is somewhat longer.
"""

import re

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.errors import UserError
from configs import bert
from configs.finetune import families

CODE = 'bert/run_squad.py'
LANGUAGE = re.compile('[a-z]{2,3}')  # ISO 639; families have longer names


def recipe(no_answer: bool) -> Recipe:
  """Fine-tuning on questions; `no_answer`: some have none."""
  c = defaults.base()
  c.update(cited(defaults.NAMES, name='finetune-squad'))
  c.update(cited(f'{CODE}: flags', batch_size=32, epochs=3.0, length=384))
  c.update(cited(defaults.EVERY, log_steps=20))

  c.model = bert.model('base')
  heads = dict(words=False, labels=(), token_labels=(('span', 0),), head_dropout=0.0)
  c.model.update(cited(f'{CODE}:create_model', **heads))
  c.objective = cited(f'{CODE}:compute_loss', name='spans')
  c.optimizer = defaults.adamw()
  c.optimizer.schedule = (
    cited('bert/optimization.py:create_optimizer', name='bert_linear')
    | defaults.the_run(c)
    | cited(f'{CODE}: flags', peak=5e-5, warmup_steps=c.get_ref('total_steps') // 10)
  )

  c.data.update(cited('ours: labelled files', reader='labelled'))
  c.data.task = cited(f'{CODE}: flags', name='spans') | cited(
    f'{CODE}:convert_examples_to_features', no_answer=no_answer
  )
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='spans')
  c.best.update(
    cited('ours: the score that the task is known by', metric='eval/dev/f1', mode='max')
  )
  return c


def get_config(arg: str | None = None):
  """The recipe for 'v1' (default) or 'v2', with a family ('v2,electra'), and with languages to be
  judged in ('v1,de,zh'), of two or three letters each.

  Raises:
    UserError: as `families.split`, or 'dev', which is the language that is learned.
  """
  names = (arg or 'v1').split(',')
  others = [name for name in names if LANGUAGE.fullmatch(name)]
  if 'dev' in others:
    raise UserError(f"squad.py: 'dev' is the language that is learned, got {arg!r}: leave it out")
  known = ','.join(name for name in names if name not in others)
  version, family = families.split(known, ('v1', 'v2'), 'v1')
  c = recipe(no_answer=version == 'v2')
  if version == 'v2':
    c.update(cited('BERT paper, section 4.3 (unverified)', batch_size=48, epochs=2.0))
  families.apply(c, family, version)
  for name in others:
    c.evals[name] = cited('ours: as the language that is learned', **c.evals.dev) | cited(
      "ours: XQuAD's files, at the end", file=f'xquad.{name}.json', every=0
    )
  return c
