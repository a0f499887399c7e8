"""ALBERT (Lan et al. 2020, google-research/albert): one layer's parameters for all layers, narrow
tables, n-gram masks and sentence order.

  python -m bertjax.main --config=configs/albert.py:base --workdir=runs/albert \
      --config.data.input='wiki/*.txt' --config.data.vocab=spiece.model

Sizes: test, tiny, base, large, xlarge, xxlarge; LAMB (tiny: AdamW, since a laptop's batches want
peaks at which LAMB's plain update of norms and biases is too large), batch 4096, 125,000 steps.
SIZE_v1 goes on to
1.5 million steps and switches dropout off after the first million, SIZE_v2 has none in 3 million
(base 10 million). Smaller batches need a lower peak, by sqrt(batch / 4096), or training sticks at
a loss near 7.

The other arms of the paper's comparisons:

  what is shared   --config.model.sharing=attention, ffn or none
  groups           --config.model.groups=4, and with inner_groups=2 two blocks in each
"""

from ml_collections import ConfigDict

from bertjax.data import recipes
from configs import bert, common

# Paper, table 1, and google-research/albert; E is 128 there. `test` and `tiny` are ours.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256, embedding_width=32),
  'tiny': dict(layers=2, width=128, heads=2, ffn=512, embedding_width=64),
  'base': dict(layers=12, width=768, heads=12, ffn=3072, embedding_width=128),
  'large': dict(layers=24, width=1024, heads=16, ffn=4096, embedding_width=128),
  'xlarge': dict(layers=24, width=2048, heads=16, ffn=8192, embedding_width=128),
  'xxlarge': dict(layers=12, width=4096, heads=64, ffn=16_384, embedding_width=128),
}
VERSIONS = ('', '_v1', '_v2')


def steps(size: str, version: str) -> int:
  """Steps of a version: the paper's comparisons, README's xxlarge v1, README's v2."""
  return {'': 125_000, '_v1': 1_500_000, '_v2': 10_000_000 if size == 'base' else 3_000_000}[
    version
  ]


def get_config(arg: str | None = None):
  """The recipe at the size, and version, named by `arg` (default base)."""
  names = [size + version for size in SIZES for version in VERSIONS]
  name = common.parse_size(arg, names, 'base')
  size, version = (name[:-3], name[-3:]) if name.endswith(VERSIONS[1:]) else (name, '')
  full = steps(size, version)
  c = common.base()
  c.name = f'albert-{name}'
  c.total_steps = full
  c.batch_size = 4096  # paper
  c.length = 512  # in all steps
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 5000, 5000

  c.model = bert.model('base')
  c.model.update(
    dict(
      family='albert',
      size=size,
      **SIZES[size],
      sharing='all',
      groups=1,  # the published models: one block for all layers
      inner_groups=1,
      labels=(('order', 2),),
    )
  )
  c.objective = dict(name='mlm', plus=1e-5)  # run_pretraining.py

  c.optimizer = common.adamw()  # lamb_optimizer.py: no bias correction
  if size != 'tiny':
    c.optimizer.name = 'lamb'
    c.optimizer.trust = 'decayed'  # norms and biases take the plain update
  c.optimizer.schedule = dict(
    name='bert_linear',
    peak=1.76e-3,  # paper, of batch 4096
    warmup_steps=c.get_ref('total_steps') * 3125 // full,
    total_steps=c.get_ref('total_steps'),
  )

  # Quirks: a lone sentence gets random text and the label of a swap (random_b); README's command
  # has 20 targets at length 512 too, 4% (max_targets=0 mends it: 77, 15%).
  c.data.plan, c.data.mask = recipes.ALBERT_PLAN, recipes.ALBERT_MASK

  if version == '_v1':
    off = dict(dropout=0.0, attention_dropout=0.0)
    c.phases.phase1 = dict(share=1_000_000.0)
    c.phases.phase2 = ConfigDict(dict(share=500_000.0, model=off))
  if version == '_v2':
    c.model.dropout = c.model.attention_dropout = 0.0
  if name == 'tiny':
    common.laptop(c)
    c.data.mask.max_targets = 0
  return c
