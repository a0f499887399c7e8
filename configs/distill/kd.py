"""A small model learns a task from a large one that was fine-tuned on it (Hinton et al. 2015).

  python -m bertjax.main --config=configs/distill/kd.py:pkd --workdir=runs/student \
      --config.objective.teacher.source=runs/teacher --config.data.train=train.tsv \
      --config.data.dev=dev.tsv --config.data.task.text="('review',)" \
      --config.data.task.label=stars --config.data.task.classes="('bad','good')" \
      --config.init_from="(('hf:BERT','params/embeddings','params/embeddings',()), \
        ('hf:BERT','params/encoder','params/encoder',(0,1,2,3,4,5)), \
        ('hf:BERT','params/pooler','params/pooler',()))"

kd has the teacher's answers, pkd also the states of its first tokens (Patient KD, Sun et al. 2019).
The student is a BERT base of 6 layers; config.model says otherwise. The teacher brings the
vocabulary. Sources name intersun/PKD-for-BERT-Model-Compression.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs.finetune import text

CODE = 'PKD-for-BERT-Model-Compression'
PRESET = f'{CODE}/src/argument_parser.py:get_predefine_argv'
KINDS = dict(
  kd=dict(temperature=20.0, states=0.0, peak=2e-5),
  pkd=dict(temperature=10.0, states=500.0, peak=1e-5),
)


def recipe(kind: str) -> Recipe:
  """Distillation of classes or numbers.

  Args:
    kind: of `KINDS`.
  """
  c = text.recipe(('text',), 'label', (), 'accuracy')
  c.update(cited(defaults.NAMES, name=kind) | cited(PRESET, epochs=4.0))
  own = KINDS[kind]
  c.objective = (
    cited('ours: the run names it', name='distill')
    | cited(f'{PRESET}: alpha', hard=0.3, soft=0.7)
    | cited(PRESET, temperature=own['temperature'], states=own['states'])
    | cited(f'{CODE}/src/KD_loss.py:distillation_loss', kl='mean')
    | cited(f'{PRESET}: normalize_patience', normalize=True)
  )
  layers = (1, 3, 5, 7, 9) if kind == 'pkd' else ()
  c.objective.update(cited(f'{PRESET}: fc_layer_idx', state_layers=layers))
  c.model.update(cited(f'{PRESET}: student_hidden_layers', layers=6))
  c.optimizer.schedule.update(cited(PRESET, peak=own['peak']))
  return c


def get_config(arg: str | None = None):
  """The recipe named by `arg` (default kd)."""
  return recipe(defaults.parse_size(arg, KINDS, 'kd'))
