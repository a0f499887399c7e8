"""An hour to the lowest held-out loss on [MASK], on WikiText-103: docs/speedrun.md has the rules.

  python -m bertjax.main --config=configs/speedrun.py --workdir=runs/speedrun \
      --config.data.store=wikitext103

Arguments: `cpu` (default), an hour of one core, and `h100`, of one card. An entry may change
all but `minutes` and `evals.held_out`.
"""

from typing import Any

from bertjax.cited import cited
from bertjax.config import defaults
from configs import modernbert

OURS = 'ours: docs/speedrun.md'
RULES = 'ours: the rules of docs/speedrun.md'
# Shape; rows of a batch; peak of the learning rate.
MACHINES = {
  'cpu': (dict(layers=4, width=128, heads=2, ffn=192), 8, 4e-3),
  'h100': (modernbert.SIZES['base'], 256, 8e-4),
}


def get_config(arg: str | None = None):
  """The recipe of the record on the machine named by `arg`."""
  machine = defaults.parse_size(arg, MACHINES, 'cpu')
  shape, rows, peak = MACHINES[machine]
  c: Any = modernbert.get_config('tiny')
  c.update(cited(defaults.NAMES, name=f'speedrun-{machine}'))
  c.update(cited(RULES, minutes=60.0))
  c.update(cited(OURS, batch_size=rows, length=128, eval_steps=2000, checkpoint_steps=2000))
  c.model.update(cited(OURS, **shape, init_std=shape['width'] ** -0.5))
  warmup = c.get_ref('total_steps') // 20
  c.optimizer = defaults.stable_adamw()
  c.optimizer.schedule = cited(
    OURS, name='linear', peak=peak, warmup_steps=warmup
  ) | defaults.the_run(c)
  # Harder first, as it is judged at the end (Ankner et al. 2023, arXiv 2305.15096).
  c.phases = {
    f'rate{number}': cited(OURS, share=share, seed=number, data=dict(mask=dict(rate=rate)))
    for number, (share, rate) in enumerate(((0.7, 0.3), (0.3, 0.15)))
  }
  judged = dict(mask=dict(rate=0.15))
  c.evals.held_out = cited(RULES, type='loss', examples=0, length=128, seed=17, data=judged)
  c.evals.pseudo_perplexity.update(cited(OURS, rows=0))
  return c
