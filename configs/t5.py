"""T5 (Raffel et al. 2020): spans of a text become sentinels, and the decoder writes them.

  python -m bertjax.main --config=configs/t5.py:v1_1_small --workdir=runs/t5 \
      --config.data.input='text/*.txt' --config.data.vocab=FILE.model

A vocabulary with sentinels is made of the text with --config.data.train_vocab.type=t5 and .size=N.
A run writes: python -m bertjax.generate --workdir=runs/t5 --text='It is <extra_id_0> to rain.'

Sizes: test, tiny (ours), small, base, large, xl, xxl of version 1.0 (xl and xxl are 3B and 11B),
the same with v1_1_ before them, and nano_base, nanoT5's recipe for one card (github.com/
PiotrNawrot/nanoT5, whose README reports a held-out loss of 1.953 on C4 after 65,536 steps; not run
here).

The paper's other objectives are config.data.mask of other names: t5_tokens (each token by itself;
its `form` is what is read and written), t5_prefix and t5_deshuffle. As text is read here, documents
are joined whole and in order; the original takes one random chunk of 65,536 tokens of each.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.models.t5 import SIZES as FIRST
from bertjax.models.t5 import SIZES_1_1 as SECOND

T5X = 't5x/t5x/examples/t5'
NANO = 'nanoT5/nanoT5/configs (unverified)'
SECOND_OF = {f'v1_1_{size}': size for size in SECOND} | dict(nano_base='base')
SIZES = (*FIRST, *SECOND_OF)
PAPER = 'T5 paper, section 3.1'


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of t5x."""
  second, own = size in SECOND_OF, SECOND_OF.get(size, size)
  shape, version = (SECOND[own], 't5_1_1') if second else (FIRST[own], 't5_1_0')
  small = own in ('test', 'tiny')
  gin = f'{T5X}/{version}/{"base" if small else own}.gin'
  return Recipe(
    cited(defaults.NAMES, name='t5', family='t5', size=size)
    | cited('ours: a small one' if small else gin, **shape)
    | cited(
      f'{gin}:mlp_activations, logits_via_embedding',
      activation='gelu_tanh' if second else 'relu',
      gated=second,
      tied=not second,
    )
    | cited(f'{T5X}/network.py:LayerNorm', norm_eps=1e-6)
    | cited(f'{gin}:DROPOUT_RATE', dropout=0.0 if second else 0.1)
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default v1_1_small)."""
  size = defaults.parse_size(arg, SIZES, 'v1_1_small')
  nano = size == 'nano_base'
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f't5-{size}'))
  c.update(cited(PAPER, batch_size=128, length=512, total_steps=1 << 19))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited(defaults.NAMES, metric='eval/seq2seq'))

  c.model = model(size)
  c.objective = cited(f'{T5X}/t5_1_0/base.gin:Z_LOSS', name='seq2seq', z_loss=1e-4)
  c.optimizer = adafactor()
  c.optimizer.schedule = cited(
    't5x/t5x/configs/runs/pretrain.gin:create_learning_rate_scheduler',
    name='rsqrt', peak=0.01, warmup_steps=10_000,
  )  # fmt: skip

  c.data.plan = cited(
    'text-to-text-transfer-transformer/t5/data/preprocessors.py:reduce_concat_tokens, split_tokens',
    name='chunks', ends='', across=True,
  )  # fmt: skip
  c.data.mask = cited(
    'text-to-text-transfer-transformer/t5/data/preprocessors.py:span_corruption',
    name='t5_spans', rate=0.15, mean_span=3.0, numbered=True, static=False,
  )  # fmt: skip
  del c.evals.pseudo_perplexity
  if nano:
    c.update(cited(NANO, total_steps=65_536))
    c.optimizer = Recipe(
      cited(
        NANO, name='adamw_scaled', b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0, clip=1.0,
        decay=defaults.DECAY_ALL,
      )
    )  # fmt: skip
    c.optimizer.schedule = (
      cited(NANO, name='cosine', peak=2e-2, end_ratio=5e-4)
      | cited(NANO, warmup_steps=c.get_ref('total_steps') * 10_000 // 65_536)
      | defaults.the_run(c)
    )
  if size.endswith(('tiny', 'test')):
    _laptop(c)
  return c


def adafactor() -> Recipe:
  """Adafactor as t5x has it."""
  return Recipe(
    cited(
      't5x/t5x/adafactor.py',
      name='adafactor', decay_rate=0.8, eps=1e-30, min_factored=128, clip_rms=1.0, min_scale=1e-3,
      weight_decay=0.0, clip=0.0, decay=defaults.DECAY_ALL,
    )
  )  # fmt: skip


def _laptop(c: Recipe) -> None:
  """Gives a recipe what learns on a core in minutes."""
  ours = 'ours: what a laptop learns with'
  c.update(cited(ours, total_steps=2500, batch_size=32, length=64))
  c.update(cited(ours, log_steps=100, eval_steps=500, checkpoint_steps=500))
  c.model.update(cited(ours, dropout=0.0))
  c.optimizer.schedule.update(cited(ours, warmup_steps=c.get_ref('total_steps') // 10))
  c.evals.held_out.update(cited(ours, examples=512))
