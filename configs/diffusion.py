"""Masked diffusion (MDLM, Sahoo et al. 2024; kuleshov-group/mdlm): a masked language model with any
share of its tokens hidden, which bounds the likelihood of texts and writes them.

  python -m bertjax.main --config=configs/diffusion.py:base --workdir=runs/diffusion \
      --config.data.input='text/*.txt' --config.data.vocab=vocab.txt

Sizes: those of configs/bert.py, and with `_modernbert` behind them those of configs/modernbert.py.
The net is BERT's or ModernBERT's as it is, and knows no time; steps, batch and rates are MDLM's for
OpenWebText, without its average of the parameters. The run may begin with any model of the two
classes (--config.init_from=hf:DIR), and is exported as that class:

  python -m bertjax.generate --workdir=runs/diffusion --text='Once upon a time' --new_tokens=40
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models import bert as bert_model
from bertjax.models import modernbert as modernbert_model
from configs import bert, modernbert

MDLM = 'mdlm/configs/config.yaml'
SIZES = {
  **{size: (bert, size) for size in bert_model.SIZES},
  **{f'{size}_modernbert': (modernbert, size) for size in modernbert_model.SIZES},
}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  name = defaults.parse_size(arg, SIZES, 'base')
  net, size = SIZES[name]
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'diffusion-{name}'))
  c.update(
    cited(MDLM, total_steps=1_000_000, batch_size=512)
    | (
      cited("ours: all of BERT's positions; 1,024 there", length=512)
      if net is bert
      else cited('mdlm/configs/model/small.yaml', length=1024)
    )
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.evals.bound = cited('ours: bounds the likelihood', type='bound')
  c.best.update(cited('ours: the bound, of the loss', metric='eval/mlm'))

  c.model = net.model(size)
  if net is bert:
    c.model.update(cited('ours: no labels', labels=()))
  c.objective = cited('mdlm/diffusion.py:_loss, over all tokens', name='mlm', plus=0.0)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    cited(MDLM, b2=0.999, eps=1e-8, weight_decay=0.0, clip=1.0)
    | cited('mdlm/diffusion.py: torch.optim.AdamW', bias_correction=True)
  )
  c.optimizer.schedule = (
    cited('mdlm/configs/lr_scheduler/constant_warmup.yaml', name='linear', end_ratio=1.0)
    | defaults.the_run(c)
    | cited(MDLM, peak=3e-4, warmup_steps=c.get_ref('total_steps') // 400)
  )

  c.data.plan = recipes.ROBERTA_PLAN
  c.data.mask = recipes.DIFFUSION_MASK
  if size == 'tiny':
    defaults.laptop(c)
    c.optimizer.schedule.update(cited('ours: a short run ends at 0', end_ratio=0.0))
  return c
