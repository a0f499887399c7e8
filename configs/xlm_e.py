"""XLM-E (Chi et al. 2022): ELECTRA on text in many languages and on pairs of translations, in turn.

  python -m bertjax.main --config=configs/xlm_e.py:base --workdir=runs/xlm_e \
      --config.data.input='en=cc100/en*.txt.xz,fr=cc100/fr*.txt.xz,en-fr=both.en.gz+both.fr.gz' \
      --config.data.vocab=FILE.model

Sizes: test, tiny, base. Multilingual and translation replaced-token detection (MRTD, TRTD) are
phases that take turns over one generator and one discriminator; each has its masked-LM loss and 50
times its detection loss. microsoft/unilm names the system and holds no code of it: all numbers are
from memory of the paper (unverified). Its gated relative position bias is not built: positions are
learned.
"""

from bertjax.data import recipes
from configs import common, electra

SIZES = {name: electra.SIZES[name] for name in ('test', 'tiny', 'base')}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = common.parse_size(arg, SIZES, 'base')
  c = electra.get_config(size)
  c.name = f'xlm_e-{size}'
  c.total_steps = 125_000
  c.batch_size = 2048
  c.length = 512
  c.best.update(dict(metric='eval/mrtd/rtd_auc', mode='max'))

  c.model.types = 0  # one segment, no language ids
  c.model.generator_width = 1.0
  c.model.generator_layers = 1 / 3  # 4 of 12

  c.optimizer.b2 = 0.98
  c.optimizer.bias_correction = c.optimizer.eps_first = True  # fairseq Adam
  c.optimizer.schedule.name = 'linear'
  c.optimizer.schedule.peak = 5e-4
  c.optimizer.schedule.warmup_steps = c.get_ref('total_steps') * 2 // 25  # 10,000 of 125,000

  c.data.plan = recipes.ROBERTA_PLAN
  c.data.split = 'lines'
  c.data.language_alpha = 0.7
  # <s> source </s> target </s>, as InfoXLM has it
  pairs = recipes.TRANSLATION_PLAN | dict(lead='cls', reset_positions=False)
  c.phases.mrtd = dict(turns=1)
  c.phases.trtd = dict(turns=1, data=dict(plan=pairs))
  if size == 'tiny':
    common.laptop(c)
  return c
