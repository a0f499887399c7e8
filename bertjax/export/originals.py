"""A run as its original program names it: what `python -m bertjax.convert --to=original` does.

It is for models that no class of transformers computes: safetensors, the original's options and
words, a card and the receipt.
"""

import importlib
import json
import pathlib
import time
from typing import Any

from bertjax import models
from bertjax.errors import UserError, choose, writing
from bertjax.export import card, receipt
from bertjax.formats import tables, weights
from bertjax.machine import durable
from bertjax.sources import foreign, runs

# config.model.name -> the format by which `convert --from` reads what is written, whose module of
# formats/originals has `tensors`, `options`, .., and `head` where it names those of labels
ORIGINALS = dict(elmo='bilm', awd_lstm='fastai')


def export(
  workdir: pathlib.Path | str, output: pathlib.Path | str, step: int | str | None = None
) -> dict[str, Any]:
  """Writes a run's model, as `runs.open_run` finds it, in float32. Returns the receipt. UserError:
  no run, heads without names there, or a model that transformers has; then nothing is written."""
  started, target = time.perf_counter(), durable.free(output)
  run = runs.open_run(workdir, step)
  model = run.config.model
  choose(model.name, ORIGINALS, 'the models of --to=original (config.model.name)')
  name, options = ORIGINALS[model.name], {}
  module = importlib.import_module(f'bertjax.formats.originals.{foreign.ORIGINALS[name]}')
  of_task = any(head.kind != 'word' for head in models.heads_of(model))
  if of_task and not hasattr(module, 'head'):
    raise UserError(
      f'{workdir} has heads of a task, which the original has no names for: expected the run that '
      'it began with (config.init_from)'
    )
  params = run.params()
  rows = [*module.tensors(params, model)]
  if of_task:
    rows += module.head(params, run.statistics())
    options = dict(classes=[*run.config.data.task.classes])
  found = {theirs: (ours, x) for theirs, ours, x in rows}
  with durable.directory(target) as partial, writing('the model', partial):
    weights.save(partial / weights.NAME, {theirs: x for theirs, (_, x) in found.items()})
    (partial / module.OPTIONS).write_text(
      json.dumps(module.options(model) | options, indent=2) + '\n'
    )
    if run.vocabulary and run.vocabulary.size > len(module.MARKS):
      text = module.word_list(run.vocabulary.pieces, model)
      (partial / 'vocab.txt').write_text(text, encoding='utf-8')
    said: dict[str, Any] = dict(
      title=f'{run.checkpoint} as {name} has it', versions=receipt.versions(),
      source=str(run.checkpoint), step=run.step, model_class=module.PROGRAM, dtype='float32',
      tensors=[
        dict(theirs=theirs, ours=ours, shape=list(x.shape), sha256=tables.digest(x))
        for theirs, (ours, x) in found.items()
      ],
      outputs=dict(skipped='no class of transformers has this model: outputs were not compared'),
      tokenizer=dict(skipped='no tokenizer of transformers is there: ids were not compared'),
    )  # fmt: skip
    card.write(partial, run, model, said, name)
    said['sha256'] = dict(theirs=receipt.files(partial))
    receipt.write(partial, said, started, sum(x.nbytes for _, x in found.values()))
  return said
