"""RoBERTa (Liu et al. 2019, fairseq): dynamic masks over full sentences, no next-sentence
prediction.

  python -m bertjax.main --config=configs/roberta.py:base --workdir=runs/roberta \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_vocab.json_AND_merges.txt

Sizes: test, tiny, mini, small, medium (BERT's shapes), base, large (the paper's).
"""

from bertjax.data import recipes
from bertjax.models.bert import SIZES
from configs import bert, common

# Paper, table 9: peak learning rate and warm-up by size; smaller sizes take base's.
PEAK = {'large': 4e-4}
WARMUP = {'large': 30_000}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = common.parse_size(arg, SIZES, 'base')
  c = common.base()
  c.name = f'roberta-{size}'
  c.total_steps = 500_000  # paper, table 9
  c.batch_size = 8192  # paper
  c.length = 512
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000

  c.model = bert.model(size)
  c.model.update(
    dict(
      family='roberta',
      positions=514,  # fairseq starts at pad id + 1 = 2
      position_offset=2,
      types=1,  # transformers keeps one constant row; fairseq has none
      norm_eps=1e-5,
      activation='gelu_erf',
      initializer='normal',
      labels=(),
    )
  )
  c.model.zero_row = 1  # the pad vector starts at zero
  c.objective = dict(name='mlm', plus=0.0)

  c.optimizer = common.adamw()
  c.optimizer.b2 = 0.98
  c.optimizer.bias_correction = c.optimizer.eps_first = True  # fairseq Adam
  c.optimizer.decay = common.DECAY_ALL  # fairseq decays norms and biases too
  c.optimizer.clip = 0.0  # off
  c.optimizer.schedule = dict(
    name='linear',
    peak=PEAK.get(size, 6e-4),
    warmup_steps=c.get_ref('total_steps') * WARMUP.get(size, 24_000) // 500_000,
    total_steps=c.get_ref('total_steps'),
  )

  c.data.plan, c.data.mask = recipes.ROBERTA_PLAN, recipes.ROBERTA_MASK
  c.data.split = 'lines'  # a line of the corpus is fairseq's unit
  if size == 'tiny':
    common.laptop(c)
  return c
