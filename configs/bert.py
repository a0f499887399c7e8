"""BERT (Devlin et al. 2019, google-research/bert): masked tokens and next sentence on English text.

  python -m bertjax.main --config=configs/bert.py:base --workdir=runs/bert \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

Sizes: test, tiny, mini, small, medium, base, large. The recipe is the paper's: batch 256, one
million steps, peak learning rate 1e-4, 90% of the steps at length 128 and the rest at 512. tiny, of
this and the other systems, has a laptop's batches and rates: see `common.laptop`.
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from bertjax.data import recipes
from bertjax.models.bert import SIZES
from configs import common


def model(size: str) -> ConfigDict:
  """`config.model` of a size, with the numerics of google-research/bert (modeling.py)."""
  return ConfigDict(
    dict(
      name='bert',
      family='bert',  # of the classes of transformers; see bertjax/convert
      size=size,
      **SIZES[size],
      vocab_size=0,  # 0: the store's vocabulary
      embedding_width=0,  # 0: width
      positions=512,
      sinusoid=False,
      types=2,
      extra=(),
      position_offset=0,
      zero_row=placeholder(int),
      norm_eps=1e-12,
      activation='gelu_tanh',
      dropout=0.1,
      attention_dropout=0.1,
      initializer='truncated_normal',
      init_std=0.02,
      attend='example',  # 'self': the ablation without attention
      transform=True,
      sharing='none',  # of parameters between layers; 'all', 'attention' or 'ffn': ALBERT
      groups=1,
      inner_groups=1,
      words=True,
      pooler=False,  # without a label that reads it
      labels=(('next', 2),),
      token_labels=(),
      remat=False,
      dtype='float32',  # compute; parameters are float32. 'bfloat16' on TPU and GPU
    )
  )


def recipe(size: str) -> ConfigDict:
  """The paper's, whatever the size."""
  c = common.base()
  c.name = f'bert-{size}'
  c.total_steps = 1_000_000  # paper, appendix A.2
  c.batch_size = 256  # paper
  c.length = 512
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000

  c.model = model(size)
  c.objective = dict(name='mlm', plus=1e-5)  # run_pretraining.py

  c.optimizer = common.adamw()  # optimization.py: no bias correction
  c.optimizer.schedule = dict(
    name='bert_linear',
    peak=1e-4,  # paper
    warmup_steps=c.get_ref('total_steps') // 100,  # paper: 10,000 of 1,000,000
    total_steps=c.get_ref('total_steps'),
  )

  c.data.plan, c.data.mask = recipes.BERT_PLAN, recipes.BERT_MASK

  short = dict(share=0.9, length=c.get_ref('length') // 4)  # 128 of 512
  c.phases.phase1, c.phases.phase2 = short, dict(share=0.1)
  return c


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = common.parse_size(arg, SIZES, 'base')
  c = recipe(size)
  if size == 'tiny':
    common.laptop(c)
    c.phases = ConfigDict()
  return c
