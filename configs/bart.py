"""BART (Lewis et al. 2020): sentences change places, spans become masks, the text is written whole.

  python -m bertjax.main --config=configs/bart.py:base --workdir=runs/bart \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_vocab.json_AND_merges.txt

Sizes: test, tiny (ours), base, large. A run reads and writes as a T5 does, see docs/generate.md;
configs/finetune/write.py:bart fine-tunes it on pairs of texts.

The paper and its code give no command of pretraining: optimizer and rate are RoBERTa's, whose data
and batches it has. The paper switches dropout off for the last tenth of the steps; here it stays.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.models.bart import SIZES

PAPER = 'BART paper, section 4 (unverified)'
CODE = 'fairseq/fairseq/models/bart/model.py'
NOISE = 'BART paper, sections 2.2 and 3; fairseq/fairseq/data/denoising_dataset.py'
ROBERTA = "ours: RoBERTa's, BART's are not published"


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of fairseq."""
  own = size in ('test', 'tiny')
  return Recipe(
    cited(defaults.NAMES, name='bart', family='bart', size=size)
    | cited('ours: a small one' if own else f'{CODE}: bart_{size}_architecture', **SIZES[size])
    | cited(f'{CODE}:bart_large_architecture', activation='gelu_erf', scaled=False)
    | cited("fairseq/fairseq/modules/layer_norm.py, by torch's default", norm_eps=1e-5)
    | cited(
      f'{CODE}:bart_large_architecture', dropout=0.1, inner_dropout=0.0, attention_dropout=0.0
    )
    | cited('fairseq/fairseq/modules/transformer_sentence_encoder.py', init_std=0.02, zero_row=-1)
  )


def adam(c: Recipe, peak: float) -> None:
  """Gives a recipe RoBERTa's Adam and schedule."""
  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(ROBERTA, b2=0.98, eps=1e-6, weight_decay=0.01, clip=0.0, decay=defaults.DECAY_ALL)
    | cited('fairseq/fairseq/optim/adam.py:Adam', bias_correction=True, eps_first=True)
  )
  c.optimizer.schedule = (
    cited('fairseq/fairseq/optim/lr_scheduler/polynomial_decay_schedule.py', name='linear')
    | defaults.the_run(c)
    | cited(ROBERTA, peak=peak, warmup_steps=c.get_ref('total_steps') * 24_000 // 500_000)
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'bart-{size}'))
  c.update(cited(PAPER, batch_size=8000, total_steps=500_000))
  c.update(cited('ours: as RoBERTa', length=512))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited(defaults.NAMES, metric='eval/seq2seq'))

  c.model = model(size)
  c.objective = cited('fairseq/fairseq/criterions/cross_entropy.py', name='seq2seq', z_loss=0.0)
  adam(c, 4e-4 if size == 'large' else 6e-4)

  c.data.plan = cited(
    'fairseq/fairseq/tasks/denoising.py: complete_doc, without line ends',
    name='chunks', ends='', across=False,
  )  # fmt: skip
  c.data.mask = cited(
    NOISE, name='bart_infilling', rate=0.3, mean_span=3.0, permuted=1.0, random_share=0.0,
    whole_words=True, static=False,
  )  # fmt: skip
  c.data.update(cited('ours: short documents share a row', pack=16))
  del c.evals.pseudo_perplexity
  if size in ('test', 'tiny'):
    defaults.laptop(c)
    c.model.update(cited('ours: what a laptop learns with', dropout=0.0))
  return c
