"""After XLM-E (Chi et al. 2022): ELECTRA on text in many languages and on pairs of translations.

  python -m bertjax.main --config=configs/xlm_e.py:base --workdir=runs/xlm_e \
      --config.data.input='en=cc100/en*.txt.xz,fr=cc100/fr*.txt.xz,en-fr=both.en.gz+both.fr.gz' \
      --config.data.vocab=FILE.model

Sizes: test, tiny, base, and SIZE_turns. There is no original code: microsoft/unilm names the
system and holds none of it, so all numbers are from memory of the paper (unverified). Multilingual
and translation replaced-token detection (MRTD, TRTD) share one generator and one discriminator;
each has its masked-LM loss and 50 times its detection loss. Every step takes a batch of text and
one of pairs, batch_size rows each, and sums their losses; of SIZE_turns it takes one of them, in
turns, so that as many steps see half of either text.

Not as there: its gated relative position bias is not built: positions are learned.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from configs import electra

SIZES = {name: electra.SIZES[name] for name in ('test', 'tiny', 'base')}
PAPER = 'XLM-E paper (unverified)'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  name = defaults.parse_size(arg, [size + way for size in SIZES for way in ('', '_turns')], 'base')
  size = name.removesuffix('_turns')
  c = electra.get_config(size)
  c.update(cited(defaults.NAMES, name=f'xlm_e-{name}'))
  c.update(cited(PAPER, total_steps=125_000, batch_size=2048, length=512))
  c.best.update(cited(defaults.NAMES, metric='eval/mrtd/rtd_auc', mode='max'))

  c.model.update(
    cited(PAPER, types=0)  # one segment, no language ids
    | cited(PAPER, generator_width=1.0, generator_layers=1 / 3)  # 4 of 12
    | cited('electra/configure_pretraining.py, in every size', tied_embeddings=True)
  )

  c.optimizer.update(
    cited(PAPER, b2=0.98, clip=2.0)  # of both losses
    | cited('fairseq/fairseq/optim/adam.py:Adam (unverified)', bias_correction=True, eps_first=True)
  )
  warmup = c.get_ref('total_steps') * 2 // 25  # 10,000 of 125,000
  c.optimizer.schedule.update(cited(PAPER, name='linear', peak=5e-4, warmup_steps=warmup))

  c.data.plan = recipes.ROBERTA_PLAN | cited(PAPER, name='blocks', break_mode='complete')
  c.data.update(cited(PAPER, language_alpha=0.7) | cited("ours: as RoBERTa's", split='lines'))
  # <s> source </s> target </s>
  pairs = recipes.TRANSLATION_PLAN | cited(
    'as InfoXLM, unilm/infoxlm (unverified)', lead='cls', reset_positions=False, orders='given'
  )
  if name == size:
    c.phases = cited(PAPER, mrtd=dict(summed=1.0), trtd=dict(summed=1.0, data=dict(plan=pairs)))
  else:
    turns = dict(mrtd=dict(turns=1), trtd=dict(turns=1, data=dict(plan=pairs)))
    c.phases = cited('ours: a step of each', **turns)
  if size == 'tiny':
    defaults.laptop(c)
  return c
