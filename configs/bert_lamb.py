"""BERT large in 8601 steps with LAMB (You et al. 2020, in NVIDIA's recipe): lengths 128, then 512.

  python -m bertjax.main --config=configs/bert_lamb.py:large --workdir=runs/lamb \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

NVIDIA's model and data (DeepLearningExamples, PyTorch/LanguageModeling/BERT) over BERT's shapes:
erf GELU, untruncated initial weights, five passes over the documents, plain means for losses. Two
phases with their own batch, learning rate and schedule: 7038 steps of 65,536 sequences at length
128, then 1563 of 32,768 at 512. Square-root polynomial decay, warm-up over 28.43% and 12.8% of the
phase.

Not as there: it begins the second phase by counting the steps of the bias correction from 0 again,
over the moments of the first; here the count goes on.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs import bert

NVIDIA = 'DeepLearningExamples/PyTorch/LanguageModeling/BERT'
README = f'{NVIDIA}/README.md'
FIRST, SECOND = 7038, 1563


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default large)."""
  size = defaults.parse_size(arg, bert.SIZES, 'large')
  c = bert.recipe(size)
  c.update(cited(defaults.NAMES, name=f'bert-lamb-{size}'))
  c.update(cited(README, total_steps=FIRST + SECOND, batch_size=65_536, length=512))
  c.update(cited(defaults.EVERY, eval_steps=500, checkpoint_steps=500))

  c.model.update(
    cited(f'{NVIDIA}/modeling.py:bias_gelu_training', activation='gelu_erf')
    | cited(f'{NVIDIA}/modeling.py:init_bert_weights', initializer='normal')
    | cited(f'{NVIDIA}/modeling.py:BertEmbeddings', norm_eps=1e-12)
    | cited(f'{NVIDIA}/bert_config.json', dropout=0.1, attention_dropout=0.1, init_std=0.02)
  )
  c.objective.update(cited(f'{NVIDIA}/run_pretraining.py:BertPretrainingCriterion', plus=0.0))
  c.data.plan.update(
    cited(f'{NVIDIA}/data/bertPrep.py:dupe_factor', dupe_factor=5)
    | cited(f'{NVIDIA}/create_pretraining_data.py:short_seq_prob', short_prob=0.1)
  )
  c.data.mask.update(
    cited(f'{NVIDIA}/data/bertPrep.py:masked_lm_prob', rate=0.15)
    # 20 and 80 slots: of the latter 15% of 512, 77, are used.
    | cited(f'{NVIDIA}/scripts/run_pretraining.sh:max_predictions_per_seq', max_targets=0)
  )

  run = f'{NVIDIA}/run_pretraining.py:prepare_model_and_optimizer'
  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(run, name='lamb', weight_decay=0.01, decay=defaults.DECAY_WEIGHTS_ONLY)
    # Norms and biases take the plain update.
    | cited(
      'apex/apex/optimizers/fused_lamb.py:FusedLAMB and its defaults',
      b2=0.999,
      eps=1e-6,
      bias_correction=True,
      clip=1.0,
    )
  )
  # A reference for each key, so that none moves another.
  first = lambda: c.get_ref('total_steps') * FIRST // (FIRST + SECOND)
  second = lambda: c.get_ref('total_steps') * SECOND // (FIRST + SECOND)
  c.optimizer.schedule = cited(
    f'{NVIDIA}/schedulers.py:PolyWarmUpScheduler', name='sqrt_poly', start=0
  ) | cited(README, peak=6e-3, warmup_steps=first() * 2001 // FIRST, total_steps=first())
  schedule = dict(
    start=first(), peak=4e-3, warmup_steps=second() * 200 // SECOND, total_steps=second()
  )
  c.phases = cited(
    README,
    phase1=dict(share=float(FIRST), length=c.get_ref('length') // 4),
    phase2=dict(
      share=float(SECOND),
      batch_size=c.get_ref('batch_size') // 2,
      optimizer=dict(schedule=schedule),
    ),
  )
  return c
