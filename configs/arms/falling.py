"""RoBERTa with 40% of the tokens masked, then 27.5%, then 15%, a third of the steps each.

python -m bertjax.compare --arms=roberta,configs/arms/falling.py ...
"""

from bertjax.cited import cited
from configs import roberta


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg`."""
  c = roberta.get_config(arg)
  phase = lambda i, rate: dict(
    share=1.0, seed=c.get_ref('seed') + 1000 * i, data=dict(mask=dict(rate=rate))
  )
  c.phases = cited('ours', **{f'rate{i}': phase(i, r) for i, r in enumerate((0.4, 0.275, 0.15))})
  c.evals.held_out.update(cited('ours: as other arms', data=dict(mask=dict(rate=0.15))))
  return c
