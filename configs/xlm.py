"""XLM (Conneau and Lample 2019, facebookresearch/XLM): causal, masked and translation language
modelling in steps of one language each.

  python -m bertjax.main --config=configs/xlm.py:xlm15 --workdir=runs/xlm \
      --config.data.input='en=wiki.en.txt,fr=wiki.fr.txt,en-fr=both.en.txt+both.fr.txt' \
      --config.data.vocab=DIR_WITH_codes_AND_vocab

Sizes: en (masked, one language), xlm15 (masked and translation), xlm17, xlm100 (masked, no language
embeddings); tiny, test (all three). Without parallel text take a size without translation.

What a translation tells: `--evaluate` scores a run's newest checkpoint, and scores it again without
the other language in sight with --config.phases.tlm.model.attend=language.
"""

from ml_collections import ConfigDict

from bertjax.data import recipes
from bertjax.models.bert import SIZES as SHAPES
from configs import bert, common

# README: en 12/2048/16, XNLI 15 12/1024/8, 17 and 100 languages 16/1280/16; the FFN is 4 times as
# wide.
SIZES: dict[str, dict[str, int]] = {
  'test': SHAPES['test'],
  'tiny': SHAPES['tiny'],
  'en': dict(layers=12, width=2048, heads=16, ffn=8192),
  'xlm15': dict(layers=12, width=1024, heads=8, ffn=4096),
  'xlm17': dict(layers=16, width=1280, heads=16, ffn=5120),
  'xlm100': dict(layers=16, width=1280, heads=16, ffn=5120),
}
KINDS = {
  'test': ('clm', 'mlm', 'tlm'),
  'tiny': ('clm', 'mlm', 'tlm'),
  'en': ('mlm',),
  'xlm15': ('mlm', 'tlm'),
  'xlm17': ('mlm',),
  'xlm100': ('mlm',),
}
# XLM numbers languages in the order of their names.
XNLI = tuple('ar bg de el en es fr hi ru sw th tr ur vi zh'.split())


def model(size: str) -> ConfigDict:
  """`config.model` of a size, with the numerics of transformer.py."""
  m = bert.model('test')
  m.update(
    dict(
      family='xlm',
      size=size,
      **SIZES[size],
      types=0,
      extra=(),
      norm_eps=1e-12,
      activation='gelu_erf',  # README's commands; the code's default is ReLU
      initializer='torch',
      init_std=SIZES[size]['width'] ** -0.5,
      transform=False,
      labels=(),
    )
  )
  # None: 17 and 100 have no language embeddings (unverified). 0: the store's languages.
  languages = {'test': 0, 'tiny': 0, 'xlm15': len(XNLI)}
  if size in languages:
    m.extra = (('language', languages[size]),)
  m.zero_row = 2  # <pad>
  return m


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default xlm15)."""
  size = common.parse_size(arg, SIZES, 'xlm15')
  c = common.base()
  c.name = f'xlm-{size}'
  c.total_steps = 1_000_000  # open: the README stops after 25 epochs (10 for xlm15) without gain
  c.batch_size = 32  # README, per GPU
  c.length = 256  # bptt
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000

  c.model = model(size)
  c.objective = dict(name='mlm', plus=0.0)  # mean over the targets of a step

  c.optimizer = common.adamw()
  c.optimizer.b2 = 0.98 if size == 'xlm15' else 0.999  # README
  c.optimizer.eps = 1e-6 if size == 'en' else 1e-8  # README; optim.py
  c.optimizer.weight_decay = 0.01 if size == 'en' else 0.0  # README
  c.optimizer.bias_correction = c.optimizer.eps_first = True  # optim.py:Adam
  c.optimizer.decay = common.DECAY_ALL
  c.optimizer.clip = 5.0
  c.optimizer.schedule = dict(
    name='inverse_sqrt',
    peak=1e-4,
    warmup_steps=30_000,  # README; 4000 in optim.py
  )

  c.data.plan, c.data.mask = recipes.XLM_PLAN, recipes.XLM_MASK
  c.data.languages = XNLI if size == 'xlm15' else ()
  if size != 'en':
    c.data.language_alpha = 0.7  # paper (unverified); 0.0, as often each, is the code's default
    c.data.language_block = c.get_ref('batch_size')

  if len(KINDS[size]) > 1:
    # Of every language or pair up to five, a step each (trainer.py), in this order.
    each = 5 if size == 'xlm15' else 1
    causal = dict(model=dict(attend='causal'), data=dict(mask=recipes.CAUSAL_MASK))
    both = dict(model=dict(attend='example'), data=dict(plan=recipes.TRANSLATION_PLAN))
    kinds = dict(clm=causal, mlm=dict(), tlm=both)
    for kind in KINDS[size]:
      c.phases[kind] = dict(turns=each, **kinds[kind])
    c.best.metric = 'eval/mlm/mlm_masked'
  if size == 'tiny':
    common.laptop(c)
  c.evals.pseudo_perplexity.rows = 0  # a causal step is not to be scored with both sides visible
  return c
