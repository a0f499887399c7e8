"""BERT large in 8601 steps with LAMB (You et al. 2020, in NVIDIA's recipe): lengths 128, then 512.

  python -m bertjax.main --config=configs/bert_lamb.py:large --workdir=runs/lamb \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

Two phases with their own batch, learning rate and schedule: 7038 steps of 65,536 sequences at
length 128, then 1563 of 32,768 at 512. Square-root polynomial decay, warm-up over 28.43% and 12.8%
of the phase.
"""

from ml_collections import ConfigDict

from configs import bert, common

FIRST, SECOND = 7038, 1563


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default large)."""
  size = common.parse_size(arg, bert.SIZES, 'large')
  c = bert.recipe(size)
  c.name = f'bert-lamb-{size}'
  c.total_steps = FIRST + SECOND
  c.batch_size = 65_536
  c.eval_steps, c.checkpoint_steps = 500, 500
  c.phases = ConfigDict()

  c.optimizer = common.adamw()
  c.optimizer.name = 'lamb'
  c.optimizer.bias_correction = True
  c.optimizer.trust = 'decayed'  # norms and biases take the plain update
  first = c.get_ref('total_steps') * FIRST // (FIRST + SECOND)
  second = c.get_ref('total_steps') * SECOND // (FIRST + SECOND)
  c.optimizer.schedule = dict(
    name='sqrt_poly', start=0, peak=6e-3, warmup_steps=first * 2001 // FIRST, total_steps=first
  )
  c.phases.phase1 = dict(share=float(FIRST), length=c.get_ref('length') // 4)
  c.phases.phase2 = dict(
    share=float(SECOND),
    batch_size=c.get_ref('batch_size') // 2,
    optimizer=dict(
      schedule=dict(start=first, peak=4e-3, warmup_steps=second * 200 // SECOND, total_steps=second)
    ),
  )
  return c
