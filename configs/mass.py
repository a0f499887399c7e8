"""MASS (Song et al. 2019): half of a sentence is hidden, and the decoder writes that half.

  python -m bertjax.main --config=configs/mass.py:base --workdir=runs/mass \
      --config.data.input='text/*.txt' --config.data.vocab=vocab.txt

Sizes: test, tiny (ours), base. The model, its optimizer and its steps are those of the code for
summaries (MASS-summarization), whose blocks of 64 are config.data.mask.block=64 and edges=0; the
run of half a text, which lies at the text's ends more often than elsewhere, is that of the paper
and of the code for translation (MASS-unsupNMT). There the decoder does not see the [MASK] of the
encoder's text and there are several languages; here it does, and there is one.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs import bart

SIZES = ('test', 'tiny', 'base')
README = 'MASS/MASS-summarization/README.md'
CODE = 'MASS/MASS-summarization/mass'
RUNS = 'MASS/MASS-unsupNMT/src/trainer.py:restricted_mask_sent'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'mass-{size}'))
  c.update(cited(f'{README}: 8 GPUs x 16 steps of a sentence each', batch_size=128))
  c.update(cited(README, total_steps=125_000, length=512))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=5000, checkpoint_steps=5000))
  c.best.update(cited(defaults.NAMES, metric='eval/seq2seq'))

  c.model = bart.model(size)
  c.model.update(
    cited(f'{CODE}/xtransformer.py: embeddings times sqrt(D)', scaled=True)
    | cited(README, dropout=0.1, inner_dropout=0.1, attention_dropout=0.1)
  )
  if size == 'base':
    c.model.update(cited(f'{CODE}/xtransformer.py: max positions', positions=512))
  c.objective = cited('fairseq/fairseq/criterions/cross_entropy.py', name='seq2seq', z_loss=0.0)
  bart.adam(c, 5e-4)
  c.optimizer.update(cited(README, b2=0.98, eps=1e-6, weight_decay=0.01, clip=0.0))
  steps = c.get_ref('total_steps')
  c.optimizer.schedule.update(cited(README, peak=5e-4, warmup_steps=steps * 10_000 // 125_000))

  c.data.plan = cited('ours: whole texts, in pieces', name='chunks', ends='', across=False)
  c.data.mask = cited(
    RUNS, name='mass_runs', rate=0.5, block=0, edges=0.2, mask_share=0.8, random_share=0.1,
    static=False,
  )  # fmt: skip
  c.data.update(cited('ours: short texts share a row', pack=16))
  del c.evals.pseudo_perplexity
  if size in ('test', 'tiny'):
    defaults.laptop(c)
    c.model.update(cited('ours: what a laptop learns with', dropout=0.0, inner_dropout=0.0))
  return c
