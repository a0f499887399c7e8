"""Lines for people: pairs of texts that a model cannot tell apart, and what to do after a run."""

from bertjax import models
from bertjax.examples.labelled.common.rows import Rows
from bertjax.formats.tokenizer import layouts
from bertjax.models.layers.contracts import WritingModel
from bertjax.objectives.combine import task_heads
from bertjax.train import setup
from bertjax.train.phase import Phase


def pairs(phase: Phase) -> str:
  """Returns a note if a phase has pairs of texts and its model lacks segments for them, else ''."""
  examples, model = phase.examples, phase.config.model
  if not isinstance(examples, Rows) or models.build(model).has_segments:
    return ''
  if not any(type_T.any() for type_T in examples.examples.type_n):
    return ''
  said = f'Phase {phase.name!r} has pairs of texts, and the model no segments: what stands between'
  count = phase.config.data.task.get('separators')
  if count is None:
    return f'{said} tells them apart, and nothing else'
  family = model.get('family', '')
  known = layouts.separators(family)
  remedy = f'; {family} has {known}: set config.data.task.separators={known}'
  return f'{said} tells them apart, separators={count}, and nothing else{remedy * (count < known)}'


def show(run: setup.Run, workdir: str, early: str) -> None:
  """Prints the workdir, as it was given, and the next commands; `early` says that the run ended
  before its last step, and where."""
  print(
    f'\nThe run{f", {early}," if early else ""} is in {workdir}: curves.png, metrics.jsonl, '
    'checkpoints. Next:\n'
    f'  tensorboard --logdir {workdir}\n'
    f'  python -m bertjax.main --workdir={workdir} --evaluate'
  )
  if isinstance(models.build(run.config.model), WritingModel):
    print(f"  python -m bertjax.generate --workdir={workdir} --text='Once' --temperature=0.8")
  elif run.config.data.reader != 'labelled':
    print(
      '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
      "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
      '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
    )
  elif _has_head(run):
    scored = any(each.evaluation.names for phase in run.parts for each in phase.evals)
    which = ' --step=best' if scored else ''
    which += ' --task=NAME' if run.timeline.drawn else ''
    print(
      f'  python -m bertjax.predict --workdir={workdir}{which} --input=FILE\n'
      f'  python -m bertjax.convert --to=hf --workdir={workdir}{which} --output=DIR'
    )


def _has_head(run: setup.Run) -> bool:
  """Returns whether the model has a head for what it learned; that of a probe lies outside it."""
  params = run.abstract.variables['params']
  return task_heads.TASKS in params or any(n in params for n in models.labels_of(run.config.model))
