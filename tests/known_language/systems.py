"""The systems on a known language: their recipes, and what their losses are compared with."""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bertjax.examples import recipes
from tests.known_language import optimum, readings
from tests.known_language.language import SENTENCE, TURNS

PAIR = 2 * SENTENCE + 3  # tokens of [CLS] A [SEP] B [SEP]
SMALL = {
  'batch_size': 64, 'model.layers': 2, 'model.width': 64, 'model.ffn': 256, 'model.heads': 2,
  'data.threads': 1, 'keep_checkpoints': 1,
  'evals.held_out.examples': 1024, 'evals.held_out.batch_size': 64,
}  # fmt: skip
# One for all: a recipe's own falls to 0 or does not, and its rates are those of larger models.
SCHEDULE = dict(name='linear', peak=4e-3, end_ratio=0.0, power=1.0, start=0)
ALONE = 500  # steps after which an arm without attention learns no more
ALL_HIDDEN = {'data.mask.mask_share': 1.0, 'data.mask.random_share': 0.0}
NEVER_SHORT = {'data.plan.short_prob': 0.0}
# Replaced tokens: each is drawn by a coin of its own, and replaced by any id, each alike. Without a
# generator's loss there is nothing that detection's weight of 50 would be against.
UNIFORM = {
  'objective.discriminator_weight': 1.0,
  'data.mask': recipes.XLM_MASK | dict(rate=0.25), 'model.generator': 'uniform',
  'model.embedding_width': 64,
}  # fmt: skip


SEGMENTER = 'tests.known_language.language:in_twos'
# What `prepare` is told of each text; {} is the folder.
TEXTS: dict[str, dict[str, Any]] = dict(
  documents=dict(input='{}/documents.txt', segmenter=SEGMENTER),
  stream=dict(input='{}/stream.txt'),
  spans=dict(input='{}/stream.txt'),
  languages=dict(input='en={0}/en.txt,fr={0}/fr.txt,en-fr={0}/both.en.txt+{0}/both.fr.txt'),
  dialogues=dict(input='{}/dialogues.jsonl', columns=('role',), segmenter=SEGMENTER),
)


class Task(NamedTuple):
  """What a phase of a run predicts: readings of its rows, and a loss of `optimum`."""

  readings: optimum.Readings
  loss: Callable[..., optimum.Sums]
  # Term -> the share of the gap between the arm without attention and the optimum that a run is to
  # close; and the one that it does close, where that is less: docs/learning.md says why.
  shares: Mapping[str, float]
  short: Mapping[str, float] = {}


class System(NamedTuple):
  """A recipe of configs/ on a known language."""

  config: str  # name of the file, and its argument where that is not `tiny`
  text: str  # of the kinds that `known_language.write` makes
  length: int  # of a row
  tasks: Mapping[str, Task]  # phase -> what it predicts; 'main' is the one phase of a run
  fields: Mapping[str, Any] = {}  # overrides by their paths; a dictionary is replaced whole
  steps: int = 1500
  # Overrides of the arm without attention; None: the least loss of tokens that see themselves alone
  # stands for it.
  alone: Mapping[str, Any] | None = {'model.attend': 'self'}


def _masked(read: optimum.Readings, label: str = '', **short: float) -> Task:
  loss = functools.partial(optimum.masked, label=label) if label else optimum.masked
  return Task(read, loss, dict(mlm=0.95) | ({label: 0.8} if label else {}), short)


_TEXT = _masked(readings.one_text)
_DETECTED = Task(readings.one_text, optimum.detected, dict(rtd=0.95))
SYSTEMS = dict(
  bert=System(
    'bert', 'documents', PAIR, dict(main=_masked(readings.next_pairs, 'next', next=0.65)),
    ALL_HIDDEN | NEVER_SHORT, steps=6000,
  ),
  roberta=System(
    'roberta', 'documents', PAIR, dict(main=_TEXT),
    ALL_HIDDEN | {'data.plan.break_mode': 'complete_doc'}, steps=1000,
  ),
  diffusion=System(
    'diffusion', 'documents', PAIR,
    dict(main=Task(readings.one_text, optimum.diffused, dict(mlm=0.95))),
    {'data.plan.break_mode': 'complete_doc', 'evals.bound.rows': 0}, steps=1500,
  ),
  albert=System(
    'albert', 'documents', PAIR, dict(main=_masked(readings.ordered_pairs, 'order')),
    ALL_HIDDEN | NEVER_SHORT | {'data.plan.random_b': False, 'model.embedding_width': 64},
  ),
  spanbert=System(
    'spanbert', 'documents', PAIR - 1, dict(main=_TEXT), ALL_HIDDEN, steps=1000
  ),
  ernie=System(
    'ernie', 'documents', PAIR, dict(main=_masked(readings.even_pairs, 'next', next=0.65)),
    ALL_HIDDEN | NEVER_SHORT | {'data.pack': 1}, steps=6000,
  ),
  ernie_dialogues=System(
    'ernie:tiny_dialogues', 'dialogues', 1 + TURNS * (SENTENCE + 1),
    dict(main=_masked(readings.dialogues, 'fake', fake=0.6)), ALL_HIDDEN, steps=5000,
  ),
  electra=System(
    'electra', 'documents', PAIR, dict(main=_DETECTED),
    # With the width of the others it closes 87 to 94% of the gap in 6,000 steps.
    UNIFORM | NEVER_SHORT | {
      'model.width': 128, 'model.heads': 4, 'model.embedding_width': 128,
      'model.init_std': 0.088, 'optimizer.schedule.peak': 2e-3,
    },
    steps=5000,
  ),
  electra_generator=System(
    'electra', 'documents', PAIR, dict(main=_TEXT),
    NEVER_SHORT | {
      'data.mask.mask_share': 1.0, 'objective.train': 'generator', 'model.embedding_width': 64,
      'model.generator_head': 32, 'best.metric': 'eval/mlm', 'best.mode': 'min',
    },
    steps=1000,
  ),
  deberta_v3_generator=System(
    'deberta_v3', 'documents', PAIR, dict(main=_TEXT),
    {
      'data.plan': recipes.ELECTRA_PLAN | dict(short_prob=0.0),
      'data.mask': recipes.ELECTRA_MASK | dict(mask_share=1.0), 'objective.train': 'generator',
      'model.generator_layers': 1.0, 'model.generator_head': 32, 'model.buckets': 8,
      'best.metric': 'eval/mlm', 'best.mode': 'min',
    },
    steps=1000,
  ),
  xlm=System(
    'xlm', 'languages', PAIR - 1,
    dict(
      clm=Task(readings.one_text, optimum.causal, dict(mlm=0.95)),
      mlm=_masked(readings.one_text, mlm=0.93),
      tlm=_masked(readings.translations),
    ),
    {'phases.tlm.length': 2 * SENTENCE + 4}, steps=4500,
    alone={f'phases.{phase}.model.attend': 'self' for phase in ('clm', 'mlm', 'tlm')},
  ),
  xlm_e=System(
    'xlm_e', 'languages', PAIR,
    dict(
      mrtd=_DETECTED._replace(short=dict(rtd=0.75)),
      trtd=_DETECTED._replace(readings=readings.translations, short=dict(rtd=0.75)),
    ),
    UNIFORM | {
      'data.mask': recipes.XLM_MASK | dict(rate=0.4), 'data.plan.break_mode': 'complete_doc',
      'model.generator_layers': 1.0, 'model.init_std': 0.125,
    },
    steps=2200,
  ),
  transformer_xl=System(
    'transformer_xl', 'stream', 16,
    dict(main=Task(readings.one_text, optimum.stream, dict(lm=0.95))),
    {
      'model.head_size': 32, 'model.mem_len': 16, 'evals.held_out.length': 0,
      'evals.held_out.model': ConfigDict(),
    },
    steps=400,
    # A segment of one token without memory sees itself alone.
    alone={'length': 1, 'model.mem_len': 0, 'batch_size': 1024},
  ),
  elmo=System(
    'elmo', 'stream', 16,
    dict(
      # Within 2% of the optimum.
      main=Task(readings.one_text, optimum.both_ways, dict(forwards=0.9914, backwards=0.9914))
    ),
    # One text read from both ends: its sentences go on from one another.
    {
      'model.cell': 128, 'model.characters': 0, 'data.plan.shuffle_sentences': False,
      'optimizer.schedule.peak': 0.5,
    },
    steps=1800, alone=None,
  ),
  gpt=System(
    'gpt', 'stream', 32,
    dict(
      main=Task(readings.one_text, functools.partial(optimum.causal, term='lm'), dict(lm=0.95))
    ),
    {'data.plan.ends': '', 'model.position_std': 0.08}, steps=600,
    # Of two tokens the second one has no target: the first sees itself alone.
    alone={'length': 2, 'batch_size': 2048},
  ),
  t5=System(
    't5', 'spans', 32,
    dict(
      main=Task(readings.one_text, optimum.spans, dict(seq2seq=0.95), dict(seq2seq=0.92))
    ),
    {'model.head_size': 32, 'optimizer.schedule.peak': 2e-2}, steps=1500, alone=None,
  ),
  xlnet=System(
    'xlnet', 'stream', 32,
    dict(main=Task(readings.even_followers, optimum.permuted, dict(plm=0.8))),
    {
      'data.plan.reuse_len': 16, 'data.plan.both_directions': False, 'data.mask.perm_size': 16,
      'model.mem_len': 0,
    },
    steps=300, alone=None,
  ),
)  # fmt: skip


def shares_of(name: str, loss: str) -> tuple[float, float]:
  """How much of the gap a system's loss is to close, and how much it does at least."""
  phase, _, term = loss.rpartition('/')
  task = SYSTEMS[name].tasks[phase or 'main']
  return task.shares[term], task.short.get(term, task.shares[term])


def config_of(system: System, store: str, seed: int = 0, steps: int = 0, alone: bool = False):
  """The run of a system on a store; `steps` stand for its own, `alone` is without attention."""
  name, _, argument = system.config.partition(':')
  config: Any = importlib.import_module(f'configs.{name}').get_config(argument or 'tiny')
  config.data.store, config.seed, config.length = store, seed, system.length
  config.total_steps = steps or system.steps
  if alone:
    config.total_steps = min(-(-config.total_steps // 3), ALONE)
  total = config.total_steps
  config.optimizer.schedule = ConfigDict(
    SCHEDULE | dict(warmup_steps=total // 12, total_steps=total)
  )
  config.log_steps = config.checkpoint_steps = config.total_steps
  config.eval_steps = max(config.total_steps // 5, 1)
  sizes = {k: v for k, v in SMALL.items() if k[:6] != 'model.' or k[6:] in config.model}
  changes = sizes | dict(system.fields) | dict((alone and system.alone) or {})
  with config.unlocked():
    if 'pseudo_perplexity' in config.evals:
      config.evals.pseudo_perplexity.rows = 0
    for path, value in changes.items():
      *parents, last = path.split('.')
      node = config
      for parent in parents:
        if parent not in node:
          node[parent] = ConfigDict()
        node = node[parent]
      node[last] = ConfigDict(value) if isinstance(value, dict) else value
  return config
