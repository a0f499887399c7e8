"""A small model learns what a large one has said of each example, written to a file once.

  python -m bertjax.predict --workdir=runs/teacher --input=train.tsv --soft_labels=train_soft.jsonl
  python -m bertjax.main --config=configs/distill/soft_labels.py --workdir=runs/student \
      --config.init_from=hf:DIR --config.data.train=train_soft.jsonl --config.data.dev=dev.tsv \
      --config.data.task.text="('review',)" --config.data.task.label=stars \
      --config.data.task.classes="('bad','good')"

The losses of kd.py, without the teacher's forward pass in each step. Texts without labels take
config.objective.hard=0.0 and config.data.task.unlabelled. The file has the texts and labels of its
input beside soft_label.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs.distill import kd


def get_config(arg: str | None = None) -> Recipe:
  """The recipe; it has one size, base."""
  defaults.parse_size(arg, ('base',), 'base')
  c = kd.recipe('kd')
  c.update(cited(defaults.NAMES, name='soft-labels'))
  c.objective = (
    cited('ours: the teacher is a file', name='soft_labels')
    | cited(f'{kd.PRESET}: alpha', hard=0.3, soft=0.7)
    | cited(kd.PRESET, temperature=kd.KINDS['kd']['temperature'])
    | cited(f'{kd.CODE}/src/KD_loss.py:distillation_loss', kl='mean')
  )
  c.data.task.update(cited("ours: bertjax.predict's", soft_label='soft_label'))
  return c
