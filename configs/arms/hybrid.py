"""RoBERTa by the next token and by masked ones, a step each in turns (GPT-BERT mixes rows so:
Charpentier and Samuel 2024, arXiv 2410.24159).

  python -m bertjax.compare --arms=roberta,configs/arms/hybrid.py ...
"""

from bertjax.cited import cited
from bertjax.examples import recipes
from configs import roberta


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg`."""
  c = roberta.get_config(arg)
  own = dict(seed=c.get_ref('seed') + 1000)  # other rows than the causal steps
  causal = dict(turns=1, model=dict(attend='causal'), data=dict(mask=recipes.CAUSAL_MASK))
  c.phases = cited('ours', clm=causal, mlm=dict(turns=1, **own))
  c.best.update(cited('ours', metric='eval/mlm/mlm_masked'))
  # A causal step is not to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  return c
