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

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from configs import bert

PAPER = 'ALBERT paper, table 1'
SIZES = {
  'test': cited(
    'ours: as of configs/bert.py', layers=2, width=64, heads=8, ffn=256, embedding_width=32
  ),
  'tiny': cited(
    'ours: as of configs/bert.py', layers=2, width=128, heads=2, ffn=512, embedding_width=64
  ),
  'base': cited(PAPER, layers=12, width=768, heads=12, ffn=3072, embedding_width=128),
  'large': cited(PAPER, layers=24, width=1024, heads=16, ffn=4096, embedding_width=128),
  'xlarge': cited(PAPER, layers=24, width=2048, heads=16, ffn=8192, embedding_width=128),
  'xxlarge': cited(PAPER, layers=12, width=4096, heads=64, ffn=16_384, embedding_width=128),
}
V2 = 'albert/README.md, version 2'
VERSIONS = {
  '': cited('ALBERT paper, section 4.1', total_steps=125_000),
  '_v1': cited('albert/README.md, ALBERT (1.5M)', total_steps=1_500_000),
  '_v2': cited(V2, total_steps=3_000_000),
}


def get_config(arg: str | None = None):
  """The recipe at the size, and version, named by `arg` (default base)."""
  names = [size + version for size in SIZES for version in VERSIONS]
  name = defaults.parse_size(arg, names, 'base')
  size, version = (name[:-3], name[-3:]) if name[-3:] in VERSIONS else (name, '')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'albert-{name}'))
  c.update(VERSIONS[version])
  if name == 'base_v2':
    c.update(cited(V2, total_steps=10_000_000))
  c.update(cited('ALBERT paper, section 4.1', batch_size=4096, length=512))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=5000, checkpoint_steps=5000))

  c.model = bert.model('base')
  c.model.update(
    cited(defaults.NAMES, family='albert', size=size)
    | SIZES[size]
    # One block for all layers, as in the published models.
    | cited('albert/modeling.py:AlbertConfig', sharing='all')
    | cited('albert/run_pretraining.py:get_sentence_order_output', labels=(('order', 2),))
  )
  c.objective = cited('albert/run_pretraining.py:get_masked_lm_output', name='mlm', plus=1e-5)

  c.optimizer = defaults.adamw()
  if size != 'tiny':
    # Norms and biases take the plain update; no bias correction.
    c.optimizer.update(
      cited(
        'albert/lamb_optimizer.py:LAMBOptimizer',
        name='lamb',
        b2=0.999,
        eps=1e-6,
        bias_correction=False,
      )
    )
  full = c.total_steps
  c.optimizer.schedule = (
    cited('albert/optimization.py:create_optimizer', name='bert_linear')
    | defaults.the_run(c)
    | cited(
      'ALBERT paper, section 4.1; albert/README.md, the pretraining command',
      peak=1.76e-3,  # of batch 4096
      warmup_steps=c.get_ref('total_steps') * 3125 // full,
    )
  )

  # Quirks: a lone sentence gets random text and the label of a swap (random_b); README's command
  # has 20 targets at length 512 too, 4% (max_targets=0 mends it: 77, 15%).
  c.data.plan, c.data.mask = recipes.ALBERT_PLAN, recipes.ALBERT_MASK

  off = dict(dropout=0.0, attention_dropout=0.0)
  if version == '_v1':
    without = dict(share=500_000.0, model=off)
    c.phases = cited(
      'ALBERT paper, section 4.8 (unverified)', phase1=dict(share=1_000_000.0), phase2=without
    )
  if version == '_v2':
    c.update(cited(V2, model=off))
  if name == 'tiny':
    defaults.laptop(c)
    c.data.mask.update(cited('ours: 15% of so short a row', max_targets=0))
  return c
