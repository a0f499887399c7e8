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
  masked-LM alone       --config.model.generator=shared --config.objective.train=generator
  two towers            --config.model.generator=two_tower
  Electric              --config.model.generator=two_tower --config.objective.electric=True
"""

from bertjax.data import recipes
from bertjax.models import bert as bert_model
from configs import bert, common

# configure_pretraining.py and the paper's table 6; test and tiny are ours.
SIZES = {
  'test': dict(bert_model.SIZES['test'], embedding_width=32),
  'tiny': dict(bert_model.SIZES['tiny'], embedding_width=64),
  'small': dict(layers=12, width=256, heads=4, ffn=1024, embedding_width=128),
  'base': dict(bert_model.SIZES['base'], embedding_width=768),
  'large': dict(bert_model.SIZES['large'], embedding_width=1024),
}
# Those of small where a size is not listed.
LENGTH = {'base': 512, 'large': 512}
BATCH = {'base': 256, 'large': 2048}
STEPS = {'base': 766_000, 'large': 400_000}
PEAK = {'base': 2e-4, 'large': 2e-4}
GENERATOR = {'tiny': 1.0, 'base': 1 / 3, 'large': 1 / 4}  # 1/4 of tiny is too narrow to learn
MASK_RATE = {'large': 0.25}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default small)."""
  size = common.parse_size(arg, SIZES, 'small')
  c = common.base()
  c.name = f'electra-{size}'
  c.total_steps = STEPS.get(size, 1_000_000)
  c.batch_size = BATCH.get(size, 128)
  c.length = LENGTH.get(size, 128)
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000
  c.best.update(dict(metric='eval/rtd_auc', mode='max'))

  c.model = bert.model(size if size in bert_model.SIZES else 'base')
  c.model.update(
    dict(
      name='electra',
      family='electra',
      size=size,
      **SIZES[size],
      activation='gelu_erf',  # modeling.py
      labels=(),  # no next-sentence prediction
      generator='own',
      generator_width=GENERATOR.get(size, 1 / 4),  # configure_pretraining.py
      generator_layers=1.0,
      generator_head=2 if size == 'test' else 64,  # training_utils.py
      tied_embeddings=True,  # untied_generator_embeddings=False
    )
  )
  c.objective = dict(
    name='rtd',
    plus=1e-6,  # run_pretraining.py, of both losses
    generator_weight=1.0,
    discriminator_weight=50.0,
    temperature=1.0,
    disallow_correct=False,
    electric=False,
    train='both',
    copy_generator=False,
  )

  c.optimizer = common.adamw()  # optimization.py: BERT's, no bias correction
  c.optimizer.schedule = dict(
    name='product_linear',
    peak=PEAK.get(size, 5e-4),
    warmup_steps=c.get_ref('total_steps') * 10_000 // c.total_steps,
    total_steps=c.get_ref('total_steps'),
  )

  c.data.plan, c.data.mask = recipes.ELECTRA_PLAN, recipes.ELECTRA_MASK
  c.data.mask.rate = MASK_RATE.get(size, 0.15)
  if size == 'tiny':
    common.laptop(c)
  return c
