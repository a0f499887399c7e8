"""A small BERT on text that every Python carries: four minutes on two cores, nothing to download.

  python -m bertjax.main --config=configs/quickstart.py --workdir=runs/quickstart

The corpus is the language reference of `pydoc_data.topics` and the docstrings of the standard
library. Not the paper's recipe: a small vocabulary, short sequences, small batches, a large
learning rate, larger initial weights, no next-sentence task.

`configs/quickstart.py:no_attention` is the same run with attention switched off: what it learns
comes from copying and from word frequencies, and the gap to it is what comes from context.
"""

from configs import bert, common


def get_config(arg: str | None = None):
  """The run, or its ablation `no_attention`."""
  variant = common.parse_size(arg, ('attention', 'no_attention'), 'attention')
  c = bert.get_config('tiny')
  c.name = f'quickstart-{variant}'
  c.total_steps = 4000
  c.batch_size = 16
  c.log_steps, c.eval_steps, c.checkpoint_steps = 20, 500, 1000

  c.model.attend = 'self' if variant == 'no_attention' else 'example'
  c.model.labels = ()
  c.optimizer.update(dict(b2=0.999, bias_correction=False))  # BERT's
  c.optimizer.schedule.name = 'linear'
  c.optimizer.schedule.peak = 1e-3
  c.optimizer.schedule.warmup_steps = c.get_ref('total_steps') // 10

  c.data.mixture = 'python_docs'
  c.data.train_vocab.type, c.data.train_vocab.size = 'wordpiece', 4096
  c.data.lowercase = True
  c.data.holdout = 0.05
  c.data.plan = dict(name='blocks', break_mode='complete_doc')
  c.data.mask.static = False
  c.evals.held_out.examples = 512
  c.evals.fill_mask.sentences = (
    'this function returns a [MASK] of strings.',
    'if the argument is [MASK] given, the default is used.',
    'raise an [MASK] if the file does not exist.',
  )
  return c
