"""A model from elsewhere as a run: what `python -m bertjax.convert --from=...` does."""

import pathlib
import time
from typing import Any

from bertjax import dotted
from bertjax.errors import UserError
from bertjax.export import parity, receipt
from bertjax.formats import family as family_lib
from bertjax.formats import tables, weights
from bertjax.formats.directory import whole_model
from bertjax.machine import checksums, durable
from bertjax.sources import runs
from bertjax.sources.foreign import open_source


def import_model(source: str, output: pathlib.Path | str) -> dict[str, Any]:
  """Writes a workdir, which must not exist or be empty, that holds a model from elsewhere,
  FORMAT:PATH, and its receipt. Returns the receipt. Raises UserError: what cannot be read or
  computed, or outputs that differ; nothing is left at `output`."""
  started = time.perf_counter()
  target = durable.free(output)
  opened = open_source(source, '--input')
  config = runs.recipe_of(opened.recipe)
  config.model = model = whole_model(opened, config.model)
  config.name, config.phases = opened.path.name, {}
  config.data.languages = opened.languages or config.data.languages
  vocabulary, taken = opened.vocabulary, opened.take(model)
  pad = vocabulary.special['pad'] if vocabulary else None
  inputs = parity.inputs_of(model, pad)
  mine = parity.ours(model, taken.params, inputs)
  params = dotted.flat(taken.params, mark='/')
  arrays = [
    dict(ours=path, shape=list(x.shape), sha256=tables.digest(x)) for path, x in params.items()
  ]
  size = sum(x.nbytes for x in params.values())
  assumed = list(opened.assumed)
  if vocabulary and vocabulary.size < model.vocab_size:
    assumed.append(
      f'of the {model.vocab_size:,} rows of the word table the vocabulary in {vocabulary.files[0]} '
      f'uses the first {vocabulary.size:,}'
    )
  if opened.path.is_dir():
    digests = receipt.files(opened.path)
  else:
    digests = {path.name: checksums.of_file(path) for path in opened.files}
  try:
    model_class = family_lib.class_of(model)
  except UserError as error:
    model_class = f'none: {error}'
  said: dict[str, Any] = dict(
    title=f'{source} as a run', versions=receipt.versions(), source=source,
    model_class=model_class, tensors=arrays, made=taken.made, assumed=assumed,
    left_out=taken.left_out, sha256=dict(theirs=digests),
  )  # fmt: skip
  with durable.directory(target) as directory:
    classes = {head: [*names] for head, names in opened.classes.items()}
    meta = dict(opened.meta, source=source, classes=classes)
    runs.write_run(directory, config, taken.params, vocabulary, meta)
    del taken, params  # before transformers reads the other side: one model at a time
    said['outputs'] = _compared(source, opened.path, model, inputs, mine, said['made'])
    said['tokenizer'] = dict(skipped='no tokenizer of transformers is there: ids were not compared')
    if source.startswith('hf:'):
      said['tokenizer'] = receipt.compared_ids(
        opened.path, vocabulary, model, opened.meta['between']
      )
    wrong = receipt.faults(said)
    if wrong:
      raise UserError(f'{source} does not say the same here: {"; ".join(wrong)}')
    said['sha256']['ours'] = receipt.files(directory)
    receipt.write(directory, said, started, size)
  return said


def _compared(source: str, path: pathlib.Path, model, inputs, mine, made) -> dict[str, Any]:
  if not source.startswith('hf:'):
    return dict(skipped='no class of transformers reads this format: outputs were not compared')
  if made:
    return dict(skipped=f'{", ".join(made)} were made anew: outputs were not compared')
  found = receipt.compared(path, model, inputs, mine, weights.read(path))
  found.pop('unexpected', None)  # what the file has besides is in left_out
  return found
