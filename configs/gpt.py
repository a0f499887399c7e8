"""GPT and GPT-2 (Radford et al. 2018 and 2019): the next token, from left to right.

  python -m bertjax.main --config=configs/gpt.py:small --workdir=runs/gpt \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_vocab.json_AND_merges.txt

A vocabulary is made of the text with --config.data.train_vocab.type=bpe and .size=N. A run writes:

  python -m bertjax.generate --workdir=runs/gpt --text='Once upon a time' --new_tokens=40

Sizes: test, tiny, mini (ours), gpt1 (117M), small, medium, large, xl (GPT-2's). GPT-1 has norms
behind what they serve, and one dropped table of words and positions, which its softmax reads whole:
--config.model.one_table=False is the class of transformers, and exports.

GPT-2's paper gives shapes, batch and length; what it leaves out is nanoGPT's (unverified). The code
of OpenAI starts all kernels at .02; the paper, and transformers, divide by sqrt(2 layers) where
layers add: --config.model.residual_scaled=True.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.gpt import SIZES

ONE, TWO = 'finetune-transformer-lm/train.py', 'gpt-2/src/model.py'
PAPER_1, PAPER_2 = 'GPT paper, section 4.1', 'GPT-2 paper, section 2'
NANO = 'nanoGPT/config/train_gpt2.py (unverified)'
SHAPES = {
  **dict.fromkeys(('test', 'tiny', 'mini'), 'ours: small ones'),
  'gpt1': PAPER_1,
  **dict.fromkeys(('small', 'medium', 'large', 'xl'), 'GPT-2 paper, table 2'),
}


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of OpenAI's programs."""
  first = size == 'gpt1'
  dropout = 0.1 if first else 0.0
  return Recipe(
    cited(defaults.NAMES, name='gpt', family='openai_gpt' if first else 'gpt2', size=size)
    | cited(SHAPES[size], **SIZES[size])
    | cited(ONE if first else TWO, norms='after' if first else 'before', one_table=first)
    | cited(f'{ONE if first else TWO}:norm', norm_eps=1e-5)
    | cited(f'{ONE if first else TWO}:gelu', activation='gelu_tanh')
    | cited(
      f'{ONE}: embd_pdrop, resid_pdrop, attn_pdrop' if first else f'{TWO}, which has none',
      embedding_dropout=dropout,
      dropout=dropout,
      attention_dropout=dropout,
    )
    | cited(
      f'{ONE}:model' if first else f'{TWO}: wpe, wte, conv1d',
      init_std=0.02,
      position_std=0.02 if first else 0.01,
      residual_scaled=False,
    )
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default small)."""
  size = defaults.parse_size(arg, SIZES, 'small')
  first = size == 'gpt1'
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'gpt-{size}'))
  if first:
    c.update(
      cited(PAPER_1, batch_size=64, length=512)
      | cited('ours: of 100 epochs the paper says no steps', total_steps=1_000_000)
    )
  else:
    c.update(cited(PAPER_2, batch_size=512, length=SIZES[size]['positions']))
    c.update(cited(NANO, total_steps=600_000))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=5000, checkpoint_steps=5000))
  c.best.update(cited(defaults.NAMES, metric='eval/lm'))

  c.model = model(size)
  c.objective = cited(f'{ONE}:model', name='lm', unit='word')

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(PAPER_1, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01)
    | cited('finetune-transformer-lm/opt.py:adam', clip=1.0, bias_correction=True)
    if first
    else cited(NANO, b1=0.9, b2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0, bias_correction=True)
  )
  peak = cited(PAPER_1, peak=2.5e-4) if first else cited(NANO, peak=6e-4)
  warmup = c.get_ref('total_steps') * 2000 // c.total_steps
  c.optimizer.schedule = (
    cited(PAPER_1 if first else NANO, name='cosine', warmup_steps=warmup)
    | peak
    | defaults.the_run(c)
    | (cited(PAPER_1, end_ratio=0.0) if first else cited(NANO, end_ratio=0.1))
  )

  c.data.plan = cited(
    'gpt-2/src/load_dataset.py: texts joined by <|endoftext|>',
    name='chunks',
    ends='sep',
    across=True,
  )
  c.data.mask = recipes.CAUSAL_MASK
  # No position is to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  if size == 'tiny':
    _laptop(c)
  return c


def _laptop(c: Recipe) -> None:
  """As `defaults.laptop`, but four times as many steps of a fourth of the batch, and layers that
  add less to the words: what a core learns with in three minutes (docs/generate.md)."""
  defaults.laptop(c)
  ours = 'ours: what a laptop learns with'
  c.update(cited(ours, total_steps=1800, batch_size=8))
  c.model.update(cited(ours, residual_scaled=True))
