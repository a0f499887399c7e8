"""A run as a directory of transformers, or model.onnx: what `python -m bertjax.convert --to=hf` and
`--to=onnx` do."""

import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from bertjax import dotted, models
from bertjax.errors import UserError
from bertjax.export import card, onnx_model, parity, receipt
from bertjax.export.originals import ORIGINALS
from bertjax.formats import config_json, directory, sentence_modules, tables
from bertjax.formats import family as family_lib
from bertjax.formats.tokenizer import layouts
from bertjax.machine import durable
from bertjax.sources import head_classes, runs
from bertjax.types import Part


class Form(NamedTuple):
  """The files of a model."""

  dtype: str = 'float32'  # of the tensors, or bfloat16
  shard_bytes: int = 5 * 10**9  # of a file of tensors
  sentence_transformers: str = ''  # pooling of the modules of that library; '': none
  tokenizer: bool = True
  onnx: bool = False  # whether model.onnx takes the place of the tensors


HF = Form()


class Net(NamedTuple):
  """A net that is written to a directory of its own."""

  folder: str  # below the output; '' the output itself
  model: Any  # its `config.model`
  select: Any  # whole parameters -> its own
  left_out: tuple[str, ...] = ()  # what of the run it lacks


def parts_of(model: Any) -> list[Net]:
  """Splits a model into those to write: itself, or its encoder where its classes do not compute
  it, and the generator beside a discriminator."""
  if model.family == 'none':
    raise UserError(
      f'no class of transformers has a model of config.model.name={model.name!r}: expected another '
      f'one, or of {", ".join(ORIGINALS)} --to=original'
    )
  factory, whole = models.factory(model), family_lib.find(model.family).model == model.name
  parts = {'': Part() if whole else factory.encoder, **factory.beside(model)}
  nets = [Net(at, ConfigDict(part.model(model)), part.select) for at, part in parts.items()]
  if not whole:
    written = {head.name for net in nets for head in models.heads_of(net.model)}
    lost = [head.name for head in models.heads_of(model) if head.name not in written]
    left_out = f'what serves pretraining alone, with the heads {", ".join(lost)}'
    nets[0] = nets[0]._replace(left_out=(left_out,))
  return nets


def behind_pad(part: Net, pad: int | None) -> Net:
  """Returns the part with its positions where its class counts them from: behind the vocabulary's
  [PAD]. The rows of the position table move along, and no number that the model says changes."""
  fields = family_lib.find(part.model.family).fields
  if pad is None or not any(f.ours == 'position_offset' for f in fields):
    return part
  model = part.model.copy_and_resolve_references()
  move = pad + 1 - model.position_offset
  model.position_offset, model.positions = pad + 1, model.positions + move

  def select(params):
    found = dict(part.select(params))
    table_TE = np.asarray(found['embeddings']['position'])
    moved_TE = np.pad(table_TE, ((move, 0), (0, 0))) if move > 0 else table_TE[-move:]
    return found | dict(embeddings=dict(found['embeddings'], position=moved_TE))

  return part._replace(model=model, select=select) if move else part


def words_alone(part: Net) -> Net:
  """Returns a part with words without its other heads, for which no pipeline has a class."""
  heads = models.heads_of(part.model)
  others = [head.name for head in heads if head.kind in ('text', 'boundary')]
  if not others or not any(head.kind == 'word' for head in heads):
    return part
  model = part.model.copy_and_resolve_references()
  model.labels = ()

  def select(params):
    return {key: x for key, x in part.select(params).items() if key not in (*others, 'pooler')}

  return Net(part.folder, model, select, (*part.left_out, *(f'the head {name}' for name in others)))


def export(
  workdir: pathlib.Path | str,
  output: pathlib.Path | str,
  step: int | str | None = None,
  form: Form = HF,
  task: str = '',
) -> dict[str, Any]:
  """Writes a run's model, as `runs.open_run` finds it, for `transformers` or onnxruntime, with its
  tokenizer, card and receipt. Returns the receipt. UserError: no run, or what the other side cannot
  express, and nothing is written; or the two sides say something else, and what was written is at
  OUTPUT.failed."""
  started = time.perf_counter()
  target = durable.free(output)
  run = runs.open_run(workdir, step, task)
  if run.tasks:
    raise UserError(
      f'{workdir} has heads for several tasks: expected --task, one of {", ".join(run.tasks)}'
    )
  if not form.tokenizer:
    run = run._replace(vocabulary=None)
  pad = run.vocabulary.special['pad'] if run.vocabulary else None
  parts = [behind_pad(part, pad) for part in parts_of(run.config.model)]
  if form.onnx:
    parts = [words_alone(part) for part in parts]
  for part in parts:
    directory.check(part.model, run.vocabulary)
    if form.onnx:
      onnx_model.check(part.model)
  whole = run.params()
  if run.task:  # without what other tasks alone read: the pooler, of tags
    rows = family_lib.find(run.config.model.family).layout(run.config.model).rows
    own = {row.ours.partition('/')[0] for row in rows}
    whole = {key: tree for key, tree in whole.items() if key in own}
  leaves = dotted.flat(whole, mark='/')
  size = sum(x.nbytes for x in leaves.values())
  ours = {path: tables.digest(x) for path, x in leaves.items()}
  told = _between(run)
  with durable.directory(target) as partial:
    receipts = {}
    for part in parts:
      folder = partial / part.folder
      folder.mkdir(exist_ok=True)
      params = part.select(whole)
      said = _write_part(folder, run, part.model, params, form, told)
      receipts[part.folder] = said
      card.write(folder, run, part.model, said, onnx=form.onnx)
    del whole, params, leaves
    for part in parts:
      said, folder = receipts[part.folder], partial / part.folder
      compared = onnx_model.compared if form.onnx else receipt.compared
      said['outputs'] = compared(folder, part.model, *said['outputs'])
      said['tokenizer'] = receipt.compared_ids(folder, run.vocabulary, part.model, told)
    said = receipts.pop('')
    said['sha256'] = dict(ours=ours, theirs=receipt.files(partial))
    said['parts'] = receipts
    said['left_out'] = list(parts[0].left_out)
    if form.sentence_transformers:
      length = directory.max_length(parts[0].model)
      sentence_modules.write(partial, parts[0].model, form.sentence_transformers, length)
    receipt.write(partial, said, started, size)
    wrong = receipt.faults(said)
    if wrong:
      kept = target.with_name(target.name + '.failed')
      shutil.rmtree(kept, ignore_errors=True)
      partial.rename(kept)
      raise UserError(
        f'{"onnxruntime" if form.onnx else "transformers"} does not say what the run says: '
        f'{"; ".join(wrong)}. What was written is at {kept}, with its {receipt.NAME}'
      )
  return said


def _between(run: runs.Run) -> layouts.Between | None:
  """Returns what tells the texts of a pair apart in the rows of a run; None: as in its family."""
  task, segments = run.config.data.get('task', {}), models.build(run.config.model).has_segments
  if len(task.get('text', ())) == 2 or task.get('name') in ('choice', 'spans'):
    return layouts.Between(task.separators, segments)
  told = run.meta.get('between')
  return told and layouts.Between(told[0], told[1] and segments)


def _write_part(
  folder: pathlib.Path,
  run: runs.Run,
  model: Any,
  params: Mapping[str, Any],
  form: Form,
  told: layouts.Between | None,
) -> dict[str, Any]:
  """Writes the directory; the outputs of our side are kept for the comparison."""
  params = parity.rounded(params, form.dtype)
  pad = run.vocabulary.special['pad'] if run.vocabulary else None
  inputs = parity.inputs_of(model, pad)
  name = family_lib.class_of(model)
  classes = head_classes.of_task(run.config) or next(iter(run.imported_classes.values()), ())
  languages = runs.languages_of(run.workdir, run.config)
  task = run.config.data.get('task', {})
  problem = config_json.SEVERAL if task.get('several') else run.meta.get('problem_type')
  tensors = directory.write(
    folder, params, model, run.vocabulary, form.dtype, form.shard_bytes, classes, languages,
    problem, told,
  )  # fmt: skip
  said: dict[str, Any] = dict(
    title=f'{run.checkpoint} as {name}',
    versions=receipt.versions(), source=str(run.checkpoint), step=run.step,
    model_class=name, dtype=form.dtype, tensors=tensors,
  )  # fmt: skip
  said['outputs'] = (inputs, parity.ours(model, params, inputs))
  return said
