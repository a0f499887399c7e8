"""XLM-R (Conneau et al. 2020, fairseq): RoBERTa on web text in 100 languages, no language ids.

  python -m bertjax.main --config=configs/xlm_r.py:base --workdir=runs/xlm_r \
      --config.data.input='en=cc100/en*.txt.xz,sw=cc100/sw*.txt.xz' --config.data.vocab=FILE.model

Sizes: those of configs/roberta.py. One SentencePiece vocabulary of 250,002 pieces. The numbers that
the fairseq repository does not give are from memory of the paper (unverified).
"""

from bertjax.cited import cited, reattribute
from bertjax.config import defaults
from bertjax.models.bert import SIZES
from configs import roberta

GUESS = "RoBERTa's, for as large a share of the steps: the XLM-R paper gives none (unverified)"


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = roberta.get_config(size)
  c.update(cited(defaults.NAMES, name=f'xlm_r-{size}'))
  c.model.update(cited(defaults.NAMES, family='xlm_roberta'))
  c.update(cited('XLM-R paper, section 3', total_steps=1_500_000, batch_size=8192))
  if size != 'tiny':
    reattribute(c, GUESS, 'optimizer.schedule.peak', 'optimizer.schedule.warmup_steps')
  c.data.update(cited('XLM-R paper, section 3 (unverified)', language_alpha=0.3))
  if size == 'tiny':
    defaults.laptop(c)
  return c
