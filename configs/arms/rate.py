"""RoBERTa for arms that mask more, all judged at 15%.

python -m bertjax.compare --arms='roberta,configs/arms/rate.py[data.mask.rate=0.4]' ...
"""

from bertjax.cited import cited
from configs import roberta


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg`."""
  c = roberta.get_config(arg)
  c.evals.held_out.update(cited('ours: as other arms', data=dict(mask=dict(rate=0.15))))
  return c
