"""SpanBERT (Joshi et al. 2019, facebookresearch/SpanBERT): spans of words, masked and predicted
from the tokens around them, in single segments of English text.

  python -m bertjax.main --config=configs/spanbert.py:base --workdir=runs/spanbert \
      --config.data.input='wiki/*.txt' --config.data.vocab=CASED_vocab.txt

Sizes: test, tiny, mini, small, medium (BERT's shapes), base, large (the paper's).

The other arms of the paper's comparison, over the same blocks:

  random tokens   --config.data.mask.rule=tokens
  whole words     --config.data.mask.max_words=1
  entities        the same and --config.data.mask.entity_prob=0.5, over a store with units
  spans alone     as it is, with --config.objective.boundary_scale=0
"""

from bertjax.data import recipes
from bertjax.models.bert import SIZES
from configs import bert, common


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = common.parse_size(arg, SIZES, 'base')
  c = common.base()
  c.name = f'spanbert-{size}'
  c.total_steps = 2_400_000  # README's command
  c.batch_size = 256  # 32 GPUs of 4,096 tokens
  c.length = 512
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000

  c.model = bert.model(size)
  c.model.update(
    dict(
      name='span_boundary',
      family='spanbert',
      activation='gelu_erf',  # pair_bert.py
      initializer='normal',
      labels=(),
      boundary_positions=15,
      boundary_width=200,
    )
  )
  c.objective = dict(
    name='span_boundary',
    boundary_scale=1.0,
    plus=1.0,
    # Quirk: gradients of means, divided again by the masked tokens of a GPU. 1.0 mends it.
    gradient_scale=1 / (0.15 * 4096),
  )

  c.optimizer = common.adamw()
  c.optimizer.eps = 1e-8  # fairseq Adam
  c.optimizer.bias_correction = c.optimizer.eps_first = True
  c.optimizer.weight_decay = 0.01  # README's command; the paper says 0.1
  c.optimizer.decay = common.DECAY_ALL  # fairseq decays norms and biases too
  c.optimizer.schedule = dict(
    name='linear',
    peak=1e-4,
    warmup_steps=c.get_ref('total_steps') // 240,  # 10,000 of 2,400,000
    total_steps=c.get_ref('total_steps'),
  )

  # Quirk: a document's last block is lost before an over-long sentence; keep_block mends it.
  c.data.plan, c.data.mask = recipes.SPANBERT_PLAN, recipes.SPANBERT_MASK
  if size == 'tiny':
    common.laptop(c)
    c.objective.gradient_scale = 1.0
  return c
