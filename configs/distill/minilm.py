"""MiniLM (Wang et al. 2020): a small BERT learns how tokens relate in one layer of a large one.

  python -m bertjax.main --config=configs/distill/minilm.py:l6_h384 --workdir=runs/minilm \
      --config.objective.teacher.source=hf:BERT --config.data.input='wiki/*.txt'

The text needs no labels, and nothing in it is hidden. l6_h384 has 6 layers of width 384; so
l12_h384 and l6_h768. `l6_h384,v2` and so on are MiniLMv2 (Wang et al. 2021), whose relation heads
need not be those of the teacher. The student has no head for words and exports as BertModel;
fine-tuning begins with `--config.init_from=runs/minilm`. The teacher brings the vocabulary.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from configs import bert

PAPER = 'MiniLM paper, section 4.1 (unverified)'
SECOND = 'MiniLMv2 paper, section 4.1 (unverified)'
README = 'unilm/minilm/README.md, the models'
SIZES = dict(
  l6_h384=dict(layers=6, width=384, ffn=1536),
  l12_h384=dict(layers=12, width=384, ffn=1536),
  l6_h768=dict(layers=6, width=768, ffn=3072),
)
FIRST = (('query', 'key'), ('value', 'value'))
THEMSELVES = tuple((name, name) for name in ('query', 'key', 'value'))


def recipe(size: str, second: bool) -> Recipe:
  """Distillation of relations on unlabelled text.

  Args:
    size: of the student, a key of `SIZES`.
    second: MiniLMv2.
  """
  c, paper = bert.recipe('base'), SECOND if second else PAPER
  c.update(cited(defaults.NAMES, name=f'minilm{"v2" if second else ""}-{size}'))
  c.update(cited(paper, batch_size=256, length=512, total_steps=400_000))
  c.phases = ConfigDict()
  c.model.update(
    cited(README, layers=SIZES[size]['layers'], width=SIZES[size]['width'], heads=12)
    | cited('MiniLM paper, section 4.1: 4 times the width (unverified)', ffn=SIZES[size]['ffn'])
    | cited('ours: nothing scores words or labels', words=False, labels=())
    | cited('ours: BertModel has one; fine-tuning trains it', pooler=True)
  )
  c.objective = cited('ours: the run names it', name='relations') | (
    cited(
      'MiniLMv2 paper, section 3.1; relation heads of base teachers in 4.1 (unverified)',
      relations=THEMSELVES,
      relation_heads=48,
    )
    if second
    else cited('MiniLM paper, sections 3.1 and 3.2 (unverified)', relations=FIRST)
  )
  # Of BERT large the second paper takes layer 20, counted from 0: --config.objective.layer=20.
  c.optimizer.update(cited('ours: nothing is learned of it', freeze=(r'pooler/.*',)))
  c.optimizer.schedule.update(
    cited(paper, peak=6e-4 if second else 5e-4, warmup_steps=c.get_ref('total_steps') // 100)
  )
  c.data.plan, c.data.mask = recipes.ROBERTA_PLAN, recipes.CAUSAL_MASK
  c.best.update(cited('ours: a relation that both papers have', metric='eval/value_value'))
  del c.evals.pseudo_perplexity  # there is no head for words
  return c


def get_config(arg: str | None = None):
  """The recipe named by `arg` (default l6_h384)."""
  names = [f'{size}{version}' for size in SIZES for version in ('', ',v2')]
  size, _, version = defaults.parse_size(arg, names, 'l6_h384').partition(',')
  return recipe(size, bool(version))
