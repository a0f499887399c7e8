"""ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT, yamls/modernbert): a
current encoder, with packed rows and 8,192 positions.

  python -m bertjax.main --config=configs/modernbert.py:base --workdir=runs/modernbert \
      --config.data.input='text/*.txt' --config.data.vocab=DIR_WITH_tokenizer.json

Sizes: test, tiny, base, large. Phases: the batch grows, then rows of 1,024 tokens, then of 8,192
with slower turns of the global layers. Ours, where the original does otherwise: the batch grows in
five stages, large starts at random and not from base's weights, masks are as many in every row
(fairseq's draw in place of one coin a token), and texts are packed best-fit.
"""

from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.modernbert import SIZES

YAML = 'ModernBERT/yamls/modernbert/modernbert-base-pretrain.yaml'
EXTENSION = 'ModernBERT/yamls/modernbert/modernbert-base-context-extension.yaml'
TABLE = 'ModernBERT paper, table 3'
SHAPES = {  # of `SIZES`: where they are from
  'test': 'ours: small enough for tests',
  'tiny': 'ours: what a laptop learns with',
  'base': YAML,
  'large': 'ModernBERT paper, table 4 (unverified)',
}


def model(size: str) -> Recipe:
  """`config.model` of a size."""
  return Recipe(
    cited(defaults.NAMES, name='modernbert', family='modernbert', size=size)
    | cited(SHAPES[size], **SIZES[size])
    | cited(
      YAML,
      activation='gelu_erf',
      norm_eps=1e-5,
      dropout=0.1,  # attn_out_dropout_prob
    )
    | cited(EXTENSION, positions=8192)
    | cited('ModernBERT/src/bert_layers/initialization.py', init_std=0.02)
  )


class Stage(NamedTuple):
  """A phase of the recipe.

  Attributes:
    name: name of the phase; names sort in the order of training.
    tokens: tokens to train on, in billions.
    batch_size, length: rows of a batch, tokens of a row.
    peak: learning rate, as a multiple of the run's.
    decay: True if the rate falls to the end, as 1 - sqrt, rather than holding.
  """

  name: str
  tokens: float
  batch_size: int
  length: int
  peak: float = 1.0
  decay: bool = False

  @property
  def steps(self) -> int:
    """Number of steps that make `tokens`."""
    return round(self.tokens * 1e9 / (self.batch_size * self.length))


def grown(smallest: int, largest: int, tokens: float) -> tuple[Stage, ...]:
  """The warm-up of the batch in five stages of as many steps each, as the original's, which grows
  it one by one (src/sequence_packer.py, BatchSizeWarmupScheduler)."""
  sizes = [smallest + (largest - smallest) * i // 5 for i in range(5)]
  each = tokens / sum(sizes)
  return tuple(Stage(f'batch{i + 1}', each * size, size, 1024) for i, size in enumerate(sizes))


# Paper, table 3; yamls/modernbert. The rates of the extension: 3e-4 of 8e-4, and 5e-5 of 5e-4.
STAGES = {
  'base': (
    *grown(768, 4608, 50.0),
    Stage('batch6', 1719.0 - 50.0, 4608, 1024),
    Stage('context1', 250.0, 576, 8192, 3 / 8),
    Stage('context2', 50.0, 576, 8192, 3 / 8, decay=True),
  ),
  'large': (
    *grown(448, 4928, 10.0),
    Stage('batch6', 900.0 - 10.0, 4928, 1024),
    Stage('batch7', 800.0, 4928, 1024, 1 / 10),
    Stage('context1', 250.0, 616, 8192, 1 / 10),
    Stage('context2', 50.0, 624, 8192, 1 / 10, decay=True),
  ),
  'test': (Stage('batch1', 1e-3, 8, 64), Stage('context1', 1e-3, 8, 128, 0.5, decay=True)),
}
RUNS = {'base': f'{YAML}; {TABLE}', 'large': TABLE}
PEAK = {'large': 5e-4}  # others: base's
WARMUP = {'base': 3.0, 'large': 2.0, 'test': 1e-4}  # of the rate, billions of tokens


def recipe(size: str) -> Recipe:
  """The paper's phases: a batch that grows, 1,024 tokens, then 8,192."""
  c, stages = defaults.base(), STAGES.get(size, STAGES['test'])
  last = max(stages, key=lambda stage: stage.tokens)
  steps = sum(stage.steps for stage in stages)
  source = RUNS.get(size, SHAPES['test'])
  c.update(cited(defaults.NAMES, name=f'modernbert-{size}'))
  c.update(cited(source, total_steps=steps, batch_size=last.batch_size, length=last.length))
  c.update(cited(YAML, log_steps=100, eval_steps=4000, checkpoint_steps=4000))

  c.model = model(size)
  c.objective = cited(f'{YAML}:loss_kwargs', name='mlm', plus=0.0)

  c.optimizer = defaults.stable_adamw()
  warmup = steps_of(WARMUP.get(size, WARMUP['test']), stages)
  c.optimizer.schedule = (
    cited(f'{YAML}:scheduler', name='warmup_stable_decay')
    | cited(source, peak=PEAK.get(size, 8e-4), warmup_steps=share_of(c, warmup, steps))
    | defaults.the_run(c)
  )
  # decoupled_stableadamw takes 1e-5 off a weight at each step of the peak.
  peak = c.optimizer.schedule.get_ref('peak')
  c.optimizer.update(cited(f'{YAML}:weight_decay', weight_decay=1e-5 / peak))

  c.data.plan = recipes.ROBERTA_PLAN | cited(
    'ours: a text a row, packed', name='blocks', break_mode='complete_doc', separator=False
  )
  c.data.mask = (
    recipes.ROBERTA_MASK
    | cited(f'{YAML}:mlm_probability', rate=0.3)
    | cited("ours: transformers' collator draws from all ids", never_drawn=())
  )
  # A line of the corpus is a text with its own [SEP].
  c.data.update(cited('ours: best-fit, for sequence_packing', split='lines', pack=16))
  # Always, to compare runs.
  c.evals.held_out.update(cited(f'{YAML}:eval_loader', data=dict(mask=dict(rate=0.15))))

  c.phases = cited(source, **{stage.name: phase(c, stage, stages, steps) for stage in stages})
  return c


def phase(c: ConfigDict, stage: Stage, stages: tuple[Stage, ...], steps: int) -> dict[str, Any]:
  """The overrides of a stage."""
  place = stages.index(stage)
  before = sum(other.steps for other in stages[:place])
  # Each phase counts its rows from 0: another seed gives it others.
  found: dict[str, Any] = cited('ours: other rows in every phase', seed=place) | dict(
    share=float(stage.steps), batch_size=stage.batch_size, length=stage.length
  )
  # Said here, so that a command can give a phase its own.
  found |= cited('ours: the machine', microbatches=c.get_oneway_ref('microbatches'))
  if stage.peak != 1.0 or stage.decay:
    peak = c.optimizer.schedule.get_ref('peak') * stage.peak
    schedule = dict(peak=peak, warmup_steps=0, start=share_of(c, before, steps))
    schedule['total_steps'] = share_of(c, stage.steps, steps)
    if stage.decay:
      schedule |= dict(decay_steps=share_of(c, stage.steps, steps), end_ratio=0.001)
    found['optimizer'] = dict(schedule=schedule, weight_decay=1e-5 / peak)
  if stage.name.startswith('context'):
    # Of global layers; local ones keep theirs.
    found['model'] = cited(f'{EXTENSION}:rotary_emb_base', theta=160_000.0)
  return found


def steps_of(tokens: float, stages: tuple[Stage, ...]) -> int:
  """The steps that make so many billions of tokens."""
  steps = 0
  for stage in stages:
    if tokens <= stage.tokens:
      return steps + round(tokens / stage.tokens * stage.steps)
    tokens, steps = tokens - stage.tokens, steps + stage.steps
  return steps


def share_of(c: ConfigDict, part: int, steps: int) -> Any:
  """That part of the steps, of however many the run has."""
  return c.get_ref('total_steps') * part // steps


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = recipe(size)
  if size == 'tiny':
    defaults.laptop(c)
    fifth = c.get_ref('total_steps') // 5
    c.optimizer.schedule.update(cited('ours: a fifth of the run decays', decay_steps=fifth))
    c.phases = ConfigDict()
  return c
