"""RoBERTa by the next token for half of its steps, then by masked ones (arXiv 2507.00994).

  python -m bertjax.compare --arms=roberta,configs/arms/clm_mlm.py ...

Until half of the steps its `mlm_masked` is the loss of the next token.
"""

from bertjax.cited import cited
from bertjax.examples import recipes
from configs import roberta


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg`."""
  c = roberta.get_config(arg)
  own = dict(seed=c.get_ref('seed') + 1000)  # other rows than the first phase
  causal = dict(share=0.5, model=dict(attend='causal'), data=dict(mask=recipes.CAUSAL_MASK))
  c.phases = cited('ours', clm=causal, mlm=dict(share=0.5, **own))
  # A causal step is not to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  return c
