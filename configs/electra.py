"""ELECTRA (Clark et al. 2020, google-research/electra): a small generator replaces tokens, the
model finds which.

  python -m bertjax.main --config=configs/electra.py:small --workdir=runs/electra \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

Sizes: test, tiny, small, base, large (the last three are the paper's). The held-out score to look
at is eval/rtd_auc: with some 7% of the tokens replaced, a model that calls none replaced is right
on 93%.

Other arms:

  untied embeddings     --config.model.tied_embeddings=False
  one net for both      --config.model.generator=shared
  uniform replacements  --config.model.generator=uniform --config.evals.pseudo_perplexity.rows=0
  masked-LM alone       --config.model.generator=shared --config.objective.train=generator \
                        --config.best.metric=eval/mlm_masked --config.best.mode=min
  two towers            --config.model.generator=two_tower
  Electric              --config.model.generator=two_tower --config.objective.electric=True
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models import bert as bert_model
from configs import bert

OURS = 'ours: as of configs/bert.py'
SIZES = {
  'test': cited(OURS, **bert_model.SIZES['test'], embedding_width=32),
  'tiny': cited(OURS, **bert_model.SIZES['tiny'], embedding_width=64),
  'small': cited(
    'electra/util/training_utils.py:get_bert_config', layers=12, width=256, heads=4, ffn=1024
  )
  | cited('electra/configure_pretraining.py:embedding_size', embedding_width=128),
  'base': cited('ELECTRA paper, table 6', **bert_model.SIZES['base'])
  | cited('electra/configure_pretraining.py, comment on larger models', embedding_width=768),
  'large': cited('ELECTRA paper, table 6', **bert_model.SIZES['large'])
  | cited('electra/configure_pretraining.py, comment on larger models', embedding_width=1024),
}
# What a size has besides small's values.
OWN = {
  'tiny': cited(
    'ours: a quarter of so narrow a net is too narrow to learn', model=dict(generator_width=1.0)
  ),
  'base': cited(
    'electra/configure_pretraining.py, comment on larger models',
    batch_size=256,
    length=512,
    model=dict(generator_width=1 / 3),
    optimizer=dict(schedule=dict(peak=2e-4)),
  )
  | cited('ELECTRA paper, table 6 (unverified)', total_steps=766_000),
  'large': cited(
    'electra/configure_pretraining.py, comment on larger models',
    batch_size=2048,
    length=512,
    data=dict(mask=dict(rate=0.25)),
    optimizer=dict(schedule=dict(peak=2e-4)),
  )
  | cited('ELECTRA paper, table 6 (unverified)', total_steps=400_000),
}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default small)."""
  size = defaults.parse_size(arg, SIZES, 'small')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'electra-{size}'))
  c.update(
    cited('electra/configure_pretraining.py', total_steps=1_000_000, batch_size=128, length=128)
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited('ours: accuracy tells nothing', metric='eval/rtd_auc', mode='max'))

  c.model = bert.model(size if size in bert_model.SIZES else 'base')
  c.model.update(
    cited(defaults.NAMES, name='electra', family='electra', size=size)
    | SIZES[size]
    | cited('electra/model/modeling.py:gelu', activation='gelu_erf')
    | cited('electra/run_pretraining.py:PretrainingModel: no next sentence', labels=())
    # Of its discriminator, once that is fine-tuned.
    | cited(
      'transformers/models/electra/modeling_electra.py',
      pooler_activation='gelu_erf',
      pooler_dropout=True,
    )
    | cited(
      'electra/configure_pretraining.py',
      generator_width=1 / 4,
      generator_layers=1.0,
      tied_embeddings=True,  # untied_generator_embeddings=False
    )
    | cited('electra/run_pretraining.py:get_generator_config', generator_head=64)
  )
  if size == 'test':
    c.model.update(cited('ours: a quarter of its width has heads of 2', generator_head=2))
  c.objective = cited('electra/run_pretraining.py, of both losses', name='rtd', plus=1e-6)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited('electra/model/optimization.py:create_optimizer', b2=0.999, eps=1e-6, clip=1.0)
    | cited('electra/model/optimization.py:AdamWeightDecayOptimizer', bias_correction=False)
    | cited('electra/configure_pretraining.py', weight_decay=0.01)
  )
  c.optimizer.schedule = (
    cited('electra/model/optimization.py:create_optimizer', name='product_linear')
    | defaults.the_run(c)
    | cited('electra/configure_pretraining.py', peak=5e-4)
  )

  c.data.plan, c.data.mask = recipes.ELECTRA_PLAN, recipes.ELECTRA_MASK
  c.update(OWN.get(size, {}))
  warmup = c.get_ref('total_steps') * 10_000 // c.total_steps
  c.optimizer.schedule.update(cited('electra/configure_pretraining.py', warmup_steps=warmup))
  if size == 'tiny':
    defaults.laptop(c)
    # One table for both nets learns to detect, with 50 times the weight, and in so few steps too
    # little to generate.
    c.model.update(cited('ours: docs/learning.md, its generator', tied_embeddings=False))
  return c
