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

from bertjax.data import recipes
from bertjax.models.modernbert import SIZES
from configs import common


def model(size: str) -> ConfigDict:
  """`config.model` of a size."""
  return ConfigDict(
    dict(
      name='modernbert',
      family='modernbert',
      size=size,
      **SIZES[size],
      vocab_size=0,  # 0: the store's vocabulary; the paper's has 50,368
      positions=8192,
      activation='gelu_erf',
      gated=True,
      norm='layer_norm',
      norm_eps=1e-5,
      biases=False,
      distances='rotary',
      theta=10_000.0,  # of global layers; the context extension raises it
      local_theta=10_000.0,
      window=64,  # keys on each side: sliding_window 128
      global_every=3,
      attention_dropout=0.0,
      dropout=0.1,  # attn_out_dropout_prob
      ffn_dropout=0.0,
      init_std=0.02,
      attend='example',
      words=True,
      remat=False,
      dtype='float32',  # compute; parameters are float32. 'bfloat16' on TPU and GPU
    )
  )


class Stage(NamedTuple):
  """A phase of the recipe.

  Attributes:
    name: of the phase; names are in order.
    tokens: how long it lasts, in billions.
    batch_size, length: of it.
    peak: learning rate, in parts of the run's.
    decay: whether the rate falls to its end, as 1 - sqrt, rather than holding.
  """

  name: str
  tokens: float
  batch_size: int
  length: int
  peak: float = 1.0
  decay: bool = False

  @property
  def steps(self) -> int:
    """As many as make the tokens."""
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
PEAK = {'large': 5e-4}  # others: base's
WARMUP = {'base': 3.0, 'large': 2.0, 'test': 1e-4}  # of the rate, billions of tokens


def recipe(size: str) -> ConfigDict:
  """The paper's phases: a batch that grows, 1,024 tokens, then 8,192."""
  c, stages = common.base(), STAGES.get(size, STAGES['test'])
  last = max(stages, key=lambda stage: stage.tokens)
  steps = sum(stage.steps for stage in stages)
  c.name = f'modernbert-{size}'
  c.total_steps = steps
  c.batch_size, c.length = last.batch_size, last.length
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 4000, 4000  # yamls

  c.model = model(size)
  c.objective = dict(name='mlm', plus=0.0)

  c.optimizer = common.stable_adamw()
  peak = PEAK.get(size, 8e-4)
  # decoupled_stableadamw takes 1e-5 off a weight at each step of the peak.
  c.optimizer.weight_decay = 1e-5 / peak
  warmup = steps_of(WARMUP.get(size, WARMUP['test']), stages)
  c.optimizer.schedule = dict(
    name='warmup_stable_decay', start=0, peak=peak, decay_steps=0, end_ratio=0.0,
    warmup_steps=share_of(c, warmup, steps), total_steps=c.get_ref('total_steps'),
  )  # fmt: skip

  c.data.plan = recipes.ROBERTA_PLAN | dict(break_mode='complete_doc')
  c.data.mask = recipes.ROBERTA_MASK | dict(rate=0.3, special_ids=0)
  c.data.split = 'lines'  # a line of the corpus is a text with its own [SEP]
  c.data.pack = 16
  c.evals.held_out.data = dict(mask=dict(rate=0.15))  # always, to compare runs

  for stage in stages:
    c.phases[stage.name] = phase(c, stage, stages, steps)
  return c


def phase(c: ConfigDict, stage: Stage, stages: tuple[Stage, ...], steps: int) -> dict[str, Any]:
  """The overrides of a stage."""
  place = stages.index(stage)
  before = sum(other.steps for other in stages[:place])
  # Each phase counts its rows from 0: another seed gives it others.
  found: dict[str, Any] = dict(
    share=float(stage.steps), batch_size=stage.batch_size, length=stage.length, seed=place
  )
  if stage.peak != 1.0 or stage.decay:
    peak = c.optimizer.schedule.peak * stage.peak
    schedule = dict(peak=peak, warmup_steps=0, start=share_of(c, before, steps))
    schedule['total_steps'] = share_of(c, stage.steps, steps)
    if stage.decay:
      schedule |= dict(decay_steps=schedule['total_steps'], end_ratio=0.001)
    found['optimizer'] = dict(schedule=schedule, weight_decay=1e-5 / peak)
  if stage.name.startswith('context'):
    found['model'] = dict(theta=160_000.0)  # of global layers; local ones keep theirs
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
  size = common.parse_size(arg, SIZES, 'base')
  c = recipe(size)
  if size == 'tiny':
    common.laptop(c)
    c.optimizer.schedule.decay_steps = c.get_ref('total_steps') // 5
    c.phases = ConfigDict()
  return c
