"""Lines for people: pairs of texts that a model cannot tell apart, what a run has reached, and what
to do after it."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from bertjax import models
from bertjax.examples.labelled.common.rows import Rows
from bertjax.formats.tokenizer import layouts
from bertjax.metrics.progress import to_the_screen
from bertjax.models.layers.contracts import WritingModel
from bertjax.objectives.combine import task_heads
from bertjax.train import setup
from bertjax.train.phase import Phase

OF_WORDS = ('mlm_masked', 'lm', 'plm', 'bilm', 'seq2seq')  # losses of the words to predict


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


def reached(best: Any, scores: Mapping[str, float]) -> str:
  """Returns a sentence about the last score that `config.best` looks at, '' without one. Accuracy
  is compared with that of the most frequent answer, a loss of words with that of their frequencies,
  which every model of a text should undercut; in place of `mlm`, which counts more than the words
  that are hidden, `mlm_masked` is."""
  found = scores.get(best.metric)
  if found is None:
    return ''
  set_, _, name = best.metric.rpartition('/')
  if name == 'mlm':
    name = 'mlm_masked'
    found = scores.get(f'{set_}/{name}', found)
  majority = scores.get(f'{set_}/majority')
  if name == 'accuracy' and majority is not None:
    said = f'The last evaluation found {best.metric} {found:.4g}'
    return f'{said}; always to give the most frequent answer reaches {majority:.4g}.'
  unigram = scores.get(f'{set_}/unigram_entropy')
  if unigram is None or name not in OF_WORDS:
    return f'The last evaluation found {best.metric} {scores[best.metric]:.4g}.'
  said = (
    f'Held out, a word to predict costs {found:.3f} nats ({set_}/{name}), by its frequency alone'
  )
  if found < unigram:
    return f'{said} {unigram:.3f}: the model has learned {unigram - found:.3f} from context.'
  return f'{said} {unigram:.3f}: nothing is learned from context yet, more steps may do it.'


@to_the_screen()
def show(run: setup.Run, workdir: str, early: str, scores: Mapping[str, float]) -> None:
  """Prints what the last scores say, the workdir, as it was given, and the next commands; `early`
  says that the run ended before its last step, and where."""
  print(f'\n{reached(run.config.best, scores)}'.rstrip())
  print(
    f'The run{f", {early}," if early else ""} is in {workdir}: curves.png, metrics.jsonl, '
    'checkpoints. Next:'
  )
  if importlib.util.find_spec('tensorboard'):
    print(f'  tensorboard --logdir {workdir}')
  print(f'  python -m bertjax.main --workdir={workdir} --evaluate')
  diffuses = run.config.data.mask.get('name') == 'diffusion'
  model = models.build(run.config.model)
  writes = isinstance(model, WritingModel) and any(h.kind == 'word' for h in model.output_heads)
  scored = any(each.evaluation.names for phase in run.parts for each in phase.evals)
  which = ' --step=best' if scored else ''
  which += ' --task=NAME' if run.timeline.drawn else ''
  labelled = run.config.data.reader == 'labelled'
  if labelled and writes:
    print(f'  python -m bertjax.generate --workdir={workdir}{which} --input=FILE')
  elif diffuses or writes:
    print(f"  python -m bertjax.generate --workdir={workdir} --text='Once' --temperature=0.8")
  elif run.config.data.mixture == 'python_docs':  # of the quickstart
    print(
      '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
      "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
      '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
    )
  elif not labelled:
    print(f'  python -m bertjax.embed --workdir={workdir} --input=FILE --output=vectors.npy')
  elif _has_head(run):
    print(f'  python -m bertjax.predict --workdir={workdir}{which} --input=FILE')
    if run.config.model.get('family', 'none') != 'none':
      print(f'  python -m bertjax.convert --to=hf --workdir={workdir}{which} --output=DIR')


def _has_head(run: setup.Run) -> bool:
  """Returns whether the model has a head for what it learned; that of a probe lies outside it."""
  params = run.abstract.variables['params']
  return task_heads.TASKS in params or any(n in params for n in models.head_paths(run.config.model))
