"""XNLI (Conneau et al. 2018): entailment learned in one language, judged in others.

  python -m bertjax.main --config=configs/finetune/xnli.py:de,zh --workdir=runs/xnli \
      --config.init_from=runs/mbert --config.data.train=train.en.jsonl \
      --config.data.dev=dev.en.jsonl --config.evals.de.file=dev.de.jsonl \
      --config.evals.zh.file=dev.zh.jsonl

The argument names the other languages, each of which has a file of its own and the scores
eval/LANGUAGE/accuracy. Files have premise, hypothesis and label, 0 (entailment), 1 (neutral) or 2
(contradiction). The best checkpoint is that of the language that is learned: the others are
zero-shot. An encoder with a table of languages, as XLM's of 15, knows them by these names, and by
config.data.language, en, that of training and of dev; where it does not say their names, they are
numbers, --config.evals.de.language=2.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.errors import UserError
from configs.finetune import text

README = 'bert/multilingual.md, fine-tuning example'


def get_config(arg: str | None = None):
  """The recipe with an evaluation for each language of `arg`, names joined by commas.

  Raises:
    UserError: no name for a language, or 'dev', which is the one that is learned.
  """
  languages = arg.split(',') if arg else []
  if not all(name.isidentifier() and name != 'dev' for name in languages):
    raise UserError(
      f"expected languages with commas between them, as in de,zh, none of them 'dev', got {arg!r}"
    )
  c = text.recipe(('premise', 'hypothesis'), 'label', ('0', '1', '2'), 'accuracy')
  c.update(cited(defaults.NAMES, name='finetune-xnli'))
  c.update(cited(README, batch_size=32, length=128, epochs=2.0))
  c.optimizer.schedule.update(cited(README, peak=5e-5))
  c.data.update(cited('XNLI paper: learned in English', language='en'))
  for name in languages:
    own = dict(file=f'{name}.jsonl', language=name)
    c.evals[name] = cited(defaults.EVERY, **c.evals.dev, **own)
  return c
