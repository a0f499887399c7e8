"""A small BERT on text that every Python carries: some four minutes anywhere, nothing to download.

  python -m bertjax.main --config=configs/quickstart.py --workdir=runs/quickstart

The corpus is the language reference of `pydoc_data.topics` and the docstrings of the standard
library. Not the paper's recipe: a small vocabulary, short sequences, small batches, a large
learning rate, larger initial weights, no next-sentence task.

`configs/quickstart.py:no_attention` is the same run with attention switched off: what it learns
comes from copying and from word frequencies, and the gap to it is what comes from context.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs import bert

OURS = 'ours: four minutes on two cores'  # as many steps as they have room for elsewhere


def get_config(arg: str | None = None):
  """The run, or its ablation `no_attention`."""
  variant = defaults.parse_size(arg, ('attention', 'no_attention'), 'attention')
  c = bert.get_config('tiny')
  c.update(cited(defaults.NAMES, name=f'quickstart-{variant}'))
  c.update(cited(OURS, minutes=3.5, total_steps=4000, batch_size=16))
  c.update(cited(OURS, log_steps=20, eval_steps=500, checkpoint_steps=1000))

  attend = 'self' if variant == 'no_attention' else 'example'
  c.model.update(cited(OURS, attend=attend, labels=()))
  c.optimizer.update(cited(OURS, b2=0.999, bias_correction=False))  # BERT's
  warmup = c.get_ref('total_steps') // 10
  c.optimizer.schedule.update(cited(OURS, name='linear', peak=1e-3, warmup_steps=warmup))

  c.data.train_vocab.update(cited(OURS, type='wordpiece', size=4096))
  c.data.update(cited(OURS, mixture='python_docs', lowercase=True, holdout=0.05))
  c.data.plan = cited(OURS, name='blocks', break_mode='complete_doc', separator=False)
  c.data.mask.update(cited(OURS, static=False))
  c.evals.held_out.update(cited(OURS, examples=512))
  completed = (
    'this function returns a [MASK] of strings.',
    'if the argument is [MASK] given, the default is used.',
    'raise an [MASK] if the file does not exist.',
  )
  c.evals.fill_mask = cited(OURS, type='fill_mask', sentences=completed)
  return c
