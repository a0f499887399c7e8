"""Texts that are answered by texts: summaries, translations, answers, classes by their names.

  python -m bertjax.main --config=configs/finetune/write.py --workdir=runs/mine \
      --config.init_from=runs/t5 --config.data.train=train.tsv --config.data.dev=dev.tsv \
      --config.data.task.read='translate English to German: {text}' \
      --config.data.task.write=target

Files are .tsv, .csv or .jsonl, with columns by name; {text} and target are those of this recipe.
`init_from` names the model, a run or hf:DIR, which brings its shape and vocabulary. Several tasks
in one run, each with its own file and prefix, are `tasks.py:one=write,other=write`, drawn by size
or with config.temperature.

The recipe is T5's (Raffel et al. 2020, section 3.1.2), but for 2^18 steps there and a number of
epochs here; write.py:bart is BART's for summaries (fairseq/examples/bart, CNN/DM; without its label
smoothing), with texts between [CLS] and [SEP].
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs import bart, t5

PAPER = 'T5 paper, section 3.1.2'
SUMMARIES = 'fairseq/examples/bart/README.summarization.md'


def get_config(arg: str | None = None):
  """The recipe for `arg`: t5 (the default) or bart."""
  kind = defaults.parse_size(arg, ('t5', 'bart'), 't5')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name='finetune-write'))
  c.update(cited('ours: passes over a file of any size', epochs=3.0))
  c.update(cited(defaults.EVERY, log_steps=20))
  c.data.update(cited('ours: labelled files', reader='labelled'))
  c.data.task = cited(
    "ours: the task's columns", name='write', read='{text}', write='target', target_length=128
  )
  (_t5 if kind == 't5' else _bart)(c)
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='generated')
  c.best.update(cited('ours: of texts of any kind', metric='eval/dev/rouge_l', mode='max'))
  return c


def _t5(c: Recipe) -> None:
  c.update(cited(PAPER, batch_size=128, length=512))
  c.model = t5.model('base')
  c.model.update(cited(PAPER, dropout=0.1))
  c.objective = cited(f'{t5.T5X}/t5_1_0/base.gin:Z_LOSS', name='seq2seq', z_loss=1e-4)
  c.optimizer = t5.adafactor()
  c.optimizer.schedule = Recipe(cited(PAPER, name='constant', peak=1e-3))


def _bart(c: Recipe) -> None:
  c.update(cited('ours: 8 GPUs x 4 steps of 2048 tokens there', batch_size=128))
  c.update(cited(SUMMARIES, length=1024))
  c.data.task.update(cited(SUMMARIES, framed=True))
  c.model = bart.model('base')
  c.model.update(cited(SUMMARIES, dropout=0.1, attention_dropout=0.1))
  c.objective = cited(SUMMARIES, name='seq2seq', z_loss=0.0)
  bart.adam(c, 3e-5)
  c.optimizer.update(cited(SUMMARIES, b2=0.999, eps=1e-8, weight_decay=0.01, clip=0.1))
  steps = c.get_ref('total_steps')
  c.optimizer.schedule.update(cited(SUMMARIES, peak=3e-5, warmup_steps=steps * 500 // 20_000))
