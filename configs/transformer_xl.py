"""Transformer-XL (Dai et al. 2019, kimiyoung/transformer-xl): the next word or character, with
memory.

  python -m bertjax.main --config=configs/transformer_xl.py:wt103_base --workdir=runs/wt103 \
      --config.data.input=wiki.train.tokens --config.data.heldout=wiki.valid.tokens

A vocabulary of words or of bytes is made of the text, unless config.data.vocab names one. The text
is one stream, blank lines and white space included. Without config.data.heldout a hundredth of it
is held out, in blocks of at most 64 KiB.

Sizes: test, tiny, wt103_base, wt103_large (words), enwik8_base, enwik8_large (bytes). The
vanilla models of the paper's comparison are --config.model.attention=absolute (or deeper, with
--config.model.learned_positions=LENGTH) and --config.model.mem_len=0.

Evaluation is on shorter segments with a longer memory: `length` and `model` of
`config.evals.held_out`. What the memory is worth, from the newest checkpoint of a run:

  python -m bertjax.main --workdir=runs/wt103 --evaluate \
      --config.evals.memory.memories='(0, 64, 128, 640)'
"""

from typing import Any

from ml_collections import ConfigDict

from bertjax.data import recipes
from configs import common

# run_wt103_base.sh, run_enwik8_base.sh (torch); wt103_large_tpu.sh, enwik8_large_tpu.sh (TF). Of
# the paper's losses: wt103 24.0 and 18.3 (perplexity), enwik8 1.06 and 0.99 (bits per character);
# those of the base sizes are unverified.
TORCH: dict[str, Any] = dict(norm_eps=1e-5, norm_std=0.02, init_std=0.02, untie_r=False)
TF: dict[str, Any] = dict(norm_eps=1e-12, norm_std=0.0, init_std=0.02, untie_r=False)
SIZES: dict[str, dict[str, Any]] = {
  'test': dict(layers=2, width=64, heads=8, head_size=8, ffn=256, mem_len=32, **TORCH),
  'tiny': dict(
    layers=4, width=128, heads=4, head_size=32, ffn=512, mem_len=64, **dict(TORCH, init_std=0.08)
  ),
  'wt103_base': dict(
    layers=16, width=410, heads=10, head_size=41, ffn=2100, mem_len=150, **TORCH
  ),
  'wt103_large': dict(
    layers=18, width=1024, heads=16, head_size=64, ffn=4096, mem_len=384,
    **dict(TF, init_std=0.005, untie_r=True),
  ),
  'enwik8_base': dict(
    layers=12, width=512, heads=8, head_size=64, ffn=2048, mem_len=512, **TORCH
  ),
  'enwik8_large': dict(
    layers=24, width=1024, heads=8, head_size=128, ffn=3072, mem_len=768, **TF
  ),
}  # fmt: skip
# Of 267,735 words, ordered by frequency.
CUTOFFS = dict.fromkeys(('wt103_base', 'wt103_large'), (20_000, 40_000, 200_000))
# Dropout, of attention; segment, rows, steps, warm-up; segment, memory and clamp of evaluation.
RECIPES: dict[str, tuple] = {
  'test': (0.1, 0.0, 32, 8, 1000, 0, 16, 64, 48),
  'tiny': (0.0, 0.0, 64, 32, 10_000, 100, 64, 256, 192),
  'wt103_base': (0.1, 0.0, 150, 60, 200_000, 0, 64, 640, 400),
  'wt103_large': (0.2, 0.2, 384, 128, 4_000_000, 16_000, 128, 1600, 1000),
  'enwik8_base': (0.1, 0.0, 512, 22, 400_000, 0, 80, 2100, 820),
  'enwik8_large': (0.15, 0.15, 768, 64, 400_000, 4_000, 128, 3800, 1000),
}


def model(size: str) -> ConfigDict:
  """`config.model` of a size, with the numerics of mem_transformer.py (torch) or model.py (TF)."""
  dropout, attention_dropout, *_ = RECIPES[size]
  return ConfigDict(
    dict(
      name='transformer_xl',
      family='transformer_xl',
      size=size,
      **SIZES[size],
      vocab_size=0,  # 0: the store's vocabulary
      cutoffs=CUTOFFS.get(size, ()),  # (): a plain softmax
      div_val=4 if size == 'wt103_large' else 1,
      attention='relative',  # attn_type 0; 'shaw' 1, 'absolute' 2, 'deeper' 3
      learned_positions=0,  # of 'shaw' and 'deeper'
      clamp_len=0,  # -1 in the scripts' training
      same_length=False,
      pre_norm=False,  # pre_lnorm
      activation='relu',
      dropout=dropout,
      attention_dropout=attention_dropout,
      initializer='normal',
      remat=False,
      dtype='float32',  # compute; parameters are float32. 'bfloat16' on TPU and GPU
    )
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default wt103_base)."""
  size = common.parse_size(arg, SIZES, 'wt103_base')
  _, _, length, rows, steps, warmup, eval_length, eval_mem_len, eval_clamp = RECIPES[size]
  c = common.base()
  c.name = f'transformer_xl-{size}'
  c.total_steps, c.batch_size, c.length = steps, rows, length
  c.log_steps, c.eval_steps, c.checkpoint_steps = 200, 4000, 4000  # scripts
  c.best.metric = 'eval/lm'

  c.model = model(size)
  c.objective = dict(name='lm', unit='byte' if size.startswith('enwik8') else 'word')

  c.optimizer = common.adamw()  # torch.optim.Adam
  c.optimizer.eps = 1e-8
  c.optimizer.bias_correction = True
  c.optimizer.weight_decay = 0.0
  c.optimizer.decay = common.DECAY_ALL
  c.optimizer.clip = 0.25
  large = size.endswith('large')
  c.optimizer.schedule = dict(
    name='cosine' if large else 'cosine_absolute',  # train.py of TF, of torch
    peak=1e-3 if size == 'tiny' else 2.5e-4,
    warmup_steps=c.get_ref('total_steps') * warmup // steps,
    total_steps=c.get_ref('total_steps'),
  )
  if large:
    c.optimizer.schedule.end_ratio = 0.01  # min_lr_ratio of the TPU trainer

  if size.startswith('wt103'):
    # All 267,735 of the training text, with <eos> and <unk>; and <pad>.
    c.data.train_vocab.update(dict(type='words', size=267_736))
  if size.startswith('enwik8'):
    c.data.train_vocab.update(dict(type='bytes', size=300))  # those that occur
  # `ends`: a special token behind each document; none in enwik8. `shuffle_documents`: False as
  # LMOrderedIterator; True gives each epoch an order of its own.
  c.data.plan = dict(name='lm_columns', ends='', shuffle_documents=False)
  c.data.mask = recipes.CAUSAL_MASK
  c.data.split = 'verbatim'  # each line ends with the <eos> or newline of the vocabulary

  c.evals.held_out.batch_size = 8  # 10 in the scripts; it changes where columns begin
  c.evals.held_out.length = eval_length
  c.evals.held_out.model = dict(mem_len=eval_mem_len, clamp_len=eval_clamp, same_length=True)
  # Lengths of memory, in tokens, at the end of the run; (): none.
  c.evals.memory = dict(type='recurrence', every=0, memories=(), rows_of='held_out')
  c.evals.pseudo_perplexity.rows = 0  # no position is to be scored with both sides visible
  return c
