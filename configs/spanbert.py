"""SpanBERT (Joshi et al. 2019, facebookresearch/SpanBERT): spans of words, masked and predicted
from the tokens around them, in single segments of English text.

  python -m bertjax.main --config=configs/spanbert.py:base --workdir=runs/spanbert \
      --config.data.input='wiki/*.txt' --config.data.vocab=CASED_vocab.txt

Sizes: test, tiny, mini, small, medium (BERT's shapes), base, large (the paper's).

Not as there: its command has --clamp-attention, which keeps scores within +-10,000 for float16.

The other arms of the paper's comparison, over the same blocks:

  random tokens   --config.data.mask.rule=tokens
  whole words     --config.data.mask.max_words=1
  entities        the same and --config.data.mask.entity_prob=0.5, over a store with units
  spans alone     as it is, with --config.objective.boundary_scale=0

The original trains in float16 with --clamp-attention: scores beyond +-1e4 before the softmax are
cut to it, so that they cannot overflow. Here they are float32, where no such score overflows and
one of 1e4 is a softmax of one key with or without the cut: it is left out.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES
from configs import bert

COMMAND = 'SpanBERT/pretraining/README.md'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'spanbert-{size}'))
  c.update(
    cited(COMMAND, total_steps=2_400_000, length=512)
    # 32 GPUs of 4,096 tokens.
    | cited(f'{COMMAND}:distributed-world-size, max-tokens', batch_size=256)
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))

  c.model = bert.model(size)
  c.model.update(
    cited(defaults.NAMES, name='span_boundary', family='spanbert')
    | cited(
      'SpanBERT/pretraining/fairseq/models/pair_bert.py',
      activation='gelu_erf',
      initializer='normal',
      init_std=0.02,
      norm_eps=1e-12,
      dropout=0.1,
      attention_dropout=0.1,
    )
    | cited(COMMAND, labels=())
  )
  c.objective = (
    cited(defaults.NAMES, name='span_boundary')
    | cited('SpanBERT/pretraining/fairseq/criterions/spanbert_loss.py', plus=1.0)
    # Quirk: gradients of means, divided again by the masked tokens of a GPU. 1.0 mends it.
    | cited(
      'SpanBERT/pretraining/fairseq/trainer.py: by the sample size',
      gradient_scale=1 / (0.15 * 4096),
    )
  )

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(f'{COMMAND}; the paper says 0.1 for the decay', weight_decay=0.01)
    | cited(COMMAND, eps=1e-8, clip=1.0)
    | cited(
      'SpanBERT/pretraining/fairseq/optim/adam.py', b2=0.999, bias_correction=True, eps_first=True
    )
    # Norms and biases too.
    | cited(
      'SpanBERT/pretraining/fairseq/trainer.py: one group of parameters', decay=defaults.DECAY_ALL
    )
  )
  c.optimizer.schedule = cited(
    COMMAND,
    name='linear',
    peak=1e-4,
    warmup_steps=c.get_ref('total_steps') // 240,  # 10,000 of 2,400,000
  ) | defaults.the_run(c)

  c.data.plan, c.data.mask = recipes.SPANBERT_PLAN, recipes.SPANBERT_MASK
  if size == 'tiny':
    defaults.laptop(c)
    c.objective.update(cited('ours: means', gradient_scale=1.0))
  return c
