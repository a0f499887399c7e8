"""ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT, yamls/modernbert): a
current encoder, with packed rows and 8,192 positions.

  python -m bertjax.main --config=configs/modernbert.py:base --workdir=runs/modernbert \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_tokenizer.json

Sizes: test, tiny, base, large.
"""

from ml_collections import ConfigDict

from bertjax.data import recipes
from bertjax.models.modernbert import SIZES
from configs import common


def model(size: str) -> ConfigDict:
  """`config.model` of a size."""
  return ConfigDict(
    dict(
      name='modernbert',
      family='modernbert',
      size=size,
      **SIZES[size],
      vocab_size=0,  # 0: the store's vocabulary; the paper's has 50,368
      positions=8192,
      activation='gelu_erf',
      gated=True,
      norm='layer_norm',
      norm_eps=1e-5,
      biases=False,
      distances='rotary',
      theta=10_000.0,  # of global layers; the context extension raises it
      local_theta=10_000.0,
      window=64,  # keys on each side: sliding_window 128
      global_every=3,
      embedding_dropout=0.0,
      attention_dropout=0.0,
      dropout=0.1,  # attn_out_dropout_prob
      ffn_dropout=0.0,
      init_std=0.02,
      attend='example',
      words=True,
      remat=False,
      dtype='float32',  # compute; parameters are float32. 'bfloat16' on TPU and GPU
    )
  )


def recipe(size: str) -> ConfigDict:
  c = common.base()
  c.name = f'modernbert-{size}'
  c.total_steps = 1000
  c.batch_size = 4608
  c.length = 1024
  c.model = model(size)
  c.objective = dict(name='mlm', plus=0.0)
  c.optimizer = common.adamw()
  c.optimizer.schedule = dict(
    name='linear', peak=8e-4, warmup_steps=10, total_steps=c.get_ref('total_steps')
  )
  c.data.plan, c.data.mask = recipes.ROBERTA_PLAN, recipes.ROBERTA_MASK
  c.data.pack = 8
  return c


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = common.parse_size(arg, SIZES, 'base')
  c = recipe(size)
  if size == 'tiny':
    common.laptop(c)
  return c
