"""XLM (Conneau and Lample 2019, facebookresearch/XLM): causal, masked and translation language
modelling in steps of one language each.

  python -m bertjax.main --config=configs/xlm.py:xlm15 --workdir=runs/xlm \
      --config.data.input='en=wiki.en.txt,fr=wiki.fr.txt,en-fr=both.en.txt+both.fr.txt' \
      --config.data.vocab=DIR_WITH_codes_AND_vocab

Sizes: en (masked, one language), xlm15 (masked and translation), xlm17, xlm100 (masked, no language
embeddings); tiny, test (all three); en_clm, tiny_clm (causal, one language). Those that have causal
steps write, of several languages with --language=en:

  python -m bertjax.generate --workdir=runs/xlm --text='Once upon a time'

Without parallel text take a size without translation. No
command was published for xlm17 and xlm100: their optimizer is what the code does by default.

What a translation tells: `--evaluate` scores a run's newest checkpoint, and scores it again without
the other language in sight with --config.phases.tlm.model.attend=language.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES as SHAPES
from configs import bert

EN = 'XLM/README.md, I.2: the command for English'
XNLI_15 = 'XLM/README.md, IV: the command for the 15 languages of XNLI'
NONE = "XLM/xlm/optim.py's default: no command is published (unverified)"
UPDATES = 'XLM/xlm/optim.py:AdamInverseSqrtWithWarmup, by its default'
COMMANDS = {'en': EN, 'en_clm': EN, 'xlm15': XNLI_15, 'xlm17': NONE, 'xlm100': NONE}
OURS = 'ours: as of configs/bert.py'
RELEASED = 'the released model, mlm_17_1280.pth and mlm_100_1280.pth (unverified)'
# Where a command says no width of the FFN, it is 4 times the model's: xlm/model/transformer.py.
SIZES = {
  'test': cited(OURS, **SHAPES['test']),
  'tiny': cited(OURS, **SHAPES['tiny']),
  'en': cited(EN, layers=12, width=2048, heads=16, ffn=8192),
  'xlm15': cited(XNLI_15, layers=12, width=1024, heads=8, ffn=4096),
  'xlm17': cited(RELEASED, layers=16, width=1280, heads=16, ffn=5120),
  'xlm100': cited(RELEASED, layers=16, width=1280, heads=16, ffn=5120),
}
SIZES |= {f'{size}_clm': SIZES[size] for size in ('en', 'tiny')}
ONE = ('en', 'en_clm', 'tiny_clm')  # of one language
KINDS = {
  'test': ('clm', 'mlm', 'tlm'),
  'tiny': ('clm', 'mlm', 'tlm'),
  'en': ('mlm',),
  'en_clm': ('clm',),
  'tiny_clm': ('clm',),
  'xlm15': ('mlm', 'tlm'),
  'xlm17': ('mlm',),
  'xlm100': ('mlm',),
}
# XLM numbers languages in the order of their names.
XNLI = tuple('ar bg de el en es fr hi ru sw th tr ur vi zh'.split())


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of transformer.py."""
  m = bert.model('test')
  m.update(
    cited(defaults.NAMES, family='xlm', size=size)
    | SIZES[size]
    | cited(
      'XLM/xlm/model/transformer.py:TransformerModel',
      norm_eps=1e-12,
      initializer='torch',
      init_std=SIZES[size]['width'] ** -0.5,
      zero_row=-1,  # that of <pad>
      types=0,
    )
    | cited('XLM/xlm/model/transformer.py:N_MAX_POSITIONS', positions=512)
    | cited('XLM/xlm/model/transformer.py:PredLayer', transform=False, labels=())
    # Of labels: the first token, dropout and a linear map.
    | cited('XLM/xlm/evaluation/xnli.py:proj', pooler_activation='none')
    | cited(
      "XLM/README.md's commands; the code's default is ReLU",
      activation='gelu_erf',
      dropout=0.1,
      attention_dropout=0.1,
    )
    | cited(EN if size in ONE else 'ours: none', extra=())
  )
  # 0: the store's languages.
  languages = {'test': 0, 'tiny': 0, 'xlm15': len(XNLI)}
  if size in languages:
    table = (('language', languages[size]),)
    m.update(cited('XLM/xlm/model/transformer.py:lang_embeddings', extra=table))
  if size in ('xlm17', 'xlm100'):
    m.update(cited('these have no language embeddings (unverified)', extra=()))
  return m


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default xlm15)."""
  size = defaults.parse_size(arg, SIZES, 'xlm15')
  command = COMMANDS.get(size, 'ours: as xlm100')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'xlm-{size}'))
  c.update(
    cited(
      'ours: XLM/README.md stops after 25 epochs without gain (10 for xlm15)', total_steps=1_000_000
    )
    | cited("XLM/README.md's commands, a GPU", batch_size=32, length=256)  # bptt
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))

  c.model = model(size)
  # Mean over the targets of a step.
  c.objective = cited('XLM/xlm/model/transformer.py:PredLayer', name='mlm', plus=0.0)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(
      command,
      b2=0.98 if size == 'xlm15' else 0.999,
      weight_decay=0.01 if size in ('en', 'en_clm') else 0.0,
    )
    | cited(
      'XLM/xlm/optim.py:Adam',
      eps=1e-8,
      bias_correction=True,
      eps_first=True,
      decay=defaults.DECAY_ALL,
    )
    | cited('XLM/train.py:clip_grad_norm', clip=5.0)
  )
  if size in ('en', 'en_clm'):
    c.optimizer.update(cited(EN, eps=1e-6))
  # Only the command for English says a warm-up.
  others = (UPDATES if command == XNLI_15 else command, 4000)
  warm, warmup = (command, 30_000) if size in ('en', 'en_clm') else others
  c.optimizer.schedule = cited(command, name='inverse_sqrt', peak=1e-4) | cited(
    warm, warmup_steps=warmup
  )

  c.data.plan, c.data.mask = recipes.XLM_PLAN, recipes.XLM_MASK
  if size == 'xlm15':
    c.data.update(cited(XNLI_15, languages=XNLI))
  if size not in ONE:
    # 0.0, as often each, is the code's default.
    c.data.update(cited('XLM paper, section 5.1 (unverified)', language_alpha=0.7))
    one = cited(
      'XLM/xlm/trainer.py:get_batch, of one language', language_block=c.get_oneway_ref('batch_size')
    )
    c.data.update(one)

  causal = dict(model=dict(attend='causal'), data=dict(mask=recipes.CAUSAL_MASK))
  if KINDS[size] == ('clm',):
    c.model.update(cited('XLM paper, section 3.2 (unverified)', **causal['model']))
    c.data.mask = recipes.CAUSAL_MASK
  if len(KINDS[size]) > 1:
    # Of every language or pair up to five, a step each, in this order.
    each = 5 if size == 'xlm15' else 1
    both = dict(model=dict(attend='example'), data=dict(plan=recipes.TRANSLATION_PLAN))
    kinds = dict(clm=causal, mlm=dict(), tlm=both)
    turns = {kind: dict(turns=each, **kinds[kind]) for kind in KINDS[size]}
    c.phases = cited('XLM/train.py:main, shuf_order' if each > 1 else 'ours: one of each', **turns)
    c.best.update(cited(defaults.NAMES, metric='eval/mlm/mlm_masked'))
  if size in ('tiny', 'tiny_clm'):
    defaults.laptop(c)
  # A causal step is not to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  return c
