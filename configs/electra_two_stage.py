"""ELECTRA in two stages (Clark et al. 2020, section 3.3): the generator alone, then, from a copy of
it, the discriminator, while the generator stays as it is.

  python -m bertjax.main --config=configs/electra_two_stage.py:small --workdir=runs/two_stage \
      --config.data.input='wiki/*.txt' --config.data.vocab=vocab.txt

Sizes as configs/electra.py. The copy needs two nets of one size. The generator has embeddings of
its own here: a frozen one could share only frozen ones. The paper does not say how it did this, nor
how it divided the steps; half and half, each stage with its own warm-up and decay, are ours.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs import electra

SIZES = electra.SIZES

GENERATOR = (r'(generator_net|generator_embeddings|mlm)/.*',)
DISCRIMINATOR = (r'(discriminator|embeddings|rtd)/.*',)

OURS = 'ours: half and half, each stage with a schedule of its own'


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default small)."""
  size = defaults.parse_size(arg, SIZES, 'small')
  c = electra.get_config(size)
  c.update(cited(defaults.NAMES, name=f'electra-two-stage-{size}'))
  c.model.update(
    # One size for both, so heads as well; a frozen table could be shared with a frozen one only.
    cited(
      'ELECTRA paper, section 3.3',
      generator_width=1.0,
      generator_head=c.model.width // c.model.heads,
    )
    | cited('ours: see above', tied_embeddings=False)
  )
  half = lambda: c.get_ref('total_steps') // 2  # one for each key, so that none moves another
  warmup = c.get_ref('total_steps') * 5_000 // c.total_steps
  c.optimizer.schedule.update(cited(OURS, start=0, warmup_steps=warmup, total_steps=half()))
  c.phases = cited(
    OURS,
    phase1=dict(share=0.5, objective=dict(train='generator'), optimizer=dict(freeze=DISCRIMINATOR)),
    phase2=dict(
      share=0.5,
      objective=dict(train='discriminator', copy_generator=True),
      optimizer=dict(freeze=GENERATOR, schedule=dict(start=half())),
    ),
  )
  if size == 'tiny':
    defaults.laptop(c)
  return c
