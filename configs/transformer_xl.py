"""Transformer-XL (Dai et al. 2019, kimiyoung/transformer-xl): the next word or character, with
memory.

  python -m bertjax.main --config=configs/transformer_xl.py:wt103_base --workdir=runs/wt103 \
      --config.data.input=wiki.train.tokens --config.data.heldout=wiki.valid.tokens

A vocabulary of words or of bytes is made of the text, unless config.data.vocab names one. The text
is one stream, blank lines and white space included. Without config.data.heldout a hundredth of it
is held out, in blocks of at most 64 KiB.

Sizes: test, tiny, wt103_base, wt103_large (words), enwik8_base, enwik8_large (bytes). The
vanilla models of the paper's comparison are --config.model.attention=absolute (or deeper, with
--config.model.learned_positions=LENGTH) and --config.model.mem_len=0, evaluated as they are:
--config.evals.held_out.model.mem_len=0 --config.evals.held_out.model.same_length=False.

The large sizes are TensorFlow's, and differ here from that code in what follows. It begins with
clusters of weight zero (here as the table's) and with a memory of zeros that are attended to (here
none). It reads ten copies of the text, each shifted by a random offset (here the text). Its
`same_length` shows mem_len + 1 keys in evaluation (here mem_len). enwik8_large is trained as its
script says, and evaluated with the clamp and same_length of the script for its published
checkpoint.

Evaluation is on shorter segments with a longer memory: `length` and `model` of
`config.evals.held_out`. What the memory is worth, from the newest checkpoint of a run:

  python -m bertjax.main --workdir=runs/wt103 --evaluate \
      --config.evals.memory.memories='(0, 64, 128, 640)'
"""

from typing import Any

from bertjax.cited import Cited, Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes

# Of the paper's losses: wt103 24.0 and 18.3 (perplexity), enwik8 1.06 and 0.99 (bits per
# character); those of the base sizes are unverified.
SOURCES = {
  'test': 'ours: small enough for tests',
  'tiny': 'ours: what a laptop learns with',
  'wt103_base': 'transformer-xl/pytorch/run_wt103_base.sh',
  'wt103_large': 'transformer-xl/tf/scripts/wt103_large_tpu.sh',
  'enwik8_base': 'transformer-xl/pytorch/run_enwik8_base.sh',
  'enwik8_large': 'transformer-xl/tf/scripts/enwik8_large_tpu.sh',
}
TORCH = cited('transformer-xl/pytorch/train.py:weights_init', norm_std=0.02, init_std=0.02) | (
  cited("transformer-xl/pytorch/mem_transformer.py, by torch's default", norm_eps=1e-5)
  | cited('transformer-xl/pytorch/train.py:not_tied', untie_r=False)
)
TF = cited(
  "transformer-xl/tf/model.py, by the default of TensorFlow's layer_norm",
  norm_eps=1e-12,
  norm_std=0.0,
) | cited('transformer-xl/tf/train.py:init_std, untie_r', init_std=0.02, untie_r=False)


def of(size: str, numerics: Cited, **shape: Any) -> Cited:
  """The model of a size: what its script says, over the numerics of its framework."""
  return numerics | cited(SOURCES[size], **shape)


SIZES = {
  'test': of('test', TORCH, layers=2, width=64, heads=8, head_size=8, ffn=256, mem_len=32),
  'tiny': of(
    'tiny', TORCH, layers=4, width=128, heads=4, head_size=32, ffn=512, mem_len=64, init_std=0.08
  ),
  'wt103_base': of(
    'wt103_base', TORCH, layers=16, width=410, heads=10, head_size=41, ffn=2100, mem_len=150
  ),
  'wt103_large': of(
    'wt103_large', TF, layers=18, width=1024, heads=16, head_size=64, ffn=4096, mem_len=384,
    init_std=0.005, untie_r=True,
  ),
  'enwik8_base': of(
    'enwik8_base', TORCH, layers=12, width=512, heads=8, head_size=64, ffn=2048, mem_len=512
  ),
  'enwik8_large': of(
    'enwik8_large', TF, layers=24, width=1024, heads=8, head_size=128, ffn=3072, mem_len=768
  ),
}  # fmt: skip
DROPOUT = {  # and that of attention
  'test': (0.1, 0.0),
  'tiny': (0.0, 0.0),
  'wt103_base': (0.1, 0.0),
  'wt103_large': (0.2, 0.2),
  'enwik8_base': (0.1, 0.0),
  'enwik8_large': (0.15, 0.15),
}
STEPS = {
  'test': dict(length=32, batch_size=8, total_steps=1000),
  'tiny': dict(length=64, batch_size=32, total_steps=10_000),
  'wt103_base': dict(length=150, batch_size=60, total_steps=200_000),
  'wt103_large': dict(length=384, batch_size=128, total_steps=4_000_000),
  'enwik8_base': dict(length=512, batch_size=22, total_steps=400_000),
  'enwik8_large': dict(length=768, batch_size=64, total_steps=400_000),
}
WARMUP = {'tiny': 100, 'wt103_large': 16_000, 'enwik8_large': 4_000}  # of others 0
# Segment, memory and clamp.
EVALUATION = {
  'test': (16, 64, 48),
  'tiny': (64, 256, 192),
  'wt103_base': (64, 640, 400),
  'wt103_large': (128, 1600, 1000),
  'enwik8_base': (80, 2100, 820),
  'enwik8_large': (128, 3800, 1000),
}


def model(size: str) -> Recipe:
  """`config.model` of a size, with the numerics of mem_transformer.py (torch) or model.py (TF)."""
  dropout, attention_dropout = DROPOUT[size]
  # Of 267,735 words, ordered by frequency.
  cutoffs = (20_000, 40_000, 200_000) if size.startswith('wt103') else ()
  return Recipe(
    cited(defaults.NAMES, name='transformer_xl', family='transformer_xl', size=size)
    | SIZES[size]
    | cited(SOURCES[size], dropout=dropout, attention_dropout=attention_dropout)
    | cited(
      'transformer-xl/pytorch/train.py:cutoffs and transformer-xl/tf/data_utils.py',
      cutoffs=cutoffs,  # (): a plain softmax
      div_val=4 if size == 'wt103_large' else 1,
    )
    | cited('transformer-xl/pytorch/mem_transformer.py:PositionwiseFF', activation='relu')
    | cited('transformer-xl/pytorch/train.py:init', initializer='normal')
  )


def schedule(c: Recipe, size: str) -> Cited:
  """Cosine: TF's from the end of the warm-up, torch's from step 0."""
  warmup = c.get_ref('total_steps') * WARMUP.get(size, 0) // c.total_steps
  peak = 1e-3 if size == 'tiny' else 2.5e-4
  own = cited(SOURCES[size], peak=peak, warmup_steps=warmup) | defaults.the_run(c)
  if size.endswith('large'):
    return own | cited('transformer-xl/tf/train.py:min_lr_ratio', name='cosine', end_ratio=0.01)
  return own | cited('transformer-xl/pytorch/train.py:scheduler', name='cosine_absolute')


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default wt103_base)."""
  size = defaults.parse_size(arg, SIZES, 'wt103_base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'transformer_xl-{size}'))
  c.update(cited(SOURCES[size], **STEPS[size]))
  c.update(
    cited(
      'transformer-xl/pytorch/train.py:log-interval, eval-interval',
      log_steps=200,
      eval_steps=4000,
      checkpoint_steps=4000,
    )
  )
  c.best.update(cited(defaults.NAMES, metric='eval/lm'))

  c.model = model(size)
  unit = 'byte' if size.startswith('enwik8') else 'word'
  # The program of TensorFlow has 'zeros'.
  c.objective = cited("ours: the paper's unit of the loss", name='lm', unit=unit)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(
      'transformer-xl/pytorch/train.py:optim, clip and transformer-xl/tf/train.py',
      b2=0.999,
      eps=1e-8,
      bias_correction=True,
      weight_decay=0.0,
      decay=defaults.DECAY_ALL,
      clip=0.25,
    )
  )
  if size.endswith('large'):
    tf = cited('transformer-xl/tf/train.py: AdamOptimizer, as TensorFlow has it', eps_first=True)
    c.optimizer.update(tf)
  c.optimizer.schedule = schedule(c, size)

  if size.startswith('wt103'):
    # All 267,735 of the training text, with <eos> and <unk>; and <pad>.
    words = dict(type='words', size=267_736)
    c.data.train_vocab.update(cited('transformer-xl/pytorch/data_utils.py:Corpus', **words))
  if size.startswith('enwik8'):
    ours = 'ours: those that occur, at most these'
    c.data.train_vocab.update(cited(ours, type='bytes', size=300))
  # --config.data.plan.ends names a special token behind each document.
  c.data.plan = cited('transformer-xl/pytorch/data_utils.py:LMOrderedIterator', name='lm_columns')
  c.data.mask = recipes.CAUSAL_MASK
  # Each line ends with the <eos> or newline of the vocabulary.
  c.data.update(cited('transformer-xl/pytorch/utils/vocabulary.py:encode_file', split='verbatim'))

  length, mem_len, clamp_len = EVALUATION[size]
  c.evals.held_out.update(
    cited(SOURCES[size], length=length, model=dict(mem_len=mem_len))
    | cited('ours: 10 in the scripts; it changes where columns begin', batch_size=8)
  )
  c.evals.held_out.model.update(
    cited(
      'transformer-xl/tf/sota/enwik8.sh' if size == 'enwik8_large' else SOURCES[size],
      clamp_len=clamp_len,
      same_length=True,
    )
  )
  # Lengths of memory, in tokens, at the end of the run.
  c.evals.memory = cited('ours: what is looked at', type='recurrence')
  # No position is to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  return c
