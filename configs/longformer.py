"""Longformer (Beltagy et al. 2020, arXiv 2004.05150; allenai/longformer): RoBERTa, continued on
rows of 4,096 tokens that each see 256 others on either side.

  python -m bertjax.main --config=configs/longformer.py:base --workdir=runs/longformer \
      --config.init_from=hf:DIR_OF_ROBERTA --config.data.input='text/*.txt'

Sizes: test, tiny, base, large. The model that it begins with, a RoBERTa of transformers or a run of
configs/roberta.py, brings its shape and its vocabulary; its table of positions is repeated up to
config.model.positions. The rate stays where the warm-up leaves it, as in the original's notebook of
3,000 steps; its paper has 65,000, and a decay by the third power.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.models.bert import SIZES
from configs import roberta

NOTEBOOK = 'longformer/scripts/convert_model_to_long.ipynb'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = roberta.get_config(size)
  c.update(cited(defaults.NAMES, name=f'longformer-{size}'))
  c.update(cited(NOTEBOOK, total_steps=3_000, batch_size=64, length=4096))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=500, checkpoint_steps=500))
  c.model.update(cited(defaults.NAMES, name='longformer', family='longformer'))
  c.model.update(cited(NOTEBOOK, positions=4098, window=256))
  if size == 'test':
    c.model.update(cited('ours: rows of tests are longer', window=4))
  c.optimizer.update(cited(NOTEBOOK, b2=0.999, weight_decay=0.01, clip=5.0))
  warmup = c.get_ref('total_steps') * 500 // 3_000
  c.optimizer.schedule.update(cited(NOTEBOOK, peak=3e-5, warmup_steps=warmup, end_ratio=1.0))
  if size == 'tiny':
    defaults.laptop(c)
  return c
