"""BigBird (Zaheer et al. 2020, arXiv 2007.14062; google-research/bigbird): BERT on rows of 4,096
tokens that each see blocks of keys, three around them, the first and the last, and some at random.

  python -m bertjax.main --config=configs/bigbird.py:base --workdir=runs/bigbird \
      --config.data.input='text/*.txt' --config.data.vocab=DIR

Sizes: test, tiny, base, large. Lengths and blocks are transformers' defaults, those of the released
models, steps and rate those of the repository's flags. Ours: rows are RoBERTa's, full sentences,
where the original takes windows of a text that begin at a word; and random blocks come from the
whole row (bertjax/models/bigbird.py).
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES
from configs import bert

FLAGS = 'bigbird/bigbird/pretrain/run_pretraining.py: flags'
RELEASED = 'transformers/src/transformers/models/big_bird/configuration_big_bird.py'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'bigbird-{size}'))
  c.update(cited(FLAGS, total_steps=100_000))
  c.update(
    cited(RELEASED, length=4096) | cited(f'{FLAGS}, train_batch_size on 16 cores', batch_size=64)
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=5_000, checkpoint_steps=5_000))

  c.model = bert.model(size)
  c.model.update(
    cited(defaults.NAMES, name='bigbird', family='bigbird')
    | cited(RELEASED, block=64, positions=4096, random_blocks=3)
    | cited(f'{FLAGS}: use_nsp', labels=())
  )
  if size == 'test':
    c.model.update(cited('ours: rows of tests have several', block=4, random_blocks=1))
  c.objective = cited('ours: as configs/bert.py', name='mlm', plus=1e-5)

  c.optimizer = defaults.adamw()
  c.optimizer.schedule = (
    cited('bigbird/bigbird/core/optimization.py', name='bert_linear')
    | defaults.the_run(c)
    | cited(FLAGS, peak=1e-4, warmup_steps=c.get_ref('total_steps') // 10)
  )
  c.data.plan = recipes.ROBERTA_PLAN
  c.data.mask = recipes.BERT_MASK | cited(
    'ours: as RoBERTa, new masks in every epoch', static=False
  )
  if size == 'tiny':
    defaults.laptop(c)
  return c
