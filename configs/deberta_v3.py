"""DeBERTa-v3 (He et al. 2021, arXiv 2111.09543; microsoft/DeBERTa): ELECTRA's replaced tokens, with
attention that has content and distance apart and a word table that its two nets share by halves.

  python -m bertjax.main --config=configs/deberta_v3.py:base --workdir=runs/deberta \
      --config.data.input='wiki/*.txt' --config.data.vocab=spm.model

Sizes: test, tiny, xsmall, small, base, large. Steps, batch and rate are those of the original's
script for Wikipedia (experiments/language_model/rtd.sh), not the paper's. The held-out score to
look at is eval/rtd_auc.

Other arms of the paper, the table of words (gradient-disentangled by default):

  shared by both nets    --config.model.disentangled=False
  one for each net       --config.model.tied_embeddings=False

The generator ends in version 1's decoder of masked words; --config.model.decoder=False ends it in
its last layer. A published model goes on with --config.init_from=hf:DIR (docs/convert.md).

The original steps the generator first and judges with its table of after that; here both nets step
at once. Their gradients are clipped apart, as there.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models import bert as bert_model

OURS = 'ours: as of configs/bert.py'
SHAPES = 'DeBERTa/experiments/language_model/deberta_*.json'
SIZES = {
  'test': cited(OURS, **bert_model.SIZES['test']),
  'tiny': cited(OURS, **bert_model.SIZES['tiny']),
  'xsmall': cited(SHAPES, layers=12, width=384, heads=6, ffn=1536),
  'small': cited(SHAPES, layers=6, width=768, heads=12, ffn=3072),
  'base': cited(SHAPES, **bert_model.SIZES['base']),
  'large': cited(SHAPES, **bert_model.SIZES['large']),
}
GENERATOR = ('word', 'generator_.*', 'mlm/.*')


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'deberta_v3-{size}'))
  c.update(
    cited(
      'DeBERTa/experiments/language_model/rtd.sh',
      total_steps=1_000_000,
      batch_size=64 if size == 'xsmall' else 256,
      length=512,
    )
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited('ours: accuracy tells nothing', metric='eval/rtd_auc', mode='max'))

  c.model = (
    cited(defaults.NAMES, name='deberta_v3', family='deberta_v2', size=size)
    | SIZES[size]
    | cited(
      SHAPES,
      positions=512,
      types=0,
      buckets=256,
      norm_eps=1e-7,
      activation='gelu_erf',
      dropout=0.1,
      attention_dropout=0.1,
      init_std=0.02,
      generator_width=1.0,
      generator_layers=0.5,
    )
    | cited('DeBERTa/DeBERTa/deberta/bert.py: weights are normal', initializer='normal')
    | cited(
      'DeBERTa/DeBERTa/apps/models/sequence_classification.py, by ContextPooler',
      pooler_activation='gelu_erf',
    )
    | cited(SHAPES, generator_head=SIZES[size]['width'] // SIZES[size]['heads'])
  )
  c.objective = cited(
    'DeBERTa/DeBERTa/apps/tasks/rtd_task.py: means; rtd_lambda',
    name='rtd', plus=0.0, discriminator_weight=10.0,
  )  # fmt: skip

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited('DeBERTa/DeBERTa/apps/tasks/rtd_task.py: decoupled_training', clip_apart=GENERATOR)
  )
  c.optimizer.schedule = (
    cited('DeBERTa/DeBERTa/optims/lr_schedulers.py', name='bert_linear')
    | defaults.the_run(c)
    | cited(
      'DeBERTa/experiments/language_model/rtd.sh',
      peak=3e-4 if size == 'xsmall' else 1e-4,
      warmup_steps=c.get_ref('total_steps') // 100,
    )
  )

  c.data.plan, c.data.mask = recipes.DEBERTA_PLAN, recipes.DEBERTA_MASK
  if size == 'tiny':
    defaults.laptop(c)
  return c
