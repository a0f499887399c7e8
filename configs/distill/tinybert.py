"""TinyBERT (Jiao et al. 2020): the layers of a small BERT learn from every m-th of a large one.

  python -m bertjax.main --config=configs/distill/tinybert.py:4l_312 --workdir=runs/tinybert \
      --config.objective.teacher.source=hf:BERT --config.data.input='wiki/*.txt'

This is the general distillation, of attention scores and states, on text without labels. Sizes:
4l_312 and 6l_768, whose layers must divide the teacher's. The student has no head for words and
exports as BertModel; the dense layer that its states go through is training's alone. Sources name
huawei-noah/Pretrained-Language-Model.
"""

from ml_collections import ConfigDict

from bertjax.config.sources import Recipe, cited
from bertjax.data import recipes
from configs import bert, common
from configs.distill.kd import NO_TEACHER

CODE = 'Pretrained-Language-Model/TinyBERT/general_distill.py'
README = 'Pretrained-Language-Model/TinyBERT/README.md'
SIZES = {
  '4l_312': dict(layers=4, width=312, ffn=1200),
  '6l_768': dict(layers=6, width=768, ffn=3072),
}


def recipe(size: str) -> Recipe:
  """The general distillation.

  Args:
    size: of the student, a key of `SIZES`.
  """
  c, shape = bert.recipe('base'), SIZES[size]
  c.update(cited(common.NAMES, name=f'tinybert-{size}'))
  c.update(cited(README, batch_size=256) | cited(CODE, length=128))
  c.update(cited('ours: as long as you like; theirs are 3 epochs', total_steps=100_000))
  c.phases = ConfigDict()
  c.model.update(
    cited(f'{README}: the models', layers=shape['layers'], width=shape['width'])
    | cited('TinyBERT paper, section 4.2 (unverified)', heads=12, ffn=shape['ffn'])
    | cited('ours: nothing scores words or labels', words=False, labels=())
    | cited('ours: BertModel has one; fine-tuning trains it', pooler=True)
  )
  c.objective = cited('ours: the run names it', name='layerwise', teacher=NO_TEACHER)
  c.optimizer.update(
    cited(f'{CODE}: optimizer_grouped_parameters', weight_decay=0.01)
    | cited('ours: nothing is learned of it', freeze=(r'pooler/.*',))
  )
  c.optimizer.schedule.update(cited(CODE, peak=5e-5, warmup_steps=c.get_ref('total_steps') // 10))
  c.data.mask = recipes.CAUSAL_MASK  # nothing is hidden, as for the second version of the models
  c.best.update(cited('ours: the one that fine-tuning begins with', metric='eval/states'))
  c.evals.pseudo_perplexity.update(cited('ours: there is no head for words', rows=0))
  return c


def get_config(arg: str | None = None):
  """The recipe named by `arg` (default 4l_312)."""
  return recipe(common.parse_size(arg, SIZES, '4l_312'))
